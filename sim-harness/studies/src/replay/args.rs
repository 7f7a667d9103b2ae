//! Flags of `kolo-study replay`.
//!
//! Invariant: an unknown policy, a duration without a unit or a contradiction is bad usage, found before anything runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use serde::Serialize;
use sim_kit::{duration, print::OutputForm};

use super::{deadlines, policy};

/// The names of the policies with `--uplink-mbps`: orders alone take the fastest hosts, whatever the uplinks.
pub const SPANNING_POLICIES: [&str; 18] = [
    "oas",
    "oas:slots",
    "mesd",
    "mesd:literal",
    "cbs",
    "jpr",
    "pas-fcfs",
    "pas-sjf",
    "pas-bjf",
    "pas-fpfs",
    "pas-spt",
    "pas-lpt",
    "fcfs",
    "sjf",
    "bjf",
    "fpfs",
    "spt",
    "lpt",
];

/// Most jobs in one replay; about 200 bytes each.
pub const JOBS_MAX: u32 = 4_000_000;
/// Longest teardown, in seconds.
const TEARDOWN_S_MAX: u32 = 86_400;

/// Replay a workload trace under a scheduling policy in virtual time, and print the field's metrics.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The trace, in the Standard Workload Format; - for standard input.
    #[arg(long, value_name = "FILE.swf", required_unless_present = "synthetic")]
    pub trace: Option<PathBuf>,
    /// Instead of a trace, so many made-up jobs, drawn from the seed.
    #[arg(long, value_name = "JOBS", conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=i64::from(JOBS_MAX)))]
    pub synthetic: Option<u32>,
    /// The clusters: tab separated `id name nodes cpus_per_node speed memory_per_node_KiB`, one a line.
    #[arg(long, value_name = "FILE.machines")]
    pub machines: PathBuf,
    /// The scheduling policy.
    #[arg(long, value_name = "POLICY", value_parser = PossibleValuesParser::new(names()))]
    pub policy: String,
    #[command(flatten)]
    pub rules: Rules,
    /// Jobs span clusters: each cluster of the machines file is behind an uplink of so many Mbit/s, hosts differ in speed, and a task has
    /// a host of its own. Policies: oas, oas:slots, mesd, mesd:literal, cbs, jpr, pas-ORDER, and the orders fcfs, sjf, bjf, fpfs, spt and lpt.
    #[arg(long, value_name = "MBPS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["synthetic", "jobs_csv", "growth", "search", "slack"])]
    pub uplink_mbps: Option<u32>,
    #[command(flatten)]
    pub spanning: Spanning,
    /// Other plans that qos-plan looks at in a search; 0 is the source's algorithm.
    #[arg(long, value_name = "PLANS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub search: u32,
    /// Deadlines, which traces do not have: submission plus the limit times one of these factors, drawn for each job.
    #[arg(long, value_name = "FACTOR", value_delimiter = ',', default_values_t = deadlines::FACTORS, value_parser = deadlines::factor)]
    pub slack: Vec<deadlines::Factor>,
    /// Write one line a job here.
    #[arg(long, value_name = "FILE.csv")]
    pub jobs_csv: Option<PathBuf>,
    /// Write a report with plots here: one self-contained page.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// How the metrics are printed.
    #[arg(long, value_enum, default_value_t = OutputForm::Table)]
    pub output: OutputForm,
    /// Replay the first 1,000 jobs as well, the first 3,000, 10,000 and so on, and show how the time grows.
    #[arg(long)]
    pub growth: bool,
    /// Seed of all random choices: made-up jobs, and those that `kolo` makes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What jobs that span clusters do to each other.
#[derive(Debug, Clone, Copy, Args)]
pub struct Spanning {
    /// The most that a task sends, in Mbit/s; drawn for each job between nothing and this.
    #[arg(long, value_name = "MBPS", default_value_t = 800, requires = "uplink_mbps")]
    pub traffic_mbps_max: u32,
    /// Mean time between failures of a host, such as 1000h; a job that loses a host begins anew.
    #[arg(long = "host-mtbf", value_name = "DURATION", requires = "uplink_mbps", value_parser = mean_time)]
    pub host_mtbf_s: Option<i64>,
}

/// Reads a mean time between failures. At none a host would never run.
fn mean_time(text: &str) -> Result<i64, String> {
    let seconds = duration::whole_seconds(u32::MAX)(text)?;
    if seconds > 0 { Ok(seconds) } else { Err("expected 1s or more".to_owned()) }
}

/// The names of all policies.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = policy::names().collect();
    names.extend(SPANNING_POLICIES.into_iter().filter(|name| !policy::names().any(|known| known == *name)));
    names
}

/// How the records of a trace become jobs.
#[derive(Debug, Clone, Copy, Args, Serialize)]
pub struct Rules {
    /// What the scheduler knows of run times.
    #[arg(long, value_enum, default_value_t = Runtimes::True)]
    pub runtimes: Runtimes,
    /// What happens to a job that reaches its limit.
    #[arg(long, value_enum, default_value_t = Overrun::Kill)]
    pub overrun: Overrun,
    /// How long a job holds its hosts after it has ended, such as 0s or 30s.
    #[arg(long = "teardown", value_name = "DURATION", default_value = "1s", value_parser = duration::whole_seconds(TEARDOWN_S_MAX))]
    pub teardown_s: i64,
    /// Ignore the tags cl_X (only on cluster X), ^cl_X (not on cluster X) and excl (start only while enough hosts are empty) of
    /// extended traces.
    #[arg(long = "ignore-tags")]
    pub ignores_tags: bool,
    /// Replay only the first so many jobs.
    #[arg(long = "limit", value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip)]
    pub jobs_max: Option<u32>,
}

/// What the scheduler knows of run times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtimes {
    /// How long the job will run.
    True,
    /// The user's limit.
    Estimates,
}

/// What happens at the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overrun {
    /// The job ends there.
    Kill,
    /// The job runs on.
    Extend,
}
