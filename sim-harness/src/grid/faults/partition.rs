//! What a partition showed: whether each half went on, and how soon all agreed again.
//!
//! Invariant: a request counts for a half only when it was both begun and answered while the cut lasted.

use std::time::{Duration, Instant};

use serde::Serialize;
use sim_kit::stats::Percentiles;

use crate::grid::{
    load::answer::{Answer, Counts, milliseconds},
    nodes::network::side_of,
};

/// Longest time from the healing to agreement.
const AGREE_MAX: Duration = Duration::from_secs(30);

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
    pub fn new(cut: &Cut, answers: &[Answer], nodes: usize) -> PartitionFigures {
        let half = |side: usize| {
            let is_inside = |answer: &&Answer| answer.due >= cut.begun && answer.ended < cut.healed;
            let of_side = answers.iter().filter(|answer| side_of(answer.entry_point.0, nodes) == side);
            let Counts { requests, reserved, latency_ms, .. } = Counts::of(of_side.filter(is_inside));
            HalfFigures { answered: requests, reserved, latency_ms }
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
        for (number, half) in (1..).zip(&self.halves).filter(|(_, half)| half.reserved == 0) {
            let requests = half.answered;
            failed.push(format!("half {number}: none of {requests} requests was reserved while it was alone"));
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    #[test]
    fn only_what_began_and_ended_inside_the_cut_counts() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let cut = Cut { begun: at(100), healed: at(200), agreed: Duration::from_secs(31) };
        let all = [
            (0, 90, 150, "confirmed"),
            (1, 110, 150, "confirmed"),
            (1, 120, 130, "rejected"),
            (2, 150, 250, "confirmed"),
            (3, 150, 160, "failed"),
        ]
        .map(|(entry_point, due, ended, state)| Answer {
            entry_point: (entry_point, String::new()),
            due: at(due),
            ended: at(ended),
            ..answer(state, &json!(null), 0)
        });
        let figures = PartitionFigures::new(&cut, &all, 4);
        let counts = figures.halves.each_ref().map(|half| (half.answered, half.reserved));
        assert_eq!(counts, [(2, 1), (1, 0)]);
        assert_eq!(figures.halves[0].latency_ms.map(|latency| latency.max), Some(40.0));
        let failed = figures.failed_checks();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].contains("31000 ms") && failed[1].starts_with("half 2: none of 1"), "{failed:?}");
    }
}
