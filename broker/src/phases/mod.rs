//! The six phases: from a request and candidate hosts to a plan (spec: chapter 3 of the dissertation).
//!
//! One file a phase: [`find`] (I), `check` (II), `start_times` and `sweep` (III), `select_and_swap` with `bounds`, `exact` and
//! `sites` (IV), `optimize` with `efficiency` and `as_good` (V), `reserve` (VI). Where the source searches at random, bounds come
//! first, so that an answer can say what is proven. What is best says an objective ([`crate::objective`]).
//!
//! Invariant: an answer depends on the arguments only; time is whatever the [`PhaseObserver`] measures.

mod alike;
mod as_good;
pub mod availability;
mod best_offer;
mod bounds;
mod check;
mod coarse;
mod cost_guard;
mod costs;
mod efficiency;
mod exact;
mod field;
pub mod find;
mod front;
mod knapsack;
mod limits;
mod linked;
mod links;
mod market;
mod miss;
mod molded;
mod offers;
mod optimize;
mod overloads;
mod preference;
mod problem;
mod ranks;
mod reserve;
mod select_and_swap;
mod settings;
mod sites;
mod spend;
mod start_times;
mod stopwatch;
mod sweep;
#[cfg(test)]
mod tests;
mod timeline;
mod together;
mod windowed;
mod windows;

use std::collections::BTreeSet;

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

pub(crate) use self::coarse::first_doubtful;
use self::{
    as_good::cost_limit,
    bounds::Judge,
    miss::Miss,
    problem::Problem,
    start_times::OpenRange,
    sweep::{Solution, Sweep},
};
pub use self::{
    front::{Front, FrontPoint, front, front_of_shapes},
    limits::Limits,
    offers::{FreeSlot, free_slots},
    preference::site_rank,
    settings::Settings,
    stopwatch::PhaseStopwatch,
    windows::Windows,
};
use crate::{
    cost::Cost,
    demand::Demand,
    host::Host,
    ids::{ShapeNumber, SiteId},
    objective::{self, Measures, Objective},
    plan::{ObjectiveValue, Plan, PlanOutcome, Rejection},
    reason::Reason,
    request::{Effort, ObjectiveKind, Request},
    schedule::Schedule,
    time::Time,
    uplinks::Uplinks,
};

/// The sites of a request that has no seat yet.
static NO_SITES: BTreeSet<SiteId> = BTreeSet::new();

/// What is to be planned: a demand in a window, for an objective.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What the hosts must give.
    pub demand: &'a Demand,
    /// The earliest start.
    pub earliest: Time,
    /// The latest start.
    pub latest: Time,
    /// No seat ends after it.
    pub deadline: Option<Time>,
    /// What is best.
    pub objective: ObjectiveKind,
    /// All seats together cost at most this.
    pub budget: Option<Cost>,
    /// When the owners are asked: a short lead time may cost more. None: that is not known, and no surcharge counts.
    pub asked_at: Option<Time>,
    /// Sites where the request has other seats: they are not counted against the limit of sites again.
    pub kept_sites: &'a BTreeSet<SiteId>,
    /// The links that traffic between the seats goes over.
    pub uplinks: &'a Uplinks,
    /// Draws the order in which hosts are preferred among nearly equal plans; without it the best plan is taken.
    pub order: Option<u64>,
    /// Whether that order puts hosts of the sites first that have most processors free.
    pub spreads: bool,
}

impl<'a> Job<'a> {
    /// Each shape of a request, which starts between these times.
    pub fn of_shapes(
        request: &'a Request,
        starts: (Time, Time),
    ) -> impl Iterator<Item = (ShapeNumber, Job<'a>)> + use<'a> {
        let job = Job::of(request, starts);
        (0..).map(ShapeNumber).zip(request.shapes().map(move |demand| Job { demand, ..job }))
    }

    /// The whole of a request, which starts between these times.
    #[must_use]
    pub fn of(request: &'a Request, (earliest, latest): (Time, Time)) -> Job<'a> {
        Job {
            demand: request.demand(),
            earliest,
            latest,
            deadline: request.window().deadline,
            objective: request.objective(),
            budget: request.budget(),
            asked_at: None,
            kept_sites: &NO_SITES,
            uplinks: Uplinks::NONE,
            order: None,
            spreads: false,
        }
    }

    /// The same for the least that it can cost.
    fn without_budget(&self) -> Job<'a> {
        Job { budget: None, objective: ObjectiveKind::Cost, ..*self }
    }
}

/// A host to choose from, with what is believed of its schedule.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The host's site.
    pub site: &'a SiteId,
    /// What the site says of the host.
    pub host: &'a Host,
    /// What is reserved on it.
    pub schedule: &'a Schedule,
}

