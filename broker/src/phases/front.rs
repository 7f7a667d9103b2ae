//! What it costs to start earlier: of all starts of a window those at which the least cost is below that of every earlier one.
//!
//! The searches for the least cost look at starts in ascending order and ask of each whether it undercuts the best so far, so what they
//! keep on their way is this front. Between two starts that they look at nothing becomes free and no price changes.
//!
//! Invariant: starts rise and costs fall from point to point.

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    Candidate, Job, bounds::Judge, check, limits::Limits, miss::Miss, problem::Problem, start_times::OpenRange,
    sweep::Sweep,
};
use crate::{
    cost::Cost,
    objective,
    request::{Effort, ObjectiveKind},
    time::Time,
};

/// A better value that a search has reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Improvement {
    pub start: Time,
    pub value: i64,
    /// The least value up to this start that was neither reached nor excluded.
    pub open: Option<i64>,
}

/// A start, and the least that it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontPoint {
    /// The start.
    pub start: Time,
    /// What all seats cost together.
    pub cost: Cost,
    /// It is proven that no start up to this one costs less, and no earlier one as little.
    pub is_proven: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The points, in the order of their starts.
    pub points: Vec<FrontPoint>,
    /// It is proven that there is no other point.
    pub is_proven: bool,
}

impl Front {
    /// At most `most` of the points, the first and the last among them, and how many are left out.
    #[must_use]
    pub fn thinned(&self, most: usize) -> (Vec<FrontPoint>, usize) {
        let count = self.points.len();
        let kept = count.min(most);
        let at = |index: usize| if kept < 2 { index } else { index * (count - 1) / (kept - 1) };
        ((0..kept).map(|index| self.points[at(index)]).collect(), count - kept)
    }
}

/// The front over all starts of the job, whatever its objective; within its budget, if it has one.
#[must_use]
pub fn front(job: &Job<'_>, candidates: &[Candidate<'_>], effort: Effort, seed: u64) -> Front {
    within(job, candidates, Limits::of(effort), seed)
}

/// The same with limits of one's own.
pub(super) fn within(job: &Job<'_>, candidates: &[Candidate<'_>], limits: Limits, seed: u64) -> Front {
    let job = Job { objective: ObjectiveKind::Cost, order: None, ..*job };
    let problem = Problem::new(&job, candidates);
    let mut judge = Judge::default();
    if job.latest < job.earliest || check::check(&problem, &mut judge.picker).is_err() {
        return Front { points: Vec::new(), is_proven: true };
    }
    let objective = objective::of(ObjectiveKind::Cost);
    let (reached, unproven) = if problem.is_free_choice() {
        let nodes_max = limits.feasibility_nodes_in_all;
        let search = super::best_offer::Search::run(&problem, objective, (job.earliest, job.latest), nodes_max);
        (search.reached, search.unproven)
    } else {
        let (random, mut observer) = (Xoshiro256PlusPlus::seed_from_u64(seed), ());
        let mut sweep = Sweep::new(&problem, limits, random, judge, Miss::new(job.earliest), &mut observer);
        let all = OpenRange { first: job.earliest, last: job.latest, hosts: problem.every_host() };
        sweep.best(objective, &all);
        (sweep.reached, sweep.unproven)
    };
    let point = |one: Improvement| FrontPoint {
        start: one.start,
        cost: Cost(one.value.unsigned_abs()),
        is_proven: one.open.is_none_or(|open| open > one.value),
    };
    Front { points: reached.into_iter().map(point).collect(), is_proven: unproven.is_none() }
}
