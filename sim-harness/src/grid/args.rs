//! Flags of `kolo-sim grid`.
//!
//! Invariant: clap checks each flag by itself, [`GridArgs::check`] what they are together; what only a file can show is checked
//! where the file is read.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};

use super::{
    experiment::{Experiment, ExperimentFlags, number, time},
    load::workload::{HostSource, RequestSource},
    nodes::{
        launch::Asking,
        wan::{self, Distance},
    },
};
use crate::{duration, error::BadUsage, generate::Kind, print::OutputForm, usage};

/// Most node processes; beyond that one machine is not what is being measured.
const NODES_MAX: u64 = 1000;
/// What a node's process needs under load, in MiB, beside the pages that all of them share: measured with 50.
const PROCESS_MIB: u64 = 40;
/// What a node needs that shares a process with others, in MiB: measured 9 with 5, 11.5 with 60.
const IN_PROCESS_MIB: u64 = 15;
/// What every node needs in addition, in KiB, for each host of the grid that has a day of generated occupancy, which all nodes know
/// of all hosts: measured with 60 nodes, and so what bounds large grids.
const LOADED_HOST_KIB: u64 = 32;
/// Most generated hosts or requests.
const GENERATED_MAX: u64 = 100_000;
/// Hosts a node when the number of hosts is not given.
const HOSTS_PER_NODE: usize = 4;
/// Fewest and most sites that join under --churn; in between it is half of the nodes.
const NEWCOMERS: (usize, usize) = (2, 50);
/// Longest latency one way: above it the nodes' own limits on answers are what is measured.
const LATENCY_MAX: Duration = Duration::from_secs(5);
/// Entry points at once when not given.
const ENTRY_POINTS: usize = 8;

/// Start a grid of real node processes on loopback, send requests through different nodes, and check every ledger.
#[derive(Debug, clap::Args)]
pub struct GridArgs {
    /// Node processes.
    #[arg(long, default_value_t = 15, value_parser = number(1, NODES_MAX))]
    pub nodes: usize,
    /// Generated hosts [default: 4 a node].
    #[arg(long, value_parser = number(1, GENERATED_MAX), conflicts_with = "grid")]
    hosts: Option<usize>,
    /// Hosts and their occupancy from a kolo-grid/1 file; time 0 of the file is the start of the run.
    #[arg(long, value_name = "GRID.json")]
    grid: Option<PathBuf>,
    /// Requests from a file, one JSON object a line; times are relative to the start of the run.
    #[arg(long, value_name = "REQUESTS.jsonl", conflicts_with_all = ["count", "hosts_per_request", "kind"])]
    requests: Option<PathBuf>,
    /// Generated requests.
    #[arg(long, default_value_t = 40, value_parser = number(1, GENERATED_MAX))]
    count: usize,
    /// Take the first K requests only.
    #[arg(long, value_name = "K", value_parser = number(1, GENERATED_MAX))]
    pub limit: Option<usize>,
    /// Everything random comes from this number, except what the network and the nodes do.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Hosts a generated request asks for.
    #[arg(long, value_name = "N", default_value_t = 5)]
    hosts_per_request: u32,
    /// Kind of the generated requests.
    #[arg(long, value_enum, default_value = "collective")]
    kind: Kind,
    /// Requests submitted at the same moment, each through another node [default: 8, at most one a node].
    #[arg(long, value_name = "K", value_parser = number(1, NODES_MAX), conflicts_with = "in_order")]
    entry_points: Option<usize>,
    /// Submit one request at a time.
    #[arg(long)]
    in_order: bool,
    /// Generated hosts have nothing reserved at first.
    #[arg(long, conflicts_with = "grid")]
    free: bool,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value = "table")]
    pub output: OutputForm,
    /// List every request that is not reserved, with the reason.
    #[arg(long)]
    pub reasons: bool,
    /// Write the result here as well, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots here: one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Put the log files of the nodes here and keep them.
    #[arg(long, value_name = "DIR")]
    pub keep_logs: Option<PathBuf>,
    /// The `kolo` binary [default: the one beside this binary].
    #[arg(long, value_name = "PATH")]
    pub kolo: Option<PathBuf>,
    /// Least time between two gossip messages of a node. Short runs want news soon; many nodes under a high --rate on few
    /// processors want it seldom.
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "200ms")]
    pub gossip: Duration,
    /// All nodes in one process, each complete, over channels inside it instead of TCP.
    #[arg(long, conflicts_with_all = ["kill", "partition", "hostile", "churn", "latency", "loss"])]
    pub in_process: bool,
    /// A grid of members only: the first site founds it, every other one is invited and joins.
    #[arg(long, conflicts_with_all = ["in_process", "hostile"])]
    pub closed: bool,
    /// Time that everything takes from node to node, one way.
    #[arg(long, value_name = "DURATION", value_parser = duration::within(Duration::ZERO..=LATENCY_MAX),
        conflicts_with_all = ["partition", "hostile"])]
    latency: Option<Duration>,
    /// Share of what nodes send each other that is lost, and so arrives only after a retransmission.
    #[arg(long, value_name = "PERCENT", value_parser = wan::share, conflicts_with_all = ["partition", "hostile"])]
    loss: Option<f64>,
    #[command(flatten)]
    experiment: ExperimentFlags,
}