/// The six phases, for whoever measures them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// I: hosts that could satisfy the minima and attributes.
    Find,
    /// II: whether their capacities reach the totals.
    Check,
    /// III: which starts are possible.
    StartTimes,
    /// IV: N hosts at the earliest start.
    SelectAndSwap,
    /// V: the most efficient hosts at that start.
    Optimize,
    /// VI: the shares.
    Reserve,
}

/// Hears when the planner goes on to another phase, or comes back to an earlier one.
pub trait PhaseObserver {
    /// The planner is about to work on `phase`.
    fn enter(&mut self, phase: Phase);
}

impl PhaseObserver for () {
    fn enter(&mut self, _: Phase) {}
}

impl PhaseObserver for &mut dyn PhaseObserver {
    fn enter(&mut self, phase: Phase) {
        (**self).enter(phase);
    }
}

/// Phases II to V on given candidates, and the shares of phase VI: the best plan by the objective that starts in
/// `[earliest, latest]`, the earliest of such plans, and there the host set with the best efficiency factor found. Every candidate
/// has the attributes and the speed that are asked for (phase I sees to that); their order does not matter.
#[must_use]
pub fn plan(
    job: &Job<'_>,
    candidates: &[Candidate<'_>],
    effort: Effort,
    seed: u64,
    observer: &mut impl PhaseObserver,
) -> PlanOutcome {
    let limits = Limits::of(effort);
    let outcome = plan_within(job, candidates, &limits, seed, observer);
    let outcome = with_cheapest(outcome, || plan_within(&job.without_budget(), candidates, &limits, seed, &mut ()));
    coarse::doubted(outcome, job, candidates)
}

/// With totals or links the search looks at nothing above the budget. Where that refuses a job, what would do is sought without it.
fn with_cheapest(mut outcome: PlanOutcome, without_budget: impl FnOnce() -> PlanOutcome) -> PlanOutcome {
    if let PlanOutcome::Rejected(Rejection { reason: Reason::Budget { cheapest: cheapest @ None, .. }, .. }) =
        &mut outcome
    {
        *cheapest = without_budget().plan().map(Plan::cost);
    }
    outcome
}

/// [`plan`] with limits of one's own, for studies of what each of them does, on exact schedules; it need not say what a plan above the
/// budget costs.
#[must_use]
pub fn plan_within(
    job: &Job<'_>,
    candidates: &[Candidate<'_>],
    limits: &Limits,
    seed: u64,
    observer: &mut impl PhaseObserver,
) -> PlanOutcome {
    let &Job { earliest, latest, .. } = job;
    if latest < earliest {
        return rejected(Reason::WindowPassed { latest, earliest }, true);
    }
    if let Some(fewer) = alike::few_of_each_kind(job, candidates)
        && let outcome @ PlanOutcome::Allocated(_) = plan_on_all(job, &fewer, limits, seed, observer)
    {
        return outcome;
    }
    // The reason counts all of them.
    plan_on_all(job, candidates, limits, seed, observer)
}

/// [`plan_within`], where each candidate is looked at.
fn plan_on_all(
    job: &Job<'_>,
    candidates: &[Candidate<'_>],
    limits: &Limits,
    seed: u64,
    observer: &mut impl PhaseObserver,
) -> PlanOutcome {
    if job.demand.is_to_be_scaled() {
        return molded::plan(job, candidates, limits, seed, observer);
    }
    observer.enter(Phase::Check);
    plan_problem(&mut Problem::new(job, candidates), job, limits, seed, observer)
}

/// The same once the numbers are gathered.
fn plan_problem(
    problem: &mut Problem<'_>,
    job: &Job<'_>,
    limits: &Limits,
    seed: u64,
    observer: &mut impl PhaseObserver,
) -> PlanOutcome {
    observer.enter(Phase::Check);
    let mut judge = Judge::default();
    let largest = match check::check(problem, &mut judge.picker) {
        Ok(largest) => largest,
        Err(reason) => return rejected(reason, true),
    };
    observer.enter(Phase::StartTimes);
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    if problem.links.is_some() {
        return together::plan(problem, job, limits, &largest, (random, judge), observer);
    }
    let problem = &*problem;
    let mut sweep = Sweep::new(problem, *limits, random, judge, Miss::new(job.earliest), observer);
    let Some(solution) = best_solution(problem, job, objective::of(job.objective), &largest, &mut sweep) else {
        let asked = problem.pick as u64;
        let picker = &mut sweep.judge.picker;
        let reason = match (sweep.first_unproven, sweep.too_dear, job.budget) {
            (Some(start), ..) => Reason::SearchLimit { asked, nearest: miss::look(problem, start, picker).1 },
            (None, Some(cheapest), Some(budget)) => {
                Reason::Budget { budget, cheapest: cheapest.map(|cheapest| Cost(cheapest.unsigned_abs())) }
            }
            (None, ..) => Reason::NoWindow { asked, nearest: sweep.miss.describe(problem, picker) },
        };
        return rejected(reason, sweep.first_unproven.is_none());
    };
    let Sweep { mut random, mut judge, unproven, .. } = sweep;
    let found = (solution, unproven);
    PlanOutcome::Allocated(plan_of(problem, job, limits, found, (&mut random, &mut judge), observer))
}

/// Phases V and VI: the plan of a solution, beside which a value at some start may not have been settled.
fn plan_of(
    problem: &Problem<'_>,
    job: &Job<'_>,
    limits: &Limits,
    (solution, unproven): (Solution, Option<(i64, Time)>),
    tools: (&mut Xoshiro256PlusPlus, &mut Judge),
    observer: &mut impl PhaseObserver,
) -> Plan {
    let objective = objective::of(job.objective);
    observer.enter(Phase::Optimize);
    let ranks = job.order.map(|order| match job.spreads {
        true => preference::spreading_ranks(order, &problem.hosts, solution.slot.start),
        false => preference::ranks(order, &problem.hosts),
    });
    let ranks = ranks.as_deref();
    let (mut solution, optimum) = as_good::most_efficient(problem, solution, objective, limits, ranks, tools);
    observer.enter(Phase::Reserve);
    solution.chosen = optimum.chosen;
    let start = solution.slot.start;
    let most = cost_limit(problem, objective, start, solution.value);
    let seats = reserve::seats(problem, &solution.slot, &mut solution.chosen, most);
    // Where the search was cut, the hosts that are most efficient may be better than what it had reached.
    let value = objective.value(start.0, Measures::of(&seats));
    let bound = unproven.map_or(value, |(least, _)| least.min(value));
    Plan {
        shape: ShapeNumber::default(),
        start,
        seats,
        traffic: job.demand.traffic(),
        scale: job.demand.factor(),
        objective: ObjectiveValue { kind: job.objective, value, bound: Some(bound) },
        efficiency: optimum.factor,
        efficiency_bound: optimum.bound,
        start_proven: unproven.is_none_or(|open| open > (value, start)),
    }
}

/// The plan that has its seats on these hosts, for a strategy that chooses them by itself; nothing is proven of it. None when it is
/// no solution of the job.
#[must_use]
pub fn plan_on(job: &Job<'_>, chosen: &[Candidate<'_>], start: Time) -> Option<Plan> {
    let problem = together(job, chosen);
    let slot = problem.slot_at(start);
    let mut positions: Vec<u32> = (0..slot.len() as u32).collect();
    if !(job.earliest..=job.latest).contains(&start) || !problem.accepts(&slot, &positions) {
        return None;
    }
    // The least cost is had by the cheapest shares.
    let most = cost_limit(&problem, objective::of(job.objective), start, 0);
    let seats = reserve::seats(&problem, &slot, &mut positions, most);
    Some(Plan {
        shape: ShapeNumber::default(),
        start,
        traffic: job.demand.traffic(),
        scale: job.demand.factor(),
        objective: objective::unproven(job.objective, start, &seats),
        seats,
        efficiency: optimize::factor(&problem, &slot, &positions),
        efficiency_bound: 1.0,
        start_proven: false,
    })
}

/// The problem of seats on all of these hosts: with traffic they last equally long.
fn together<'a>(job: &Job<'a>, chosen: &'a [Candidate<'a>]) -> Problem<'a> {
    let mut problem = Problem::new(job, chosen);
    if problem.links.is_some() {
        let own = problem.lengths.clone();
        problem.set_length(job, &own, problem.length_max);
    }
    problem
}

