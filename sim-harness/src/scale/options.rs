//! Flags of `kolo-sim scale`, and the settings of each run that they ask for.
//!
//! Invariant: what cannot be simulated is bad usage, found before anything runs. Limits, intervals, patience and time-outs
//! are the defaults of a node, from the same code; only what a flag names differs.

use std::{path::PathBuf, time::Duration};

use broker::time::{Now, Time};
use clap::{Args, builder::RangedU64ValueParser, value_parser};
use discovery::{GridId, Intervals, Limits, SetUpError, gossip_config};
use libp2p::gossipsub;
use sim_kit::{duration, print::OutputForm};

use super::{chance::within, geography::NetworkKind};
use crate::engine::{Moment, SECOND_US};

/// Most sites.
pub const SITES_MAX: usize = 20_000;
/// Most hosts of a site, as in the real grid.
pub const HOSTS_PER_SITE_MAX: usize = discovery::wire::check::HOSTS_PER_SITE_MAX;
/// Most shards: the head of a hash, which names them, is one byte.
const SHARDS_MAX: usize = 256;
/// Longest run.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Longest write, and longest wait for the next message.
const WAIT_MAX: Duration = HOUR;
/// When runs begin on every clock of the simulation: late enough that nodes can have learnt something before.
pub const BEGIN: Moment = Moment(10_000 * SECOND_US);
/// The time that rates are given for.
pub const HOUR: Duration = Duration::from_secs(3_600);

/// What clocks show that are right, as all are here.
pub fn clocks(at: Moment) -> Now {
    Now { monotonic: at.millis(), utc: Time(at.second()) }
}

/// Simulate discovery and negotiation of large grids in virtual time: the load of a node, and what users get.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Sites; several sizes are run one after another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["100", "1000", "10000"], value_parser = up_to(SITES_MAX))]
    pub sites: Vec<usize>,
    /// Shards that gossip is split into; several are run one after another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["1", "16", "64"], value_parser = up_to(SHARDS_MAX))]
    pub shards: Vec<usize>,
    /// Hosts of a site.
    #[arg(long, value_name = "N", default_value = "4", value_parser = up_to(HOSTS_PER_SITE_MAX))]
    pub hosts_per_site: usize,
    /// Requests an hour for each site, at random moments through random entry points.
    #[arg(long, value_name = "R", default_value = "3.6", value_parser = parse_rate)]
    pub rate: f64,
    /// What holds for every run.
    #[command(flatten)]
    pub run: RunArgs,
    /// Repeat the run of a real grid whose result is in this file (`kolo-sim grid --free --output json`), and print how the
    /// two differ; sites, hosts, requests and seed are taken from it.
    #[arg(long, value_name = "GRID_RESULT.json", conflicts_with_all = ["sites", "shards", "hosts_per_site", "rate", "churn"])]
    pub compare: Option<PathBuf>,
    /// With --compare: requests that were submitted at the same moment.
    #[arg(long, value_name = "K", default_value = "8", requires = "compare", value_parser = up_to(SITES_MAX))]
    pub entry_points: usize,
    /// Write a report here: one self-contained page.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value_t = OutputForm::Table)]
    pub output: OutputForm,
}

/// The flags that hold for every run.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Hosts that a node wants to know; it takes part in as many shards as give it so many.
    #[arg(long, value_name = "N", default_value = "2500", value_parser = up_to(SITES_MAX * HOSTS_PER_SITE_MAX))]
    pub view_hosts: usize,
    /// Virtual time to simulate.
    #[arg(long, default_value = "1h", value_parser = duration::within(Duration::from_micros(1)..=DURATION_MAX))]
    pub duration: Duration,
    /// Hosts that a request asks for.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub hosts_per_request: u32,
    /// Of a hundred sites, how many stop within an hour and come back later.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = value_parser!(u64).range(..=1_000))]
    pub churn: u64,
    /// The hosts of a site are one class: alike, named so, and bound late.
    #[arg(long)]
    pub alike: bool,
    /// Requests take hosts whole.
    #[arg(long)]
    pub whole: bool,
    /// What lies between the sites.
    #[arg(long, value_enum, default_value_t = NetworkKind::Wan)]
    pub network: NetworkKind,
    /// Of a million frames, how many are lost and sent again.
    #[arg(long, value_name = "PPM", default_value_t = 1_000, value_parser = value_parser!(u64).range(..=200_000))]
    pub loss: u64,
    /// How long a write takes until it is on disk.
    #[arg(long, value_name = "DURATION", default_value = "4ms", value_parser = duration::within(Duration::ZERO..=WAIT_MAX))]
    pub disk: Duration,
    /// Least time between two gossip messages with schedule changes of a site [default: a node's].
    #[arg(long, value_name = "DURATION", value_parser = duration::within(Duration::ZERO..=WAIT_MAX))]
    pub gossip: Option<Duration>,
    /// The start of all random draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn up_to(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most as u64)
}

