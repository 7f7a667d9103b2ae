//! The shortest placement of all gangs: local search first, then the proof, where there are few enough.
//!
//! Limits are in work, never in time. Invariant: a bound is claimed only if no placement of all gangs ends before it.

use super::{
    super::watch::Watch,
    bounds::{Bounds, GANGS_MAX},
    exact::Exact,
    local::{Placed, Placer, Worth, search},
    modes::Modes,
    problem::Problem,
    room::Room,
};
use crate::request::Effort;

/// How hard is searched.
#[derive(Debug, Clone, Copy)]
pub(in crate::batch) struct Work {
    /// Begins of the local search, and levels that it looks at.
    pub local: (u64, u64),
    /// Rows and states that the proof looks at.
    pub exact: u64,
}

impl Work {
    /// What suits so many gangs: a proof where it may be found, else more local search. Measured on the published cases: seconds with
    /// balanced effort, a hundredth of it with little, ten times as much with most.
    pub fn of(gangs: usize, effort: Effort) -> Work {
        let (begins, local, exact) = if gangs <= GANGS_MAX { (4, 400_000, 200_000_000) } else { (20, 500_000_000, 0) };
        match effort {
            Effort::Fast => Work { local: (1, local / 100), exact: exact / 100 },
            Effort::Balanced => Work { local: (begins, local), exact },
            Effort::Thorough => Work { local: (begins, local * 10), exact: exact * 10 },
        }
    }
}

/// The placement that leaves the fewest gangs out and then ends first, and an end that no placement of all gangs is before.
pub(in crate::batch) fn shortest(
    problem: &Problem,
    modes: &[Modes],
    room: &Room,
    work: Work,
    watch: Watch<'_>,
) -> (Placed, Option<i64>) {
    let bounds = Bounds::of(problem, modes, room);
    let mut placer = Placer::new(problem, modes, room, watch);
    let least = bounds.least_end(problem, i64::MAX / 4);
    let (mut placed, worth) = search(&mut placer, work.local, least);
    if modes.iter().any(|modes| modes.is_cut) {
        return (placed, None);
    }
    let mut bound = least.min(worth.makespan);
    if modes.len() <= GANGS_MAX && worth.postponed == 0 && bound < worth.makespan {
        let proof = Exact::new(problem, modes, room, bounds, worth.makespan, watch).run(work.exact);
        if let Some(better) = proof.better {
            placed = better.into_iter().map(Some).collect();
        }
        if proof.is_complete {
            bound = Worth::of(&placed, modes).makespan;
        }
    }
    (placed, Some(bound))
}