impl GridArgs {
    /// Checks what single flags cannot show.
    pub fn check(&self) -> anyhow::Result<Experiment> {
        let experiment = self.experiment.check(self.nodes)?;
        if let Some(hosts) = self.hosts.filter(|hosts| *hosts < self.nodes) {
            bail!(BadUsage::new(format!("--hosts: expected {} or more, one a node, got {hosts}", self.nodes)));
        }
        if let Some(asked) = self.entry_points.filter(|asked| *asked > self.nodes) {
            bail!(BadUsage::new(format!("--entry-points: expected 1 to {}, got {asked}", self.nodes)));
        }
        let loaded_hosts = match self.host_source() {
            HostSource::Generated { hosts, free: false } => hosts,
            HostSource::Generated { .. } | HostSource::File(_) => 0,
        };
        if let Some(available_mib) = usage::available_mib() {
            let nodes = self.nodes + self.newcomers(&experiment);
            has_memory(nodes, self.in_process, loaded_hosts, available_mib)?;
        }
        Ok(experiment)
    }

    /// Sites that may join while requests come, beside the nodes.
    pub fn newcomers(&self, experiment: &Experiment) -> usize {
        let joins = matches!(experiment, Experiment::Open { churn: true, .. });
        if joins { (self.nodes / 2).clamp(NEWCOMERS.0, NEWCOMERS.1) } else { 0 }
    }