/// From a tenth of a request an hour to two requests a second for each site.
fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=7_200.0).contains(rate));
    rate.ok_or_else(|| "expected 0.1 to 7200 requests an hour for each site".to_owned())
}

impl ScaleArgs {
    /// One run for each size and number of shards, the small ones first.
    ///
    /// # Errors
    /// [`SetUpError`] when no node could start.
    pub fn plans(&self) -> Result<Vec<Settings>, SetUpError> {
        let each = self.sites.iter().flat_map(|sites| self.shards.iter().map(|shards| (*sites, *shards)));
        each.map(|(sites, shards)| {
            let pace = Pace::Open { per_second: self.rate * sites as f64 / HOUR.as_secs_f64() };
            Ok(Settings { shards, ..Settings::new(sites, sites * self.hosts_per_site, pace, self.run.clone())? })
        })
        .collect()
    }
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At random moments through random entry points, so many a second of the whole grid, until the run ends.
    Open { per_second: f64 },
    /// One alone, then `at_once` at the same moment through different entry points, in turn, `requests` in all; when all of a
    /// round are settled, the next.
    Rounds { at_once: usize, requests: usize },
}

/// What one run is about.
#[derive(Debug, Clone)]
pub struct Settings {
    pub sites: usize,
    /// Hosts of all sites together, at least one each.
    pub hosts: usize,
    /// Shards that gossip is split into; 1 is no split.
    pub shards: usize,
    pub pace: Pace,
    pub run: RunArgs,
    pub grid: GridId,
    /// Sizes of a node.
    pub limits: Limits,
    /// Times of a node.
    pub intervals: Intervals,
    /// The gossip of a node.
    pub mesh: gossipsub::Config,
}

impl Settings {
    /// A grid without shards.
    ///
    /// # Errors
    /// [`SetUpError`] when no node could start.
    pub fn new(sites: usize, hosts: usize, pace: Pace, run: RunArgs) -> Result<Settings, SetUpError> {
        let grid = GridId::new("kolo").expect("four lower-case letters are a grid id");
        let mut intervals = Intervals::default();
        intervals.gossip = run.gossip.unwrap_or(intervals.gossip);
        let mesh = gossip_config(&grid)?;
        Ok(Settings { sites, hosts, shards: 1, pace, run, grid, limits: Limits::default(), intervals, mesh })
    }

    /// In how many shards a node takes part: enough for the hosts that it wants to know.
    pub fn subscriptions(&self) -> usize {
        (self.run.view_hosts * self.shards).div_ceil(self.hosts.max(1)).clamp(1, self.shards)
    }

    /// Sites of the shards that a node takes part in.
    pub fn sites_in_reach(&self) -> usize {
        (self.sites * self.subscriptions() / self.shards).max(1)
    }

    /// Sites whose schedules a node knows.
    pub fn view_sites(&self) -> usize {
        let in_reach = (self.sites * self.subscriptions()).div_ceil(self.shards);
        in_reach.min(self.limits.sites_max)
    }

    /// How long an advert is believed.
    pub fn advert_time_to_live(&self) -> Duration {
        self.intervals.advert_time_to_live_among(self.view_sites())
    }

    /// How long a node lets what it has missed come by itself.
    pub fn missed_wait(&self, drawn: u64) -> Duration {
        self.intervals.repair_patience + within(self.intervals.repair_jitter, drawn)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ScaleArgs,
    }

    fn parse(flags: &str) -> Result<ScaleArgs, String> {
        let words = format!("x {flags}");
        Cli::try_parse_from(words.split_whitespace()).map(|cli| cli.args).map_err(|error| error.to_string())
    }

    /// What the flags give when there is none.
    impl Default for RunArgs {
        fn default() -> RunArgs {
            parse("").unwrap().run
        }
    }

    #[test]
    fn bad_flags_are_named() {
        let defaults = parse("").unwrap();
        assert_eq!((defaults.run.duration, defaults.sites), (HOUR, vec![100, 1_000, 10_000]));
        for (flags, expected) in [
            ("--sites 0", "'--sites <N>'"),
            ("--sites 100,30000", "30000 is not in 1..=20000"),
            ("--shards 257", "257 is not in 1..=256"),
            ("--hosts-per-site 0", "--hosts-per-site"),
            ("--rate 0", "--rate <R>': expected 0.1"),
            ("--rate NaN", "--rate <R>': expected 0.1"),
            ("--duration 1", "--duration"),
            ("--duration 25h", "--duration"),
            ("--loss 300000", "--loss"),
            ("--compare a.json --sites 5", "--sites"),
            ("--compare a.json --churn 5", "--churn"),
            ("--entry-points 5", "--compare"),
        ] {
            let error = parse(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