/// The efficiency factor of these hosts at this start; none when one of them has no room for what each must have.
#[must_use]
pub fn efficiency_on(job: &Job<'_>, chosen: &[Candidate<'_>], start: Time) -> Option<f64> {
    let problem = together(job, chosen);
    let slot = problem.slot_at(start);
    let positions: Vec<u32> = (0..slot.len() as u32).collect();
    (slot.len() == chosen.len()).then(|| optimize::factor(&problem, &slot, &positions))
}

/// Whether whatever starts first is best.
fn is_first_best(problem: &Problem<'_>, objective: ObjectiveKind) -> bool {
    match objective {
        ObjectiveKind::Start => true,
        ObjectiveKind::Finish | ObjectiveKind::Runtime | ObjectiveKind::HostTime => {
            problem.lengths.iter().all(|length| *length == problem.length_max)
        }
        ObjectiveKind::Cost => false,
    }
}

/// The best solution, valued by the objective.
fn best_solution<'s, O: PhaseObserver>(
    problem: &Problem<'_>,
    job: &Job<'_>,
    objective: &'s dyn Objective,
    largest: &[i64],
    sweep: &mut Sweep<'s, '_, O>,
) -> Option<Solution> {
    let is_first_best = is_first_best(problem, job.objective);
    if problem.is_free_choice() && (problem.costs.is_some() || !is_first_best) {
        return best_offer(problem, job, objective, sweep);
    }
    if !is_first_best {
        let all = OpenRange { first: job.earliest, last: job.latest, hosts: problem.every_host() };
        return sweep.best(objective, &all);
    }
    let mut first = earliest_solution(problem, job.earliest, job.latest, largest, sweep);
    if let Some(found) = &mut first {
        let measures = found.slot.measures(problem, &found.chosen);
        found.value = objective.value(found.slot.start.0, measures);
        sweep.unproven = sweep.first_unproven.map(|start| (objective.value(start.0, measures), start));
    }
    first
}

