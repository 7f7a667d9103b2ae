//! What a partition showed: whether each half went on, and how soon all agreed again.
//!
//! Invariant: a request counts for a half only when it was both begun and answered while the cut lasted.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::grid::load::{answer::milliseconds, users::Placed};
use crate::grid::nodes::network::side_of;
use crate::stats::{Percentiles, percentiles};

/// Longest time from the healing to agreement.
pub const AGREE_MAX: Duration = Duration::from_secs(30);

/// When a cut began and ended, and when all agreed.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    pub begun: Instant,
    pub healed: Instant,
    /// From the end of the cut until every node knew all ledgers as they were then.
    pub agreed: Duration,
}

/// Figures of a partition.
#[derive(Debug, Clone, Serialize)]
pub struct PartitionFigures {
    /// How long the cut lasted.
    pub cut_ms: f64,
    /// From the end of the cut until every node knew all ledgers as they were then.
    pub agree_after_heal_ms: f64,
    /// What each half did meanwhile.
    pub halves: [HalfFigures; 2],
}

/// What one half did while it was alone.
#[derive(Debug, Clone, Serialize)]
pub struct HalfFigures {
    /// Requests that were begun and answered.
    pub answered: usize,
    /// Those of them that were reserved.
    pub reserved: usize,
    /// From submission to confirmation of these.
    pub latency_ms: Option<Percentiles>,
}

impl PartitionFigures {
    /// Counts what happened while the cut lasted, in a grid of `nodes`.
    pub fn new(cut: &Cut, placed: &[Placed], nodes: usize) -> PartitionFigures {
        let half = |side: usize| {
            let of_side = || {
                placed.iter().filter(move |one| {
                    side_of(one.entry_point, nodes) == side && one.due >= cut.begun && one.ended < cut.healed
                })
            };
            let latencies: Vec<f64> = of_side().filter_map(|one| one.answer.latency_ms()).collect();
            HalfFigures { answered: of_side().count(), reserved: latencies.len(), latency_ms: percentiles(&latencies) }
        };
        PartitionFigures {
            cut_ms: milliseconds(cut.healed - cut.begun),
            agree_after_heal_ms: milliseconds(cut.agreed),
            halves: [half(0), half(1)],
        }
    }

    /// What is not as it must be, in words.
    pub fn failed_checks(&self) -> Vec<String> {
        let mut failed = Vec::new();
        if self.agree_after_heal_ms > milliseconds(AGREE_MAX) {
            failed.push(format!("agreement took {:.0} ms after the healing", self.agree_after_heal_ms));
        }
        for (side, half) in self.halves.iter().enumerate().filter(|(_, half)| half.reserved == 0) {
            failed.push(format!(
                "half {}: none of {} requests was reserved while it was alone",
                side + 1,
                half.answered
            ));
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::{answer::tests::answer, users::Fate};

    /// A request through the node at `entry_point` of four, from `due` to `ended` milliseconds after `zero`.
    fn placed(zero: Instant, entry_point: usize, due: u64, ended: u64, state: &str) -> Placed {
        let at = |ms| zero + Duration::from_millis(ms);
        let answer = answer(state, &json!(null), ended - due);
        Placed { answer, fate: Fate::Kept, entry_point, due: at(due), ended: at(ended) }
    }

    #[test]
    fn only_what_began_and_ended_inside_the_cut_counts() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let cut = Cut { begun: at(100), healed: at(200), agreed: Duration::from_secs(31) };
        let all = [
            placed(zero, 0, 90, 150, "confirmed"),
            placed(zero, 1, 110, 150, "confirmed"),
            placed(zero, 1, 120, 130, "rejected"),
            placed(zero, 2, 150, 250, "confirmed"),
            placed(zero, 3, 150, 160, "failed"),
        ];
        let figures = PartitionFigures::new(&cut, &all, 4);
        let counts = figures.halves.each_ref().map(|half| (half.answered, half.reserved));
        assert_eq!(counts, [(2, 1), (1, 0)]);
        assert_eq!(figures.halves[0].latency_ms.map(|latency| latency.max), Some(40.0));
        let failed = figures.failed_checks();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].contains("31000 ms") && failed[1].starts_with("half 2: none of 1"), "{failed:?}");
    }
}
