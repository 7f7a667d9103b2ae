//! Flags of `kolo-sim grid`: as written, and checked.
//!
//! Invariant: a [`Checked`] value is consistent; what only a file can show is checked where the file is read.

use std::{path::PathBuf, time::Duration};

use discovery::hostile::Attack;

use super::{
    memory,
    process::Asking,
    scenario::{Scenario, ScenarioFlags, duration},
    wan::{self, Distance},
};
use crate::{generate::Kind, grid::error::UsageError, print::OutputForm};

/// Most node processes; beyond that one machine is not what is being measured.
pub const NODES_MAX: usize = 1000;
/// What a node's process needs under load, in MiB, beside the pages that all of them share: measured with 50.
const PROCESS_MIB: u64 = 40;
/// What a node needs that shares a process with others: measured 9 with 5, 11.5 with 60.
const IN_PROCESS_MIB: u64 = 15;
/// What every node needs besides for each host of the grid that has a day of generated occupancy, which all nodes know of
/// all hosts: measured with 60 nodes, and so what bounds large grids.
const LOADED_HOST_KIB: u64 = 32;
/// Most generated hosts or requests.
const GENERATED_MAX: usize = 100_000;
/// Hosts a node when the number of hosts is not given.
const HOSTS_PER_NODE: usize = 4;
/// Most sites that join under --churn, and the fewest; in between it is half of the nodes.
const NEWCOMERS_MAX: usize = 50;
const NEWCOMERS_MIN: usize = 2;
/// Longest latency one way: above it the nodes' own limits on answers are what is measured.
const LATENCY_MAX: Duration = Duration::from_secs(5);
/// Entry points at once when not given.
const ENTRY_POINTS: usize = 8;

/// Start a grid of real node processes on loopback, send requests through different nodes, and check every ledger.
#[derive(Debug, clap::Args)]
pub struct GridArgs {
    /// Node processes.
    #[arg(long, default_value_t = 15)]
    nodes: usize,
    /// Generated hosts [default: 4 a node].
    #[arg(long, conflicts_with = "grid")]
    hosts: Option<usize>,
    /// Hosts and their occupancy from a kolo-grid/1 file; time 0 of the file is the start of the run.
    #[arg(long, value_name = "GRID.json")]
    grid: Option<PathBuf>,
    /// Requests from a file, one JSON object a line; times are relative to the start of the run.
    #[arg(long, value_name = "REQUESTS.jsonl", conflicts_with_all = ["count", "hosts_per_request", "kind"])]
    requests: Option<PathBuf>,
    /// Generated requests.
    #[arg(long, default_value_t = 40)]
    count: usize,
    /// Take the first K requests only.
    #[arg(long, value_name = "K")]
    limit: Option<usize>,
    /// Everything random comes from this number, except what the network and the nodes do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Hosts a generated request asks for.
    #[arg(long, value_name = "N", default_value_t = 5)]
    hosts_per_request: u32,
    /// Kind of the generated requests.
    #[arg(long, value_enum, default_value = "collective")]
    kind: Kind,
    /// Requests submitted at the same moment, each through another node [default: 8, at most one a node].
    #[arg(long, value_name = "K", conflicts_with = "in_order")]
    entry_points: Option<usize>,
    /// Submit one request at a time.
    #[arg(long)]
    in_order: bool,
    /// Generated hosts have nothing reserved at first.
    #[arg(long, conflicts_with = "grid")]
    free: bool,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value = "table")]
    output: OutputForm,
    /// Write the result here as well, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots here: one self-contained page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Put the log files of the nodes here and keep them.
    #[arg(long, value_name = "DIR")]
    keep_logs: Option<PathBuf>,
    /// The `kolo` binary [default: the one beside this binary].
    #[arg(long, value_name = "PATH")]
    kolo: Option<PathBuf>,
    /// Least time between two gossip messages of a node. Short runs want news soon; many nodes under a high --rate on few
    /// processors want it seldom.
    #[arg(long, value_name = "DURATION", default_value = "200ms")]
    gossip: String,
    /// All nodes in one process, each complete, over channels inside it instead of TCP.
    #[arg(long, conflicts_with_all = ["kill", "partition", "hostile", "churn", "latency", "loss"])]
    in_process: bool,
    /// A grid of members only: the first site founds it, every other one is invited and joins.
    #[arg(long, conflicts_with_all = ["in_process", "hostile"])]
    closed: bool,
    /// Time that everything takes from node to node, one way.
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["partition", "hostile"])]
    latency: Option<String>,
    /// Share of what nodes send each other that is lost, and so arrives only after a retransmission.
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["partition", "hostile"])]
    loss: Option<String>,
    #[command(flatten)]
    scenario: ScenarioFlags,
}

