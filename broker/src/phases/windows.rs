//! Windows of one job, one after the other, each the best on what those before it leave.
//!
//! Source: the search for alternatives of the dissertation on windows of slots, chapter 2. Where any N hosts serve and whatever starts first is
//! best, all of them come from one sweep: what is taken never lets a later window start earlier, so it goes on where it was, on slots out of
//! which the windows are cut. Otherwise each is searched for by itself, on numbers that are kept.
//!
//! Invariant: each is the plan that [`super::plan`] makes on schedules in which all windows before it have their hosts whole.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    Candidate, Job, Limits, Phase, PhaseObserver, bounds::Judge, is_first_best, offers::find_free, optimize, plan_of,
    plan_problem, problem::Problem, rejected, sweep::Solution, with_cheapest,
};
use crate::{
    demand::Demand,
    objective,
    plan::{Plan, PlanOutcome},
    reason::Reason,
    request::Effort,
    time::Time,
};

/// See the module.
pub struct Windows<'a> {
    job: Job<'a>,
    problem: Problem<'a>,
    limits: Limits,
    seed: u64,
    /// None where each window is searched for by itself.
    slots: Option<Slots>,
}

impl<'a> Windows<'a> {
    /// Whether there are searches for windows of this demand: for none with traffic, or whose factor is still to be chosen.
    #[must_use]
    pub fn are_of(demand: &Demand) -> bool {
        demand.traffic().is_none() && !demand.is_to_be_scaled()
    }

    /// The search for windows of a job on candidates as [`super::plan`] has them; none where there [are none](Self::are_of).
    #[must_use]
    pub fn new(job: &Job<'a>, candidates: &'a [Candidate<'a>], effort: Effort, seed: u64) -> Option<Windows<'a>> {
        if !Windows::are_of(job.demand) {
            return None;
        }
        let problem = Problem::new(job, candidates);
        let is_swept = problem.is_free_choice() && problem.costs.is_none() && is_first_best(&problem, job.objective);
        let slots = is_swept.then(|| Slots::new(&problem, job.earliest, job.latest));
        Some(Windows { job: *job, problem, limits: Limits::of(effort), seed, slots })
    }

    /// The best window on what is left, or why there is none.
    pub fn find(&mut self, observer: &mut impl PhaseObserver) -> PlanOutcome {
        if self.job.latest < self.job.earliest {
            return rejected(Reason::WindowPassed { latest: self.job.latest, earliest: self.job.earliest }, true);
        }
        // Where the sweep ends, the whole search says why.
        observer.enter(Phase::StartTimes);
        match self.swept(observer) {
            Some(plan) => PlanOutcome::Allocated(plan),
            None => self.searched(observer),
        }
    }

    fn searched(&mut self, observer: &mut impl PhaseObserver) -> PlanOutcome {
        let Windows { job, problem, limits, seed, .. } = self;
        let outcome = plan_problem(problem, job, limits, *seed, observer);
        with_cheapest(outcome, || {
            let budget = std::mem::replace(&mut problem.budget, i64::MAX);
            let found = plan_problem(problem, &job.without_budget(), limits, *seed, &mut ());
            problem.budget = budget;
            found
        })
    }

    /// Takes the hosts of a plan whole while it lasts.
    pub fn take(&mut self, plan: &Plan) {
        for seat in &plan.seats {
            let host = self.problem.take_whole(seat);
            if let (Some(slots), Some(host)) = (&mut self.slots, host) {
                slots.read(&self.problem, host);
            }
        }
    }

    fn swept(&mut self, observer: &mut impl PhaseObserver) -> Option<Plan> {
        let Windows { job, problem, limits, slots, .. } = self;
        let slots = slots.as_mut()?;
        let start = Time(slots.next_start(problem.pick)?);
        let slot_of = |there: &[(u32, i64)]| problem.slot_of(start, there.iter().map(|(host, _)| *host as usize));
        let chosen: Vec<u32> = (0..problem.pick as u32).collect();
        let mut slot = slot_of(&slots.there[..problem.pick]);
        // No others are better where these leave nothing unused.
        if job.order.is_some() || optimize::factor(problem, &slot, &chosen) < 1.0 {
            slot = slot_of(&slots.there);
        }
        let value = objective::of(job.objective).value(start.0, slot.measures(problem, &chosen));
        let found = (Solution { slot, chosen, value }, None);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        Some(plan_of(problem, job, limits, found, (&mut random, &mut Judge::default()), observer))
    }
}

/// The sweep over the slots of all hosts.
///
/// Invariant: at each start before `now` fewer than N hosts are left.
struct Slots {
    now: i64,
    latest: i64,
    /// The starts that are left on each host from some time on, as ranges in order.
    free: Vec<Vec<(i64, i64)>>,
    /// The first starts of ranges, the earliest first; those of ranges that are no more are passed over.
    coming: BinaryHeap<Reverse<(i64, u32)>>,
    /// The hosts that are there now, in order, each with its last start.
    there: Vec<(u32, i64)>,
    blocked: Vec<(i64, i64)>,
}

impl Slots {
    fn new(problem: &Problem<'_>, earliest: Time, latest: Time) -> Slots {
        let hosts = problem.hosts.len();
        let mut slots = Slots {
            now: earliest.0,
            latest: latest.0,
            free: vec![Vec::new(); hosts],
            coming: BinaryHeap::new(),
            there: Vec::new(),
            blocked: Vec::new(),
        };
        (0..hosts).for_each(|host| slots.read(problem, host));
        slots
    }

    /// Reads the slots of a host from now on.
    fn read(&mut self, problem: &Problem<'_>, host: usize) {
        let last = self.latest.min(problem.latest(host));
        let free = &mut self.free[host];
        free.clear();
        if self.now <= last {
            find_free(problem, host, (self.now, last), &mut self.blocked, free);
        }
        // The pool holds at most MAX_POOL hosts.
        let number = host as u32;
        self.there.retain(|(there, _)| *there != number);
        self.coming.extend(free.iter().map(|(first, _)| Reverse((*first, number))));
    }

    /// Goes on to the first start at which so many hosts are there.
    fn next_start(&mut self, pick: usize) -> Option<i64> {
        loop {
            // First, since a host that comes may be one whose earlier range has ended.
            let now = self.now;
            self.there.retain(|(_, last)| *last >= now);
            while let Some(Reverse((first, host))) = self.coming.peek().copied().filter(|next| next.0.0 <= self.now) {
                self.coming.pop();
                let range = self.free[host as usize].iter().find(|range| range.0 == first);
                let place = self.there.binary_search_by_key(&host, |there| there.0);
                if let (Some((_, last)), Err(place)) = (range, place) {
                    self.there.insert(place, (host, *last));
                }
            }
            if self.there.len() >= pick {
                return Some(now);
            }
            self.now = self.coming.peek()?.0.0;
        }
    }
}
