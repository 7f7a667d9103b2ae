//! The figures of a run: what is counted while it goes on, as it is printed (samples as percentiles, shares rounded), and what
//! is worked out at its end.
//!
//! Invariant: every request that was submitted is counted once at the end: reserved, rejected, failed or still open.

use std::time::Duration;

use broker::protocol::{RefusalReason, SiteAnswer};
use serde::{Serialize, Serializer};
use sim_kit::stats::{Percentiles, percentiles};

use super::estimate::Memory;

/// How long a change had been unseen when a hold arrived: the upper ends, in milliseconds, of all classes but the first
/// (nothing unseen) and the last.
const LAG_MS: [u64; 4] = [500, 2_000, 10_000, 60_000];

/// Something of something, as a fraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    pub part: u64,
    pub whole: u64,
}

impl Share {
    /// One more, in the part or outside.
    pub fn count(&mut self, is_in_part: bool) {
        self.part += u64::from(is_in_part);
        self.whole += 1;
    }

    /// The fraction; of nothing it is none.
    pub fn value(self) -> f64 {
        rounded(self.part as f64 / self.whole.max(1) as f64)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.value())
    }
}

/// To five decimals.
pub fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

fn as_percentiles<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
    percentiles(values).serialize(to)
}

/// Holds whose plans rested on equally old schedules.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Holds {
    /// For how long a change had been unseen, in words.
    pub unseen_for: String,
    /// Holds that were answered.
    pub holds: u64,
    /// Of these, refused because the amounts were reserved.
    pub taken_by_reservations: u64,
    /// Of these, refused because the amounts were held for another request, which no view can show.
    pub taken_by_holds: u64,
    /// Share that was refused.
    pub conflict_rate: Share,
}

/// What is counted while a run goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Requests submitted.
    pub requests: u64,
    pub reserved: u64,
    /// Requests without a placement.
    pub rejected: u64,
    /// Requests given up.
    pub failed: u64,
    /// Attempts of all settled requests.
    pub attempts: u64,
    /// Attempts that a site refused because the amounts were taken.
    pub conflicts: u64,
    /// Schedules fetched because a change was missed, by all nodes.
    pub repairs: u64,
    /// Nodes that crashed.
    pub crashes: u64,
    /// Sites that left in order.
    pub leaves: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Of the requests that were settled, those reserved at the first attempt.
    pub first_try_share: Share,
    /// Of the holds, those refused because the amounts were taken.
    pub conflict_rate: Share,
    /// Holds by how old the schedules were that they were planned on; the first class rested on what is true.
    pub staleness: Vec<Holds>,
    /// Of the hosts that plans could choose from, those whose site had changed since.
    pub stale_hosts_share: Share,
    /// How long ago schedules were confirmed that were planned on without asking.
    #[serde(serialize_with = "as_percentiles")]
    pub view_age_ms: Vec<f64>,
    /// Schedules fetched because they were too old to plan on, a request.
    pub fetches_per_request: Share,
    /// From submission to the confirmation.
    #[serde(serialize_with = "as_percentiles")]
    pub latency_ms: Vec<f64>,
    /// The same in round trips to the farthest site of the reservation, where that is another one.
    #[serde(serialize_with = "as_percentiles")]
    pub latency_round_trips: Vec<f64>,
    /// In rounds: from the submission of a request that is alone until every node knew of its change.
    #[serde(serialize_with = "as_percentiles")]
    pub spread_ms: Vec<f64>,
    /// Until a gossip message reaches a node.
    #[serde(serialize_with = "as_percentiles")]
    pub gossip_delay_ms: Vec<f64>,
    /// Until it has reached the last node.
    #[serde(serialize_with = "as_percentiles")]
    pub gossip_ms: Vec<f64>,
    /// Of the nodes that a message should reach, those that it does not.
    pub gossip_missed_share: Share,
    /// Gossip messages published.
    #[serde(skip)]
    pub gossip_published: u64,
}

