//! Exhaustive search: every set of N hosts at every start worth looking at. Slow and obvious, for small N.
//!
//! Invariant: the answer is the earliest start at which any set is a solution, with the best factor there. Nothing is
//! shared with the planners that it judges but the reading of schedules.

use super::measure::Answer;
use crate::placement::{Asked, FreeHost};

/// Requests with more host sets than this are not searched.
const SETS_MAX: u64 = 200_000;

/// The best answer there is; `None` when there are too many sets to look at all.
pub(super) fn search(asked: &Asked<'_>) -> Option<Option<Answer>> {
    let n = asked.job.demand.seats();
    if sets(asked.candidates.len() as u64, n as u64) > SETS_MAX {
        return None;
    }
    let needed = asked.needed();
    Some(asked.starts().into_iter().find_map(|start| {
        let mut best = None;
        look(&asked.free_at(start), n, &vec![(0, 0); needed.len()], &mut |sums| {
            if let Some(factor) = factor(&needed, sums) {
                best = Some(best.map_or(factor, |best: f64| best.max(factor)));
            }
        });
        best.map(|factor| Answer { start, factor })
    }))
}

/// `count` over `n`, or more than the limit.
fn sets(count: u64, n: u64) -> u64 {
    (0..n.min(count)).try_fold(1_u64, |sets, at| Some(sets.checked_mul(count - at)? / (at + 1))).unwrap_or(u64::MAX)
}

/// Judges every way to add `left` of these hosts to hosts that have `sums` together: of each resource what is free, and all.
fn look(hosts: &[FreeHost], left: usize, sums: &[(u128, u128)], judge: &mut impl FnMut(&[(u128, u128)])) {
    if left == 0 {
        return judge(sums);
    }
    for at in 0..(hosts.len() + 1).saturating_sub(left) {
        let added = hosts[at].free.iter().zip(&hosts[at].capacity);
        let with = added.zip(sums).map(|((free, all), sum)| (sum.0 + u128::from(*free), sum.1 + u128::from(*all)));
        look(&hosts[at + 1..], left - 1, &with.collect::<Vec<_>>(), judge);
    }
}

/// The factor of hosts that have this together; `None` when it is too little.
fn factor(needed: &[u128], sums: &[(u128, u128)]) -> Option<f64> {
    needed.iter().zip(sums).try_fold(1.0, |factor, (needed, (free, all))| {
        (free >= needed).then(|| factor * ((needed + all - free) as f64 / (*all).max(1) as f64))
    })
}
