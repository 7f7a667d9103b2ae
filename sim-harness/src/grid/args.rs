//! Flags of `kolo-sim grid`.
//!
//! Invariant: clap checks each flag by itself, [`GridArgs::check`] what they are together; what only a file can show is checked
//! where the file is read.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::builder::RangedU64ValueParser;
use sim_kit::{duration, error::BadUsage, print::OutputForm, usage};

use super::{
    load::{
        search::{RATE_MAX, RATE_MIN},
        workload::{HostSource, RequestSource},
    },
    nodes::{
        launch::Asking,
        wan::{self, Distance},
    },
};
use crate::hostile::Attack;

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
/// Requests a second under attack when not given: what the grid carries easily.
const HOSTILE_RATE: f64 = 10.0;
/// How long an attack lasts when not given.
const HOSTILE_DURATION: Duration = Duration::from_secs(20);
/// Requests a second that a search begins with when not given.
const FIND_FIRST: f64 = 10.0;
/// Most Mbit/s of a flag.
const LINK_MAX: u64 = 1_000_000_000;
/// How long each rate is held when not given.
const FIND_DURATION: Duration = Duration::from_secs(10);
/// Longest duration that a flag asks for.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// A parser of whole numbers between two bounds, both included.
fn number(min: u64, max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(min..=max)
}

/// Reads a duration longer than nothing and at most a day.
fn time(text: &str) -> Result<Duration, String> {
    duration::within(Duration::from_millis(1)..=DURATION_MAX)(text)
}

/// Reads a rate.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("expected {RATE_MIN} to {RATE_MAX} requests a second"))
}

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
    #[arg(long, value_name = "REQUESTS.jsonl", conflicts_with_all = ["count", "hosts_per_request"])]
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
    /// Kill a random node (SIGKILL) K times while users submit and cancel, and start it again soon after.
    #[arg(long, value_name = "K", value_parser = number(1, 100_000), conflicts_with_all = ["in_order"])]
    kill: Option<usize>,
    /// Cut half of the nodes off from the others for this long while users submit and cancel, then join them again.
    #[arg(long, value_name = "DURATION", value_parser = time, conflicts_with_all = ["in_order", "kill"])]
    partition: Option<Duration>,
    /// Let N hostile peers attack at full speed, after the same load without them, and compare.
    #[arg(long, value_name = "N", value_parser = number(1, 64), conflicts_with_all = ["in_order", "kill", "partition"])]
    hostile: Option<usize>,
    /// Let the hostile peers attack in this way only; may be repeated [default: in every way].
    #[arg(long, value_name = "KIND", requires = "hostile")]
    pub attack: Vec<Attack>,
    /// Requests a second, at random moments through random nodes (with --duration; with --hostile 10 by default).
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["in_order", "kill", "partition"])]
    rate: Option<f64>,
    /// How long requests come at --rate (with --hostile: each time, 20s by default).
    #[arg(long, value_name = "DURATION", value_parser = time, conflicts_with_all = ["in_order", "kill", "partition"])]
    duration: Option<Duration>,
    /// While requests come at --rate, nodes leave, crash and come back, and new sites join.
    #[arg(long, requires = "rate", conflicts_with_all = ["hostile"])]
    churn: bool,
    /// Look for the highest rate that the grid keeps up with: every request answered, and the 99th percentile of the
    /// latency below --p99. Begins at --rate (10 by default), each step for --duration (10s by default).
    #[arg(long, conflicts_with_all = ["in_order", "kill", "partition", "hostile", "churn"])]
    find_rate: bool,
    /// Send all requests at the same moment, each by itself through the next node; then, when the grid is free again, hand them to
    /// one node as a batch (kolo batch submit), and compare.
    #[arg(long, conflicts_with_all = ["in_order", "entry_points", "kill", "partition", "hostile", "rate", "duration", "churn", "find_rate"])]
    batch: bool,
    /// Every second generated request has traffic: so much goes from each host to all others, in Mbit/s.
    #[arg(long, value_name = "MBPS", value_parser = clap::value_parser!(u64).range(1..=LINK_MAX), conflicts_with_all = ["requests", "hostile", "batch"])]
    pub traffic: Option<u64>,
    /// What the uplink of each site carries, in Mbit/s.
    #[arg(long, value_name = "MBPS", value_parser = clap::value_parser!(u64).range(1..=LINK_MAX))]
    pub uplink: Option<u64>,
    /// What the 99th percentile has to stay below with --find-rate.
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "250ms", requires = "find_rate")]
    p99: Duration,
}

