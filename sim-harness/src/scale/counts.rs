//! What is counted while a simulation runs.
//!
//! Invariant: every request that was submitted is counted once at the end: reserved, rejected, failed or still open.

use std::time::Duration;

use serde::Serialize;

/// How long a change had been unseen when a hold arrived: the upper ends, in milliseconds, of all classes but the first
/// (nothing unseen) and the last.
pub const LAG_MS: [u64; 4] = [500, 2_000, 10_000, 60_000];

/// Holds whose plans rested on equally old schedules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holds {
    /// Holds that were answered.
    pub asked: u64,
    /// Of these, refused because the amounts were taken.
    pub taken: u64,
    /// Of those, taken by a hold that no view can show.
    pub by_holds: u64,
}

/// Totals, as they are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Requests submitted.
    pub requests: u64,
    /// Requests reserved.
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
}

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Totals.
    pub totals: Totals,
    /// Requests reserved at the first attempt.
    pub first_attempt: u64,
    /// From submission to the confirmation.
    pub latency_ms: Vec<f64>,
    /// The same in round trips to the farthest site of the reservation, where that is another one.
    pub round_trips: Vec<f64>,
    /// Holds by how long a change had been unseen; the first class rested on what is true.
    pub holds: [Holds; LAG_MS.len() + 2],
    /// Hosts that plans could choose from.
    pub planned_hosts: u64,
    /// Of these, hosts of sites whose ledger had changed since.
    pub stale_hosts: u64,
    /// How long ago schedules were confirmed that were planned on without asking.
    pub view_age_ms: Vec<f64>,
    /// Schedules fetched because they were too old to plan on.
    pub fetches: u64,
    /// Gossip messages published.
    pub gossip_published: u64,
    /// In rounds: from the submission of a request that is alone until every node knew of its change.
    pub spread_ms: Vec<f64>,
    /// Until a message reaches a node.
    pub gossip_delay_ms: Vec<f64>,
    /// Until it has reached the last one.
    pub gossip_last_ms: Vec<f64>,
    /// Of the spreads worked out: nodes that a message should have reached and did not.
    pub gossip_missed: u64,
    /// All nodes that it should have reached.
    pub gossip_expected: u64,
}

impl Counts {
    /// Counts the answer to a hold whose plan had not seen a change for so long (none: nothing was unseen).
    pub fn count_hold(&mut self, unseen: Option<Duration>, is_taken: bool, by_hold: bool) {
        let class = unseen.map_or(0, |lag| 1 + LAG_MS.partition_point(|end| u128::from(*end) <= lag.as_millis()));
        let holds = &mut self.holds[class];
        holds.asked += 1;
        holds.taken += u64::from(is_taken);
        holds.by_holds += u64::from(by_hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_sorted_by_what_their_plans_had_not_seen() {
        let mut counts = Counts::default();
        for (lag_ms, class) in [(None, 0), (Some(0), 1), (Some(499), 1), (Some(500), 2), (Some(60_000), 5)] {
            let before = counts.holds[class].asked;
            counts.count_hold(lag_ms.map(Duration::from_millis), true, false);
            assert_eq!(counts.holds[class].asked, before + 1, "{lag_ms:?}");
        }
    }
}
