//! Flags of `kolo-study tables`.
//!
//! Invariant: an unknown policy or a file without the one it belongs to is bad usage, found before anything runs.

use std::path::PathBuf;

use broker::request::Effort;
use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use serde::{
    Deserialize,
    de::{IntoDeserializer, value::Error},
};
use sim_kit::print::OutputForm;

use crate::placement::strategies;

/// Repeat the source's tables 3.2 to 3.4 and its parameter study, with its own figures beside ours.
#[derive(Debug, Args)]
pub struct TablesArgs {
    /// The grid: a `kolo-grid/1` snapshot. Without it a grid is generated from the seed.
    #[arg(long, value_name = "FILE")]
    pub grid: Option<PathBuf>,
    /// Hosts of the generated grid.
    #[arg(long, default_value_t = 606, value_parser = clap::value_parser!(u32).range(10..=100_000), conflicts_with = "grid")]
    pub hosts: u32,
    /// Collective requests, one JSON object a line. Without them requests are drawn as in the source.
    #[arg(long, value_name = "FILE", requires = "grid")]
    pub collective: Option<PathBuf>,
    /// The same requests, simple: line for line the same N, duration and window.
    #[arg(long, value_name = "FILE", requires = "collective")]
    pub simple: Option<PathBuf>,
    /// Requests drawn of each kind for each N.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with = "collective")]
    pub cases: u32,
    /// Proven earliest starts of the collective requests, to count late answers.
    #[arg(long, value_name = "FILE", requires = "collective")]
    pub exact: Option<PathBuf>,
    /// Proven earliest starts of the simple requests.
    #[arg(long, value_name = "FILE", requires = "simple")]
    pub exact_simple: Option<PathBuf>,
    /// Write the plan lines of the collective requests here.
    #[arg(long, value_name = "FILE")]
    pub plans: Option<PathBuf>,
    /// Write the plan lines of the simple requests here.
    #[arg(long, value_name = "FILE")]
    pub plans_simple: Option<PathBuf>,
    /// How much work the planner may spend on a request: fast, balanced or thorough.
    #[arg(long, default_value = "balanced", value_parser = effort)]
    pub effort: Effort,
    /// Seed of all random choices, the generated grid and requests included.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Plan every request this often, in all versions, and take the least time of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Leave the textbook version out (it takes most of the time).
    #[arg(long)]
    pub no_textbook: bool,
    /// Leave the parameter study out.
    #[arg(long)]
    pub no_study: bool,
    /// Runs of each request for each value of a parameter, each with another seed.
    #[arg(long, value_name = "RUNS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub study_runs: u32,
    /// A strategy to be measured as well; may be given several times.
    #[arg(long, value_name = "POLICY", value_parser = PossibleValuesParser::new(strategies().map(|(name, _)| name)))]
    pub policy: Vec<String>,
    /// Repeat the experiments of another source instead of these tables.
    #[arg(long, value_enum, value_name = "STUDY", conflicts_with_all = ["grid", "hosts", "cases", "plans", "plans_simple",
        "effort", "repeats", "no_textbook", "no_study", "study_runs", "policy"])]
    pub study: Option<OtherStudy>,
    /// Experiments of that study. Default: 5000 of windows, 20 workloads of clusters, 100 worlds of late binding, 3 draws of deadlines,
    /// 4 batches of each scenario of co-location.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000), requires = "study")]
    pub experiments: Option<u64>,
    /// A trace in the Standard Workload Format: for the study of clusters on four of 60 hosts, for that of late binding on the hosts of hpc2n,
    /// for that of quality on those of --machines.
    #[arg(long, value_name = "FILE", requires = "study")]
    pub trace: Option<PathBuf>,
    /// The clusters of the trace, for the study of quality: a file as of `kolo-study replay`.
    #[arg(long, value_name = "FILE.machines", requires = "trace")]
    pub machines: Option<PathBuf>,
    /// For the study of co-location, in place of drawn batches: a folder with folders that have grid.json and requests.jsonl.
    #[arg(long, value_name = "FOLDER", requires = "study", conflicts_with_all = ["experiments", "html"])]
    pub sets: Option<PathBuf>,
    /// Write a report with plots here: one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How the tables are printed.
    #[arg(long, value_enum, default_value_t = OutputForm::Table)]
    pub output: OutputForm,
}

/// Experiments of sources other than the one of these tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OtherStudy {
    /// Windows of slots: criteria, parts of batches, and an owner's price.
    Windows,
    /// Clusters with limited links: how jobs are assigned, in which order, and small batches.
    Clusters,
    /// Reservations that are tied to a host early or late: what is admitted, what it disturbs, what a failure costs.
    LateBinding,
    /// A trace with deadlines: queues against plans that are kept and improved.
    Quality,
    /// Batches of moldable jobs that share hosts: what pairing gains, what its thresholds do, what it takes.
    Colocation,
}

fn effort(name: &str) -> Result<Effort, Error> {
    Effort::deserialize(name.into_deserializer())
}
