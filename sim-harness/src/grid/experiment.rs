//! What happens to the grid while it is under load: nothing, crashes, a partition, attackers, or only time. (Files with steps are
//! [`crate::scenario`]'s.)
//!
//! Invariant: a run has exactly one experiment; flags that belong to another one are refused.

use std::time::Duration;

use anyhow::bail;
use clap::builder::RangedU64ValueParser;

use super::load::search::{RATE_MAX, RATE_MIN};
use crate::hostile::Attack;
use crate::{duration, error::BadUsage};

/// Requests a second under attack when not given: what the grid carries easily.
const HOSTILE_RATE: f64 = 10.0;
/// How long an attack lasts when not given.
const HOSTILE_DURATION: Duration = Duration::from_secs(20);
/// Requests a second that a search begins with when not given.
const FIND_FIRST: f64 = 10.0;
/// How long each rate is held when not given.
const FIND_DURATION: Duration = Duration::from_secs(10);
/// Longest duration that a flag asks for.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// A parser of whole numbers between two bounds, both included.
pub fn number(min: u64, max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(min..=max)
}

/// Reads a duration longer than nothing and at most a day.
pub fn time(text: &str) -> Result<Duration, String> {
    duration::within(Duration::from_millis(1)..=DURATION_MAX)(text)
}

/// Reads a rate.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("expected {RATE_MIN} to {RATE_MAX} requests a second"))
}

/// Flags that choose an experiment.
#[derive(Debug, Default, clap::Args)]
pub struct ExperimentFlags {
    /// Kill a random node (SIGKILL) K times while users submit and cancel, and start it again soon after.
    #[arg(long, value_name = "K", value_parser = number(1, 100_000), conflicts_with_all = ["in_order"])]
    kill: Option<usize>,
    /// Cut half of the nodes off from the others for this long while users submit and cancel, then join them again.
    #[arg(long, value_name = "DURATION", value_parser = time, conflicts_with_all = ["in_order", "kill"])]
    partition: Option<Duration>,
    /// Let N hostile peers attack at full speed, after the same load without them, and compare.
    #[arg(long, value_name = "N", value_parser = number(1, 64), conflicts_with_all = ["in_order", "kill", "partition"])]
    hostile: Option<usize>,
    /// What the hostile peers do; may be repeated [default: everything].
    #[arg(long, value_name = "ATTACK", requires = "hostile")]
    attack: Vec<Attack>,
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
    /// What the 99th percentile has to stay below with --find-rate.
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "250ms", requires = "find_rate")]
    p99: Duration,
}

/// What happens while the grid is under load.
#[derive(Debug, Clone, PartialEq)]
pub enum Experiment {
    /// Requests in rounds, nothing else.
    Rounds,
    /// Nodes are killed so often, and come back.
    Crashes { kills: usize },
    /// The same load without attackers and with them, `duration` each time. They do everything when no attack is named.
    Hostile { attackers: usize, attacks: Vec<Attack>, per_second: f64, duration: Duration },
    /// Requests come whatever becomes of the ones before; under `churn` nodes leave, crash and come back, and new ones join.
    Open { per_second: f64, duration: Duration, churn: bool },
    /// Loads of `duration` at several rates, to find the highest one at which the 99th percentile stays below `p99`.
    FindRate { first: f64, duration: Duration, p99: Duration },
    /// The grid is cut in two for so long, and healed.
    Partition { cut: Duration },
}

impl ExperimentFlags {
    /// The experiment in a grid of `nodes`.
    pub fn check(&self, nodes: usize) -> anyhow::Result<Experiment> {
        if nodes < 2 && (self.kill.is_some() || self.partition.is_some() || self.churn) {
            bail!(BadUsage::new(format!("--nodes: expected 2 or more, got {nodes}")));
        }
        Ok(match (self.kill, self.partition, self.hostile, self.rate, self.duration) {
            (Some(kills), ..) => Experiment::Crashes { kills },
            (_, Some(cut), ..) => Experiment::Partition { cut },
            (_, _, Some(attackers), rate, duration) => Experiment::Hostile {
                attackers,
                attacks: self.attack.clone(),
                per_second: rate.unwrap_or(HOSTILE_RATE),
                duration: duration.unwrap_or(HOSTILE_DURATION),
            },
            (.., rate, duration) if self.find_rate => Experiment::FindRate {
                first: rate.unwrap_or(FIND_FIRST),
                duration: duration.unwrap_or(FIND_DURATION),
                p99: self.p99,
            },
            (.., Some(per_second), Some(duration)) => Experiment::Open { per_second, duration, churn: self.churn },
            (.., None, None) => Experiment::Rounds,
            (.., Some(_), None) => bail!(BadUsage::new("--rate needs --duration")),
            (.., None, Some(_)) => bail!(BadUsage::new("--duration needs --rate")),
        })
    }
}