    /// The hosts to take.
    pub fn host_source(&self) -> HostSource<'_> {
        let hosts = self.hosts.unwrap_or(self.nodes * HOSTS_PER_NODE);
        self.grid.as_deref().map_or(HostSource::Generated { hosts, free: self.free }, HostSource::File)
    }

    /// The requests to take.
    pub fn request_source(&self) -> RequestSource<'_> {
        let GridArgs { count, hosts_per_request, kind, .. } = *self;
        let generated = RequestSource::Generated { count, hosts_per_request, kind };
        self.requests.as_deref().map_or(generated, RequestSource::File)
    }

    /// Requests submitted at the same moment.
    pub fn at_once(&self) -> usize {
        if self.in_order { 1 } else { self.entry_points.unwrap_or(ENTRY_POINTS.min(self.nodes)) }
    }

    /// How far apart the nodes are, where that is not as near as one machine is.
    pub fn distance(&self) -> Option<Distance> {
        let (latency, loss) = (self.latency.unwrap_or_default(), self.loss.unwrap_or_default());
        (self.latency.is_some() || self.loss.is_some()).then_some(Distance { latency, loss })
    }

    /// How eagerly nodes ask for schedules, where that is not their own choice.
    pub fn asking(&self) -> Option<Asking> {
        if self.in_process { Asking::in_process(self.nodes) } else { None }
    }

    /// The conditions of the run, where they are others than processes near each other, in words.
    pub fn conditions(&self, experiment: &Experiment) -> Vec<String> {
        let churns = matches!(experiment, Experiment::Open { churn: true, .. });
        let said = |holds: bool, words: &str| holds.then(|| words.to_owned());
        let far = self.distance().map(|Distance { latency, loss }| {
            format!("{} ms from node to node, {} % of the segments lost", latency.as_millis(), loss * 100.0)
        });
        let all = [
            said(self.in_process, "all nodes in one process"),
            self.asking().map(|asking| asking.words()),
            said(self.closed, "members only"),
            far,
            said(churns, "nodes leave, crash and come back, and new sites join"),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Fails when so many nodes do not fit into memory, of whose hosts so many have generated occupancy.
fn has_memory(nodes: usize, in_process: bool, loaded_hosts: usize, available_mib: u64) -> anyhow::Result<()> {
    let (node_mib, how) =
        if in_process { (IN_PROCESS_MIB, "in one process") } else { (PROCESS_MIB, "in processes of their own") };
    let schedules_mib = loaded_hosts as u64 * LOADED_HOST_KIB / 1024;
    let needed_mib = nodes as u64 * (node_mib + schedules_mib);
    let hint = match (schedules_mib > node_mib, in_process) {
        (true, _) => ", or --free, or fewer --hosts: every node knows the occupancy of all hosts",
        (false, true) => "",
        (false, false) => ", or --in-process",
    };
    if needed_mib > available_mib {
        let need = format!("{nodes} nodes {how} need about {needed_mib} MiB, and {available_mib} MiB are available");
        bail!(BadUsage::new(format!("--nodes: {need}: take fewer{hint}")));
    }
    Ok(())
}

/// The `kolo` binary that was asked for, or the one beside this binary.
pub fn find_kolo(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    let beside =
        || std::env::current_exe().map(|own| own.with_file_name(format!("kolo{}", std::env::consts::EXE_SUFFIX)));
    let path = asked.map_or_else(beside, |asked| Ok(asked.to_owned()));
    let path = path.context(BadUsage::new("--kolo: the place of this binary is unknown: say where kolo is"))?;
    if !path.is_file() {
        let hint = "build it with `cargo build -p node`, or say where it is";
        bail!(BadUsage::new(format!("--kolo: {} is no file: {hint}", path.display())));
    }
    Ok(path)
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

    fn check(flags: &str) -> Result<(GridArgs, Experiment), String> {
        let cli = Cli::try_parse_from(["x"].into_iter().chain(flags.split_whitespace()));
        let args = cli.map_err(|error| error.to_string())?.args;
        let experiment = args.check().map_err(|error| error.to_string())?;
        Ok((args, experiment))
    }

    #[test]
    fn defaults_follow_the_number_of_nodes() {
        let (args, _) = check("--nodes 20").unwrap();
        assert!(matches!(args.host_source(), HostSource::Generated { hosts: 80, free: false }));
        assert_eq!(args.at_once(), 8);
        assert_eq!(check("--nodes 3").unwrap().0.at_once(), 3);
        assert_eq!(check("--in-order").unwrap().0.at_once(), 1);
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
        assert!(refused(0).ends_with("14999 MiB are available: take fewer"), "{}", refused(0));
        assert!(refused(4000).contains("140000 MiB") && refused(4000).contains("--free"), "{}", refused(4000));
    }

    #[test]
    fn distances_and_searches_have_defaults() {
        let (args, experiment) = check("--loss 1%").unwrap();
        assert_eq!(args.distance(), Some(Distance { latency: Duration::ZERO, loss: 0.01 }));
        assert_eq!(args.conditions(&experiment), ["0 ms from node to node, 1 % of the segments lost"]);
        let (args, experiment) = check("--closed --churn --rate 5 --duration 5s --nodes 20").unwrap();
        assert_eq!((args.newcomers(&experiment), args.conditions(&experiment).len()), (10, 2));
        assert_eq!(check("").unwrap().0.distance(), None);
        let (duration, p99) = (Duration::from_secs(10), Duration::from_millis(250));
        assert_eq!(check("--find-rate").unwrap().1, Experiment::FindRate { first: 10.0, duration, p99 });
    }

    #[test]
    fn bad_flags_are_named() {
        for (flags, expected) in [
            ("--nodes 0", "'--nodes <NODES>': 0 is not in 1..=1000"),
            ("--nodes 15 --hosts 14", "--hosts: expected 15 or more"),
            ("--count 0", "--count"),
            ("--limit 0", "--limit"),
            ("--entry-points 16", "--entry-points: expected 1 to 15, got 16"),
            ("--entry-points 2 --in-order", "--in-order"),
            ("--grid g.json --hosts 5", "--hosts"),
            ("--requests r.jsonl --count 5", "--count"),
            ("--gossip 200", "'--gossip <DURATION>': expected a duration with its unit"),
            ("--kill 0", "'--kill <K>': 0 is not in 1..=100000"),
            ("--kill 5 --nodes 1", "--nodes: expected 2 or more"),
            ("--kill 5 --in-order", "--in-order"),
            ("--latency 40", "'--latency <DURATION>': expected a duration with its unit"),
            ("--latency 6s", "expected a duration from 0ns to 5s"),
            ("--loss 1", "'--loss <PERCENT>': expected 0% to 50%"),
            ("--loss 1% --in-process", "--in-process"),
            ("--closed --hostile 1", "--hostile"),
            ("--in-process --kill 3", "--kill"),
            ("--partition 1s --latency 40ms", "--latency"),
            ("--find-rate --churn --rate 5", "--find-rate"),
            ("--rate 0 --duration 5s", "'--rate <R>': expected 0.01 to 10000"),
            ("--rate 5", "--rate needs --duration"),
            ("--p99 250ms", "--find-rate"),
        ] {
            let error = check(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