impl Counts {
    /// Nothing yet.
    pub fn new() -> Counts {
        let words = |ms: u64| if ms < 1000 { format!("{ms} ms") } else { format!("{} s", ms / 1000) };
        let classes = LAG_MS.iter().map(|end| format!("up to {}", words(*end)));
        let last = format!("over {}", words(LAG_MS[LAG_MS.len() - 1]));
        let names = std::iter::once("nothing unseen".to_owned()).chain(classes).chain([last]);
        let staleness = names.map(|unseen_for| Holds { unseen_for, ..Holds::default() }).collect();
        Counts { staleness, ..Counts::default() }
    }

    /// Requests that were submitted and are not settled.
    pub fn still_open(&self) -> u64 {
        self.requests - self.reserved - self.rejected - self.failed
    }

    /// Counts the answer to a hold whose plan had not seen a change for so long (none: nothing was unseen), unless it was
    /// refused for something else than its amounts.
    pub fn count_hold(&mut self, unseen: Option<Duration>, answer: &SiteAnswer) {
        let class = unseen.map_or(0, |lag| 1 + LAG_MS.partition_point(|end| u128::from(*end) <= lag.as_millis()));
        let holds = &mut self.staleness[class];
        let is_taken = match answer {
            SiteAnswer::Refused(refusal) => {
                match refusal.reason {
                    RefusalReason::NotEnough { .. } => holds.taken_by_reservations += 1,
                    RefusalReason::HeldByAnother { .. } => holds.taken_by_holds += 1,
                    _ => return,
                }
                true
            }
            _ => false,
        };
        holds.holds += 1;
        holds.conflict_rate.count(is_taken);
        self.conflict_rate.count(is_taken);
    }
}

/// Traffic of one kind: the middle, the tail and the worst of all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindFigures {
    /// What it is for.
    pub kind: &'static str,
    pub received_bytes_per_s: Option<Percentiles>,
    pub sent_bytes_per_s: Option<Percentiles>,
    /// Messages received.
    pub messages_per_s: Option<Percentiles>,
    /// Of the bytes sent by all nodes, those that were lost.
    pub lost_share: Share,
}

/// The figures of one run: what `--output json` prints for it. Everything but the wall time follows from the settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub sites: usize,
    pub hosts: usize,
    pub shards: usize,
    /// Shards that a node takes part in.
    pub subscribed_shards: usize,
    /// Sites that a node knows.
    pub view_sites: usize,
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Requests not settled when the run ended.
    pub still_open: u64,
    /// Neighbours of a node in the mesh of a topic.
    pub mesh_degree: f64,
    /// Open connections of a node.
    pub connections: f64,
    /// What goes through a node.
    pub traffic: Vec<KindFigures>,
    /// Memory of a node.
    pub memory: Memory,
    /// Real time that the simulation took, in seconds.
    pub wall_s: f64,
}

#[cfg(test)]
mod tests {
    use broker::protocol::LedgerVersion;

    use super::*;

    #[test]
    fn holds_are_sorted_by_what_their_plans_had_not_seen() {
        let mut counts = Counts::new();
        let answer = SiteAnswer::Confirmed { places: Vec::new(), version: LedgerVersion::default(), receipt: None };
        let lags = [None, Some(0), Some(499), Some(500), Some(60_000)].map(|lag| lag.map(Duration::from_millis));
        lags.into_iter().for_each(|lag| counts.count_hold(lag, &answer));
        let holds: Vec<_> = counts.staleness.iter().map(|of| (of.unseen_for.as_str(), of.holds)).collect();
        let expected = [("nothing unseen", 1), ("up to 500 ms", 2), ("up to 2 s", 1), ("up to 10 s", 0)];
        assert_eq!(holds, [&expected[..], &[("up to 60 s", 0), ("over 60 s", 1)]].concat());
    }
}