/// Where the hosts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSource {
    /// A snapshot file.
    File(PathBuf),
    /// Generated; `free` means without occupancy.
    Generated {
        /// How many.
        hosts: usize,
        /// Without occupancy.
        free: bool,
    },
}

/// Where the requests come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSource {
    /// A file, one a line.
    File(PathBuf),
    /// Generated.
    Generated {
        /// How many.
        count: usize,
        /// N.
        hosts_per_request: u32,
        /// Whether the split is open.
        kind: Kind,
    },
}

/// Checked flags.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Node processes, at least 1.
    pub nodes: usize,
    /// Where the hosts come from.
    pub hosts: HostSource,
    /// Where the requests come from.
    pub requests: RequestSource,
    /// Take the first so many requests.
    pub limit: usize,
    /// Seed of everything random in the harness.
    pub seed: u64,
    /// Requests submitted at the same moment, 1 to `nodes`.
    pub at_once: usize,
    /// Form of the result.
    pub output: OutputForm,
    /// Where the result is written as JSON, if wanted.
    pub json: Option<PathBuf>,
    /// Where the result is written as a page, if wanted.
    pub html: Option<PathBuf>,
    /// Where logs are kept, if wanted.
    pub keep_logs: Option<PathBuf>,
    /// The `kolo` binary, which exists.
    pub kolo: PathBuf,
    /// Least time between two gossip messages of a node.
    pub gossip: Duration,
    /// Whether all nodes share one process.
    pub in_process: bool,
    /// Whether the grid has members only.
    pub is_closed: bool,
    /// Nodes that may join while requests come, beside those in `nodes`.
    pub newcomers: usize,
    /// How far apart the nodes are, where that is not as near as one machine is.
    pub distance: Option<Distance>,
    /// What happens while requests come.
    pub scenario: Scenario,
    /// What attackers do; everything when empty.
    pub attacks: Vec<Attack>,
}

impl Checked {
    /// How eagerly nodes ask for schedules, where that is not their own choice.
    pub fn asking(&self) -> Option<Asking> {
        if self.in_process { Asking::in_process(self.nodes) } else { None }
    }

    /// Under what conditions the run is, where they are others than processes near each other, in words.
    pub fn conditions(&self) -> Vec<String> {
        let churns = matches!(self.scenario, Scenario::Open { churn: true, .. });
        let said = |holds: bool, words: &str| holds.then(|| words.to_owned());
        let far = self.distance.map(|Distance { latency, loss }| {
            format!("{} ms from node to node, {} % of the segments lost", latency.as_millis(), loss * 100.0)
        });
        let all = [
            said(self.in_process, "all nodes in one process"),
            self.asking().map(|asking| asking.words()),
            said(self.is_closed, "members only"),
            far,
            said(churns, "nodes leave, crash and come back, and new sites join"),
        ];
        all.into_iter().flatten().collect()
    }
}

impl GridArgs {
    fn distance(&self) -> Result<Option<Distance>, UsageError> {
        if self.latency.is_none() && self.loss.is_none() {
            return Ok(None);
        }
        let latency = self.latency.as_deref().map(|text| duration("--latency", text)).transpose()?.unwrap_or_default();
        if latency > LATENCY_MAX {
            return Err(UsageError::Latency { latency, max: LATENCY_MAX });
        }
        let loss = self.loss.as_deref().map(|text| wan::share("--loss", text)).transpose()?.unwrap_or_default();
        Ok(Some(Distance { latency, loss }))
    }