/// The best solution where any N hosts serve.
fn best_offer<O: PhaseObserver>(
    problem: &Problem<'_>,
    job: &Job<'_>,
    objective: &dyn Objective,
    sweep: &mut Sweep<'_, '_, O>,
) -> Option<Solution> {
    let nodes_max = sweep.limits.feasibility_nodes_in_all;
    let search = best_offer::Search::run(problem, objective, (job.earliest, job.latest), nodes_max);
    sweep.unproven = search.unproven;
    sweep.first_unproven = search.unproven.map(|(_, start)| start);
    sweep.too_dear = search.cheapest.map(Some);
    let (start, hosts) = search.most;
    sweep.miss.note(start, Miss::too_few(hosts, problem.pick));
    search.best.map(|best| {
        let slot = problem.slot_at(best.start);
        let chosen = best.hosts.iter().map(|host| slot.position_of(*host)).collect();
        Solution { slot, chosen, value: best.value }
    })
}

/// The earliest start is looked at by itself: most requests that have a solution have one there, and then nothing beyond
/// its window needs to be read.
fn earliest_solution<O: PhaseObserver>(
    problem: &Problem<'_>,
    earliest: Time,
    latest: Time,
    largest: &[i64],
    sweep: &mut Sweep<'_, '_, O>,
) -> Option<Solution> {
    let slot = problem.slot_at(earliest);
    let room = start_times::room(problem, &slot, largest);
    if let Some(solution) = sweep.settle(slot) {
        return Some(solution);
    }
    if earliest == latest || problem.width() == 0 {
        return None;
    }
    let rest = (Time(earliest.0 + 1), latest);
    let ranges = start_times::open_ranges(problem, rest, &room, &mut sweep.judge, &mut sweep.miss);
    ranges.iter().find_map(|range| sweep.range(range))
}

fn rejected(reason: Reason, start_proven: bool) -> PlanOutcome {
    PlanOutcome::Rejected(Rejection { reason, start_proven })
}
