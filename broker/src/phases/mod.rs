//! The six phases: from a request and candidate hosts to a plan (spec: chapter 3 of the dissertation).
//!
//! One file a phase: [`find`] (I), `check` (II), `start_times` and `sweep` (III), `select_and_swap` with `bounds` and
//! `exact` (IV), `optimize` with `efficiency` (V), `reserve` (VI). Where the source searches at random, bounds come
//! first, so that an answer can say what is proven.
//!
//! Invariant: an answer depends on the arguments only; time is whatever the [`PhaseObserver`] measures.

pub mod availability;
mod bounds;
mod check;
mod efficiency;
mod exact;
mod field;
pub mod find;
mod limits;
mod miss;
mod optimize;
mod problem;
mod reserve;
mod select_and_swap;
mod settings;
mod start_times;
mod stopwatch;
mod sweep;
#[cfg(test)]
mod tests;
mod timeline;
mod windowed;

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use self::{
    bounds::Judge,
    miss::Miss,
    problem::Problem,
    sweep::{Solution, Sweep},
};
pub use self::{
    limits::Limits,
    settings::{Settings, SettingsError},
    stopwatch::PhaseStopwatch,
};
use crate::{
    host::Host,
    ids::SiteId,
    plan::{Plan, PlanOutcome, Reason, Rejection},
    request::{Effort, Request},
    schedule::Schedule,
    time::Time,
};

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

/// Phases II to V on given candidates, and the shares of phase VI: the earliest start in `[earliest, latest]`, and there
/// the host set with the best efficiency factor found. Every candidate has the attributes that the request asks for
/// (phase I sees to that); their order does not matter.
#[must_use]
pub fn plan(
    request: &Request,
    earliest: Time,
    latest: Time,
    candidates: &[Candidate<'_>],
    effort: Effort,
    seed: u64,
    observer: &mut impl PhaseObserver,
) -> PlanOutcome {
    plan_within(request, earliest, latest, candidates, &Limits::of(effort), seed, observer)
}

/// [`plan`] with limits of one's own, for studies of what each of them does.
#[must_use]
pub fn plan_within(
    request: &Request,
    earliest: Time,
    latest: Time,
    candidates: &[Candidate<'_>],
    limits: &Limits,
    seed: u64,
    observer: &mut impl PhaseObserver,
) -> PlanOutcome {
    if latest < earliest {
        return rejected(Reason::WindowPassed { latest, earliest }, true);
    }
    observer.enter(Phase::Check);
    let problem = Problem::new(request, candidates);
    let mut judge = Judge::default();
    let largest = match check::check(&problem, &mut judge.picker) {
        Ok(largest) => largest,
        Err(reason) => return rejected(reason, true),
    };
    observer.enter(Phase::StartTimes);
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sweep = Sweep::new(&problem, *limits, random, judge, Miss::new(earliest), observer);
    let Some(mut solution) = earliest_solution(&problem, earliest, latest, &largest, &mut sweep) else {
        let asked = problem.pick as u64;
        let picker = &mut sweep.judge.picker;
        let reason = match sweep.first_unproven {
            None => Reason::NoWindow { asked, nearest: sweep.miss.describe(&problem, picker) },
            Some(start) => Reason::SearchLimit { asked, nearest: miss::look(&problem, start, picker).1 },
        };
        return rejected(reason, sweep.is_proven);
    };
    let Sweep { mut random, mut judge, is_proven: start_proven, .. } = sweep;
    observer.enter(Phase::Optimize);
    let optimum = optimize::optimize(&problem, &solution, limits, &mut random, &mut judge.picker);
    observer.enter(Phase::Reserve);
    solution.chosen = optimum.chosen;
    let grants = reserve::grants(&problem, &solution.slot, &mut solution.chosen);
    PlanOutcome::Allocated(Plan {
        start: solution.slot.start,
        grants,
        efficiency: optimum.factor,
        efficiency_bound: optimum.bound,
        start_proven,
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