    /// Checks the flags.
    ///
    /// # Errors
    /// [`UsageError`] naming the flag and what was expected.
    pub fn check(&self) -> Result<Checked, UsageError> {
        let nodes = in_range("--nodes", self.nodes, 1, NODES_MAX)?;
        let scenario = self.scenario.check(nodes)?;
        let newcomers = match scenario {
            Scenario::Open { churn: true, .. } => (nodes / 2).clamp(NEWCOMERS_MIN, NEWCOMERS_MAX),
            _ => 0,
        };
        let hosts = match &self.grid {
            Some(path) => HostSource::File(path.clone()),
            None => {
                let hosts = in_range("--hosts", self.hosts.unwrap_or(nodes * HOSTS_PER_NODE), nodes, GENERATED_MAX)?;
                HostSource::Generated { hosts, free: self.free }
            }
        };
        if let Some(available_mib) = memory::available_mib() {
            let loaded_hosts = match &hosts {
                HostSource::Generated { hosts, free: false } => *hosts,
                HostSource::Generated { .. } | HostSource::File(_) => 0,
            };
            has_memory(nodes + newcomers, self.in_process, loaded_hosts, available_mib)?;
        }
        let requests = match &self.requests {
            Some(path) => RequestSource::File(path.clone()),
            None => RequestSource::Generated {
                count: in_range("--count", self.count, 1, GENERATED_MAX)?,
                hosts_per_request: self.hosts_per_request,
                kind: self.kind,
            },
        };
        let at_once = match (self.in_order, self.entry_points) {
            (true, _) => 1,
            (false, Some(asked)) => in_range("--entry-points", asked, 1, nodes)?,
            (false, None) => ENTRY_POINTS.min(nodes),
        };
        Ok(Checked {
            nodes,
            hosts,
            requests,
            limit: in_range("--limit", self.limit.unwrap_or(GENERATED_MAX), 1, GENERATED_MAX)?,
            seed: self.seed,
            at_once,
            output: self.output,
            json: self.json.clone(),
            html: self.html.clone(),
            keep_logs: self.keep_logs.clone(),
            kolo: find_kolo(self.kolo.clone())?,
            gossip: duration("--gossip", &self.gossip)?,
            in_process: self.in_process,
            is_closed: self.closed,
            newcomers,
            distance: self.distance()?,
            scenario,
            attacks: self.scenario.attacks().to_vec(),
        })
    }
}

/// Whether so many nodes fit into memory, when so many hosts have generated occupancy.
fn has_memory(nodes: usize, in_process: bool, loaded_hosts: usize, available_mib: u64) -> Result<(), UsageError> {
    let (node_mib, how) =
        if in_process { (IN_PROCESS_MIB, "in one process") } else { (PROCESS_MIB, "in processes of their own") };
    let schedules_mib = loaded_hosts as u64 * LOADED_HOST_KIB / 1024;
    let needed_mib = nodes as u64 * (node_mib + schedules_mib);
    let hint = match (schedules_mib > node_mib, in_process) {
        (true, _) => ", or --free, or fewer --hosts: every node knows the occupancy of all hosts",
        (false, true) => "",
        (false, false) => ", or --in-process",
    };
    if needed_mib <= available_mib {
        return Ok(());
    }
    Err(UsageError::Memory { nodes, how, needed_mib, available_mib, hint })
}

/// `value` when it is in the range that `flag` accepts.
///
/// # Errors
/// [`UsageError::Range`].
pub fn in_range(flag: &'static str, value: usize, min: usize, max: usize) -> Result<usize, UsageError> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(UsageError::Range { flag, min, max, value }) }
}

