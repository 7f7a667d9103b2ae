//! What it costs to start earlier: of all starts of a window those at which the least cost is below that of every earlier one.
//!
//! The searches for the least cost look at starts in ascending order and ask of each whether it undercuts the best so far, so what they
//! keep on their way is this front. Between two starts that they look at nothing becomes free and no price changes.
//!
//! Invariant: starts rise and costs fall from point to point.

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    Candidate, Job, bounds::Judge, check, find, limits::Limits, miss::Miss, problem::Problem, start_times::OpenRange,
    sweep::Sweep,
};
use crate::{
    cost::Cost,
    ids::ShapeNumber,
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
    /// The shape of the request that costs so little then.
    pub shape: ShapeNumber,
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

/// The front over all starts of all shapes of one request, each a job of its own. Of a shape, all hosts that could serve some other may be
/// among the candidates.
#[must_use]
pub fn front_of_shapes<'a>(
    jobs: impl Iterator<Item = (ShapeNumber, Job<'a>)>,
    candidates: &[Candidate<'_>],
    effort: Effort,
    seed: u64,
) -> Front {
    merged(jobs.map(|(shape, job)| {
        let serving = find::eligible(job.demand, candidates).unwrap_or_default();
        let serving: Vec<Candidate<'_>> = serving.into_iter().map(|at| candidates[at]).collect();
        let mut of_shape = front(&job, &serving, effort, seed);
        of_shape.points.iter_mut().for_each(|point| point.shape = shape);
        of_shape
    }))
}

/// The front of several: of all their points those that cost less than every earlier one. Such a point is proven when it is so in its own
/// front and no other may have one that is as cheap and as early.
pub(super) fn merged(fronts: impl Iterator<Item = Front>) -> Front {
    let fronts: Vec<Front> = fronts.collect();
    let mut points: Vec<(usize, FrontPoint)> = Vec::new();
    for (at, of_one) in fronts.iter().enumerate() {
        points.extend(of_one.points.iter().map(|point| (at, *point)));
    }
    points.sort_by_key(|(at, point)| (point.start, point.cost, *at));
    let mut best: Option<Cost> = None;
    points.retain(|(_, point)| {
        let is_less = best.is_none_or(|best| point.cost < best);
        best = if is_less { Some(point.cost) } else { best };
        is_less
    });
    let excludes = |other: &Front, point: &FrontPoint| {
        let is_later = |one: &FrontPoint| one.is_proven && one.start >= point.start && one.cost >= point.cost;
        other.is_proven || other.points.iter().any(is_later)
    };
    let point = |(own, mut point): (usize, FrontPoint)| {
        let mut others = fronts.iter().enumerate().filter(|(at, _)| *at != own);
        point.is_proven &= others.all(|(_, other)| excludes(other, &point));
        point
    };
    Front { points: points.into_iter().map(point).collect(), is_proven: fronts.iter().all(|one| one.is_proven) }
}

/// The same with limits of one's own.
pub(super) fn within(job: &Job<'_>, candidates: &[Candidate<'_>], limits: Limits, seed: u64) -> Front {
    let job = Job { objective: ObjectiveKind::Cost, order: None, ..*job };
    let doubtful = super::first_doubtful(&job, candidates);
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
        shape: ShapeNumber::default(),
        cost: Cost(one.value.unsigned_abs()),
        is_proven: one.open.is_none_or(|open| open > one.value) && doubtful.is_none_or(|first| one.start < first),
    };
    let is_proven = unproven.is_none() && doubtful.is_none();
    Front { points: reached.into_iter().map(point).collect(), is_proven }
}
