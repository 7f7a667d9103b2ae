//! Exhaustive search: every set of N hosts at every start worth looking at. Slow and obvious, for small N.
//!
//! Invariant: the answer is the earliest start at which any set is a solution, with the best factor there. Nothing is
//! shared with the planners that it judges but the reading of schedules.

use super::measure::Answer;
use crate::placement::{Asked, FreeHost};

/// Requests with more host sets than this are not searched.
const SETS_MAX: u64 = 200_000;

/// The best answer there is; `None` when there are too many sets to look at all.
pub fn search(asked: &Asked<'_>) -> Option<Option<Answer>> {
    let n = asked.request.hosts();
    if sets(asked.candidates.len() as u64, n as u64) > SETS_MAX {
        return None;
    }
    let needed = asked.needed();
    Some(asked.starts().into_iter().find_map(|start| {
        let hosts = asked.free_at(start);
        let sums = vec![0; needed.len()];
        let mut search = Search { needed: &needed, free: sums.clone(), capacity: sums, best: None };
        search.look(&hosts, n);
        search.best.map(|factor| Answer { start, factor })
    }))
}

/// `count` over `n`, or more than the limit.
fn sets(count: u64, n: u64) -> u64 {
    (0..n.min(count)).try_fold(1_u64, |sets, at| Some(sets.checked_mul(count - at)? / (at + 1))).unwrap_or(u64::MAX)
}

/// The sets that begin with some hosts, and what these have in sum.
struct Search<'n> {
    needed: &'n [u128],
    free: Vec<u128>,
    capacity: Vec<u128>,
    best: Option<f64>,
}

impl Search<'_> {
    /// Looks at every way to add `left` of these hosts.
    fn look(&mut self, hosts: &[FreeHost], left: usize) {
        if left == 0 {
            return self.judge();
        }
        for at in 0..(hosts.len() + 1).saturating_sub(left) {
            let host = &hosts[at];
            for resource in 0..self.needed.len() {
                self.free[resource] += u128::from(host.free[resource]);
                self.capacity[resource] += u128::from(host.capacity[resource]);
            }
            self.look(&hosts[at + 1..], left - 1);
            for resource in 0..self.needed.len() {
                self.free[resource] -= u128::from(host.free[resource]);
                self.capacity[resource] -= u128::from(host.capacity[resource]);
            }
        }
    }

    fn judge(&mut self) {
        let mut factor = 1.0;
        for ((needed, free), capacity) in self.needed.iter().zip(&self.free).zip(&self.capacity) {
            if free < needed {
                return;
            }
            factor *= (needed + capacity - free) as f64 / (*capacity).max(1) as f64;
        }
        self.best = Some(self.best.map_or(factor, |best| best.max(factor)));
    }
}