/// What happens while the grid is under load; a run has exactly one, and flags that belong to another one are refused. (Files with
/// steps are [`crate::scenario`]'s.)
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Experiment {
    /// Requests in rounds, nothing else.
    Rounds,
    /// All at once, each by itself, and as a batch.
    Batch,
    /// Nodes are killed so often, and come back.
    Crashes { kills: usize },
    /// The same load without attackers and with them, `duration` each time.
    Hostile { attackers: usize, per_second: f64, duration: Duration },
    /// Requests come whatever becomes of the ones before; under `churn` nodes leave, crash and come back, and new ones join.
    Open { per_second: f64, duration: Duration, churn: bool },
    /// Loads of `duration` at several rates, to find the highest one at which the 99th percentile stays below `p99`.
    FindRate { first: f64, duration: Duration, p99: Duration },
    /// The grid is cut in two for so long, and healed.
    Partition { cut: Duration },
}

impl GridArgs {
    /// Checks what single flags cannot show.
    pub fn check(&self) -> anyhow::Result<Experiment> {
        let experiment = self.experiment()?;
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
            has_memory(self.nodes + self.newcomers(), self.in_process, loaded_hosts, available_mib)?;
        }
        Ok(experiment)
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        if self.nodes < 2 && (self.kill.is_some() || self.partition.is_some() || self.churn) {
            bail!(BadUsage::new(format!("--nodes: expected 2 or more, got {}", self.nodes)));
        }
        Ok(match (self.kill, self.partition, self.hostile, self.rate, self.duration) {
            (Some(kills), ..) => Experiment::Crashes { kills },
            (_, Some(cut), ..) => Experiment::Partition { cut },
            (_, _, Some(attackers), rate, duration) => Experiment::Hostile {
                attackers,
                per_second: rate.unwrap_or(HOSTILE_RATE),
                duration: duration.unwrap_or(HOSTILE_DURATION),
            },
            (.., rate, duration) if self.find_rate => Experiment::FindRate {
                first: rate.unwrap_or(FIND_FIRST),
                duration: duration.unwrap_or(FIND_DURATION),
                p99: self.p99,
            },
            (.., Some(per_second), Some(duration)) => Experiment::Open { per_second, duration, churn: self.churn },
            (.., None, None) if self.batch => Experiment::Batch,
            (.., None, None) => Experiment::Rounds,
            (.., Some(_), None) => bail!(BadUsage::new("--rate needs --duration")),
            (.., None, Some(_)) => bail!(BadUsage::new("--duration needs --rate")),
        })
    }

    /// Sites that may join while requests come, beside the nodes.
    pub fn newcomers(&self) -> usize {
        if self.churn { (self.nodes / 2).clamp(NEWCOMERS.0, NEWCOMERS.1) } else { 0 }
    }

    /// The hosts to take.
    pub fn host_source(&self) -> HostSource<'_> {
        let hosts = self.hosts.unwrap_or(self.nodes * HOSTS_PER_NODE);
        self.grid.as_deref().map_or(HostSource::Generated { hosts, free: self.free }, HostSource::File)
    }

    /// The requests to take.
    pub fn request_source(&self) -> RequestSource<'_> {
        let generated = RequestSource::Generated { count: self.count, hosts_per_request: self.hosts_per_request };
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
    pub fn conditions(&self) -> Vec<String> {
        let mut conditions = Vec::new();
        if self.in_process {
            conditions.push("all nodes in one process".to_owned());
        }
        if let Some(Asking { recheck, when_met }) = self.asking() {
            let asks = format!("each asks {when_met} sites for their schedules when it meets them");
            conditions.push(format!("{asks}, and checks one every {} s", recheck.as_secs()));
        }
        if self.closed {
            conditions.push("members only".to_owned());
        }
        if let Some(Distance { latency, loss }) = self.distance() {
            let latency = latency.as_millis();
            conditions.push(format!("{latency} ms from node to node, {} % of the segments lost", loss * 100.0));
        }
        if let Some(traffic) = self.traffic {
            conditions.push(format!("every second request with {traffic} Mbit/s from each host"));
        }
        if let Some(uplink) = self.uplink {
            conditions.push(format!("uplinks of {uplink} Mbit/s"));
        }
        if self.churn {
            conditions.push("nodes leave, crash and come back, and new sites join".to_owned());
        }
        conditions
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
        let (args, _) = check("--loss 1%").unwrap();
        assert_eq!(args.distance(), Some(Distance { latency: Duration::ZERO, loss: 0.01 }));
        assert_eq!(args.conditions(), ["0 ms from node to node, 1 % of the segments lost"]);
        let (args, _) = check("--closed --churn --rate 5 --duration 5s --nodes 20").unwrap();
        assert_eq!((args.newcomers(), args.conditions().len()), (10, 2));
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
            ("--batch --kill 3", "--kill"),
        ] {
            let error = check(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