/// The `kolo` binary that was asked for, or the one beside this binary.
///
/// # Errors
/// [`UsageError`] when there is none.
pub fn find_kolo(asked: Option<PathBuf>) -> Result<PathBuf, UsageError> {
    let path = match asked {
        Some(path) => path,
        None => std::env::current_exe()
            .map_err(|source| UsageError::OwnPath { source })?
            .with_file_name(format!("kolo{}", std::env::consts::EXE_SUFFIX)),
    };
    if path.is_file() { Ok(path) } else { Err(UsageError::NoKolo { path }) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: GridArgs,
    }

    fn check(flags: &str) -> Result<Checked, String> {
        let own = std::env::current_exe().unwrap();
        let all = format!("x --kolo {} {flags}", own.display());
        let cli = Cli::try_parse_from(all.split_whitespace()).map_err(|error| error.to_string())?;
        cli.args.check().map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_follow_the_number_of_nodes() {
        let checked = check("--nodes 20").unwrap();
        assert_eq!(checked.hosts, HostSource::Generated { hosts: 80, free: false });
        assert_eq!(checked.at_once, 8);
        assert_eq!(check("--nodes 3").unwrap().at_once, 3);
        assert_eq!(check("--in-order").unwrap().at_once, 1);
    }

    #[test]
    fn what_does_not_fit_into_memory_is_refused() {
        assert!(has_memory(200, false, 0, 200 * PROCESS_MIB).is_ok());
        assert_eq!(
            has_memory(200, false, 0, 200 * PROCESS_MIB - 1).unwrap_err().to_string(),
            "--nodes: 200 nodes in processes of their own need about 8000 MiB, and 7999 MiB are available: take fewer, or \
             --in-process"
        );
        let refused = |loaded_hosts| has_memory(1000, true, loaded_hosts, 14_999).unwrap_err().to_string();
        assert!(
            refused(0).ends_with("need about 15000 MiB, and 14999 MiB are available: take fewer"),
            "{}",
            refused(0)
        );
        assert!(refused(4000).contains("140000 MiB") && refused(4000).contains("--free"), "{}", refused(4000));
    }

    #[test]
    fn distances_and_searches_have_defaults() {
        let checked = check("--loss 1%").unwrap();
        assert_eq!(checked.distance, Some(Distance { latency: Duration::ZERO, loss: 0.01 }));
        assert_eq!(checked.conditions(), ["0 ms from node to node, 1 % of the segments lost"]);
        let restless = check("--closed --churn --rate 5 --duration 5s --nodes 20").unwrap();
        assert_eq!((restless.newcomers, restless.conditions().len()), (10, 2));
        assert_eq!(check("").unwrap().distance, None);
        let (duration, p99) = (Duration::from_secs(10), Duration::from_millis(250));
        assert_eq!(check("--find-rate").unwrap().scenario, Scenario::FindRate { first: 10.0, duration, p99 });
    }

    #[test]
    fn bad_flags_are_named() {
        for (flags, expected) in [
            ("--nodes 0", "--nodes: expected 1 to 1000, got 0"),
            ("--nodes 15 --hosts 14", "--hosts: expected 15 to"),
            ("--count 0", "--count"),
            ("--limit 0", "--limit"),
            ("--entry-points 16", "--entry-points: expected 1 to 15, got 16"),
            ("--entry-points 2 --in-order", "--in-order"),
            ("--grid g.json --hosts 5", "--hosts"),
            ("--requests r.jsonl --count 5", "--count"),
            ("--gossip 200", "--gossip: expected a number with a unit"),
            ("--kill 0", "--kill: expected 1 to"),
            ("--kill 5 --nodes 1", "--nodes: expected 2 to"),
            ("--kill 5 --in-order", "--in-order"),
            ("--latency 40", "--latency: expected a number with a unit"),
            ("--latency 6s", "--latency: expected at most 5000 ms"),
            ("--loss 1", "--loss: expected 0% to 50%"),
            ("--loss 1% --in-process", "--in-process"),
            ("--closed --hostile 1", "--hostile"),
            ("--in-process --kill 3", "--kill"),
            ("--partition 1s --latency 40ms", "--latency"),
            ("--find-rate --churn --rate 5", "--find-rate"),
            ("--find-rate --p99 250", "--p99: expected a number with a unit"),
            ("--p99 250ms", "--find-rate"),
            ("--kolo /nowhere/kolo", "cannot be used multiple times"),
        ] {
            let error = check(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
