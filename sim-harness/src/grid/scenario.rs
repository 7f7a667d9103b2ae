//! What happens to the grid while it is under load: nothing, crashes, a partition, attackers, or only time. (Files with
//! steps of their own are [`crate::scenario`]'s.)
//!
//! Invariant: a run has exactly one scenario; flags that belong to another one are refused.

use std::time::Duration;

use discovery::hostile::Attack;

use super::{
    args::{NODES_MAX, in_range},
    error::UsageError,
};

/// Most kills in one run.
const KILLS_MAX: usize = 100_000;

/// Most attackers.
const ATTACKERS_MAX: usize = 64;
/// Requests a second under attack when not given: what the grid carries easily.
const HOSTILE_RATE: f64 = 10.0;
/// How long an attack lasts when not given.
const HOSTILE_DURATION: Duration = Duration::from_secs(20);
/// Requests a second that a search begins with when not given.
const FIND_FIRST: f64 = 10.0;
/// How long each rate is tried when not given.
const FIND_DURATION: Duration = Duration::from_secs(10);
/// Fewest requests a second.
pub const RATE_MIN: f64 = 0.01;
/// Most requests a second.
pub const RATE_MAX: f64 = 10_000.0;
/// Longest duration of anything that a flag asks for.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// Flags that choose a scenario.
#[derive(Debug, Default, clap::Args)]
pub struct ScenarioFlags {
    /// Kill a random node (SIGKILL) K times while users submit and cancel, and start it again soon after.
    #[arg(long, value_name = "K", conflicts_with_all = ["in_order"])]
    kill: Option<usize>,
    /// Cut half of the nodes off from the others for this long while users submit and cancel, then join them again.
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["in_order", "kill"])]
    partition: Option<String>,
    /// Let N hostile peers attack at full speed, after the same load without them, and compare.
    #[arg(long, value_name = "N", conflicts_with_all = ["in_order", "kill", "partition"])]
    hostile: Option<usize>,
    /// What the hostile peers do; may be repeated [default: everything].
    #[arg(long, value_name = "ATTACK", requires = "hostile")]
    attack: Vec<Attack>,
    /// Requests a second, at random moments through random nodes (with --duration; with --hostile 10 by default).
    #[arg(long, value_name = "R", conflicts_with_all = ["in_order", "kill", "partition"])]
    rate: Option<f64>,
    /// How long requests come at --rate (with --hostile: each time, 20s by default).
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["in_order", "kill", "partition"])]
    duration: Option<String>,
    /// While requests come at --rate, nodes leave, crash and come back, and new sites join.
    #[arg(long, requires = "rate", conflicts_with_all = ["hostile"])]
    churn: bool,
    /// Look for the highest rate that the grid keeps up with: every request answered, and the 99th percentile of the
    /// latency below --p99. Begins at --rate (10 by default), each step for --duration (10s by default).
    #[arg(long, conflicts_with_all = ["in_order", "kill", "partition", "hostile", "churn"])]
    find_rate: bool,
    /// What the 99th percentile has to stay below with --find-rate.
    #[arg(long, value_name = "DURATION", default_value = "250ms", requires = "find_rate")]
    p99: String,
}

/// What happens while the grid is under load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scenario {
    /// Requests in rounds, nothing else.
    Rounds,
    /// Nodes are killed and come back.
    Crashes {
        /// How often.
        kills: usize,
    },
    /// The same load without attackers and with them.
    Hostile {
        /// How many attackers.
        attackers: usize,
        /// Requests a second.
        per_second: f64,
        /// How long each time.
        duration: Duration,
    },
    /// Requests come whatever becomes of the ones before.
    Open {
        /// Requests a second.
        per_second: f64,
        /// How long.
        duration: Duration,
        /// Whether nodes leave, crash and come back, and new ones join meanwhile.
        churn: bool,
    },
    /// Loads at several rates, to find the highest one that is kept up with.
    FindRate {
        /// Requests a second of the first one.
        first: f64,
        /// How long each lasts.
        duration: Duration,
        /// What the 99th percentile has to stay below.
        p99: Duration,
    },
    /// The grid is cut in two, and healed.
    Partition {
        /// How long the cut lasts.
        cut: Duration,
    },
}

impl ScenarioFlags {
    /// What attackers do; everything when empty.
    pub fn attacks(&self) -> &[Attack] {
        &self.attack
    }

    /// Checks the flags for a grid of `nodes`.
    ///
    /// # Errors
    /// [`UsageError`] naming the flag and what was expected.
    pub fn check(&self, nodes: usize) -> Result<Scenario, UsageError> {
        if let Some(kills) = self.kill {
            in_range("--nodes", nodes, 2, NODES_MAX)?;
            return Ok(Scenario::Crashes { kills: in_range("--kill", kills, 1, KILLS_MAX)? });
        }
        if let Some(text) = &self.partition {
            in_range("--nodes", nodes, 2, NODES_MAX)?;
            return Ok(Scenario::Partition { cut: duration("--partition", text)? });
        }
        let per_second = self.rate.map(rate).transpose()?;
        let duration = self.duration.as_deref().map(|text| duration("--duration", text)).transpose()?;
        if let Some(attackers) = self.hostile {
            return Ok(Scenario::Hostile {
                attackers: in_range("--hostile", attackers, 1, ATTACKERS_MAX)?,
                per_second: per_second.unwrap_or(HOSTILE_RATE),
                duration: duration.unwrap_or(HOSTILE_DURATION),
            });
        }
        if self.find_rate {
            return Ok(Scenario::FindRate {
                first: per_second.unwrap_or(FIND_FIRST),
                duration: duration.unwrap_or(FIND_DURATION),
                p99: self::duration("--p99", &self.p99)?,
            });
        }
        match (per_second, duration) {
            (Some(per_second), Some(duration)) => {
                in_range("--nodes", nodes, if self.churn { 2 } else { 1 }, NODES_MAX)?;
                Ok(Scenario::Open { per_second, duration, churn: self.churn })
            }
            (None, None) => Ok(Scenario::Rounds),
            (Some(_), None) => Err(UsageError::Missing { flag: "--rate", missing: "--duration" }),
            (None, Some(_)) => Err(UsageError::Missing { flag: "--duration", missing: "--rate" }),
        }
    }
}

/// Checks a rate.
fn rate(per_second: f64) -> Result<f64, UsageError> {
    if (RATE_MIN..=RATE_MAX).contains(&per_second) { Ok(per_second) } else { Err(UsageError::Rate { per_second }) }
}

/// Reads a duration with its unit: a bare number means something else to everybody.
///
/// # Errors
/// [`UsageError::Duration`] naming `flag`.
pub fn duration(flag: &'static str, text: &str) -> Result<Duration, UsageError> {
    parse_duration(text).ok_or_else(|| UsageError::Duration { flag, text: text.to_owned() })
}

/// A duration with its unit, of more than nothing and at most a day.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let total = number.checked_mul(unit_ms).map(Duration::from_millis);
    total.filter(|total| !total.is_zero() && *total <= DURATION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_have_bounds() {
        assert_eq!(duration("--x", "60s").unwrap(), Duration::from_secs(60));
        assert_eq!(duration("--x", "1500ms").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("--x", "2min").unwrap(), Duration::from_secs(120));
        for bad in ["60", "", "s", "0s", "-1s", "1.5s", "1d", "25h", "99999999999999999999s", "18446744073709551615h"] {
            let error = duration("--x", bad).unwrap_err().to_string();
            assert!(error.starts_with("--x: expected a number with a unit"), "{bad}: {error}");
        }
    }
}
