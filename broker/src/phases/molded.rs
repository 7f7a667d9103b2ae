//! A moldable request: the factor at which its objective is best, by branch and bound over ranges of factors.
//!
//! The amounts of a range's low end for the lengths of its high end ask for no more than any factor of the range, so what is best for them
//! bounds all of it, and what serves them often serves a factor of the range too. What is found bounds where the next ranges are looked
//! at. Source: `formats.md`, version 2 (`scale`). Invariant: the plan is one of the factor that it names; of equally good factors the one
//! nearest to 1000, as far as the limit of work lets it look.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Candidate, Job, Limits, Phase, PhaseObserver, find, plan_on, plan_on_all, rejected};
use crate::{
    amount::Amount,
    cost::Cost,
    demand::{Demand, Length},
    plan::{Plan, PlanOutcome, Rejection},
    reason::Reason,
    request::ObjectiveKind,
    resources::{ResourceName, amount_of},
    scale::Factor,
    time::Time,
};

/// Most ranges that are planned behind the first.
const RANGES_MAX: u32 = 64;
/// Each of them may look at this part of the nodes that a request may.
const NODES_PART: u64 = 16;

/// Factors, both ends included.
type Range = (Factor, Factor);

/// What is best, then what is nearest to the amounts as they are asked.
type Rank = (i64, u32);

/// How far a range is from the amounts as they are asked.
fn distance((low, high): Range) -> u32 {
    Factor::ONE.clamp(low, high).thousandths().abs_diff(Factor::ONE.thousandths())
}

struct Search<'s, 'a> {
    job: &'s Job<'a>,
    candidates: &'s [Candidate<'a>],
    /// For ranges: whether something fits and since when, not how well it fills its hosts.
    limits: Limits,
    seed: u64,
    best: Option<(Rank, Plan)>,
    /// Ranges that may hold something better, the most promising first, and whether to plan them would say little more.
    open: BinaryHeap<Reverse<(Rank, Range, bool)>>,
    /// The least that single factors may have which were not planned to a proof.
    unproven: Option<i64>,
}

/// The best plan over all factors of a demand whose factor is still to be chosen.
pub(super) fn plan<O: PhaseObserver>(
    job: &Job<'_>,
    candidates: &[Candidate<'_>],
    limits: &Limits,
    seed: u64,
    observer: &mut O,
) -> PlanOutcome {
    let Some(scale) = job.demand.scale() else {
        return rejected(Reason::WindowPassed { latest: job.latest, earliest: job.earliest }, false);
    };
    let nodes = limits.feasibility_nodes_in_all / NODES_PART;
    let coarse = Limits { l2: 0, enumeration_nodes: 0, bound_boxes: 0, escalations: 0, ..*limits };
    let coarse = Limits { feasibility_nodes_in_all: nodes, ..coarse };
    let all = scale.range().into_inner();
    observer.enter(Phase::Find);
    // Who serves no factor at all is looked at once.
    let serving = match find::eligible(&job.demand.relaxed(all), candidates) {
        Ok(serving) => serving.into_iter().map(|at| candidates[at]).collect::<Vec<_>>(),
        Err(reason) => return rejected(reason, true),
    };
    let open = BinaryHeap::new();
    let mut search = Search { job, candidates: &serving, limits: coarse, seed, best: None, open, unproven: None };
    let all = (all.0, search.largest(all));
    if matches!(job.objective, ObjectiveKind::Runtime | ObjectiveKind::HostTime) {
        search.try_largest(all.1, observer);
    }
    if let Some(rejection) = search.look(all, i64::MIN, observer)
        && search.best.is_none()
    {
        return PlanOutcome::Rejected(rejection);
    }
    search.run(observer);
    // What the best factor has beside its value, or why even the plainest has nothing.
    let factor = search.best.as_ref().map_or(scale.plain(), |(_, plan)| plan.scale);
    let demand = job.demand.at_factor(factor);
    let last = plan_on_all(&Job { demand: &demand, ..*job }, &serving, limits, seed, observer);
    search.answer(last)
}

impl Search<'_, '_> {
    /// Each step plans one range. The half of a range that comes second waits with what is known of the whole: often the first makes it needless,
    /// and where the first has nothing the second is as good as planned.
    fn run(&mut self, observer: &mut impl PhaseObserver) {
        for _ in 0..RANGES_MAX {
            let Some(Reverse((rank, range, is_known))) = self.open.pop() else { return };
            if self.best.as_ref().is_some_and(|(best, _)| *best <= rank) {
                self.open.clear();
                return;
            }
            let Some(range) = self.cut(range) else { continue };
            let by_length = self.length_at(range.1).is_some();
            // Where lengths bound a range, its plan says only whether something has a place, and those of its parts say that more sharply.
            if range.0 == range.1 || !(is_known || by_length) {
                self.look(range, rank.0, observer);
                continue;
            }
            let middle = range.0.thousandths().midpoint(range.1.thousandths());
            let halves = [(range.0, Factor::of_thousandths(middle)), (Factor::of_thousandths(middle + 1), range.1)];
            let first = usize::from(by_length || distance(halves[1]) < distance(halves[0]));
            let is_out = self.look(halves[first], rank.0, observer).is_some();
            self.wait(halves[1 - first], rank.0, is_out);
        }
    }

    /// Leaves a range for later; `bound` is known of all of it.
    fn wait(&mut self, range: Range, bound: i64, is_known: bool) {
        let bound = self.length_at(range.1).map_or(bound, |length| length.max(bound));
        self.open.push(Reverse(((bound, distance(range)), range, is_known)));
    }

    /// What a factor is worth, where lengths alone say that.
    fn length_at(&self, factor: Factor) -> Option<i64> {
        let seats = match self.job.objective {
            ObjectiveKind::Runtime => 1,
            ObjectiveKind::HostTime => self.job.demand.seats() as u64,
            ObjectiveKind::Start | ObjectiveKind::Finish | ObjectiveKind::Cost => return None,
        };
        let Length::Duration(length) = self.job.demand.length() else { return None };
        let seconds = length.0.saturating_mul(1000).div_ceil(u64::from(factor.thousandths().max(1)));
        i64::try_from(seconds.saturating_mul(seats)).ok()
    }

    /// Where the largest factor has a place at all, nothing is shorter.
    fn try_largest(&mut self, factor: Factor, observer: &mut impl PhaseObserver) {
        let demand = self.job.demand.at_factor(factor);
        let job = Job { demand: &demand, ..*self.job };
        if let PlanOutcome::Allocated(plan) = plan_on_all(&job, self.candidates, &self.limits, self.seed, observer) {
            self.try_ends((factor, factor), &plan);
        }
    }

    /// The largest factor of a range at which enough hosts are large enough, or its low end.
    fn largest(&self, (low, high): Range) -> Factor {
        let demand = self.job.demand;
        let seats = demand.seats();
        // Amounts are rounded up, so what is whole and at least the product is at least the amount.
        let factor = |room: u128, amount: Amount| (room * 1000).checked_div(u128::from(amount.0)).unwrap_or(u128::MAX);
        let capacity = |host: &Candidate<'_>, name: &ResourceName| u128::from(amount_of(&host.host.capacity, name).0);
        let of_host = |host: &Candidate<'_>| {
            let factors = demand.per_host().iter().map(|(name, amount)| factor(capacity(host, name), *amount));
            factors.min().unwrap_or(u128::MAX)
        };
        let of_total = |(name, amount): (&ResourceName, &Amount)| {
            let mut largest: Vec<u128> = self.candidates.iter().map(|host| capacity(host, name)).collect();
            largest.sort_unstable_by(|a, b| b.cmp(a));
            factor(largest.iter().take(seats).sum(), *amount)
        };
        let mut of_hosts: Vec<u128> = self.candidates.iter().map(of_host).collect();
        of_hosts.sort_unstable_by(|a, b| b.cmp(a));
        let of_hosts = of_hosts.get(seats.saturating_sub(1)).copied();
        let largest = demand.total().iter().map(of_total).chain(of_hosts).min().unwrap_or(u128::MAX);
        Factor::of_thousandths(u32::try_from(largest).unwrap_or(u32::MAX)).clamp(low, high)
    }

    /// Of a range what may be as good as the best so far, where lengths alone say that; none when nothing is.
    fn cut(&self, (low, high): Range) -> Option<Range> {
        let longest = match (self.best.as_ref(), self.job.objective) {
            (Some(((value, _), _)), ObjectiveKind::Runtime) => value.unsigned_abs(),
            (Some(((value, _), _)), ObjectiveKind::HostTime) => value.unsigned_abs() / self.job.demand.seats() as u64,
            _ => return Some((low, high)),
        };
        let Length::Duration(length) = self.job.demand.length() else { return Some((low, high)) };
        // As rounding up takes it: so short, and no shorter, is a seat of this factor.
        let least = length.0.saturating_mul(1000).div_ceil(longest.max(1));
        let low = low.max(Factor::of_thousandths(u32::try_from(least).unwrap_or(u32::MAX)));
        (low <= high).then_some((low, high))
    }

    /// The job of a range, as far as it may be as good as the best so far.
    fn job_within<'j>(&self, demand: &'j Demand) -> Job<'j>
    where
        Self: 'j,
    {
        let job = Job { demand, ..*self.job };
        let Some(((value, _), _)) = self.best else { return job };
        match job.objective {
            ObjectiveKind::Start => Job { latest: job.latest.min(Time(value)), ..job },
            ObjectiveKind::Finish => {
                Job { deadline: Some(job.deadline.map_or(Time(value), |deadline| deadline.min(Time(value)))), ..job }
            }
            ObjectiveKind::Cost => {
                let most = Cost(value.unsigned_abs());
                Job { budget: Some(job.budget.map_or(most, |budget| budget.min(most))), ..job }
            }
            ObjectiveKind::Runtime | ObjectiveKind::HostTime => job,
        }
    }

    /// Plans what a range needs at least; `bound` is known of all of it. Says why, when there is nothing in it that is as good as the best.
    fn look(&mut self, range: Range, bound: i64, observer: &mut impl PhaseObserver) -> Option<Rejection> {
        let range = self.cut(range)?;
        let is_single = range.0 == range.1;
        let demand = self.job.demand.relaxed(range);
        let job = self.job_within(&demand);
        let bound = match plan_on_all(&job, self.candidates, &self.limits, self.seed, observer) {
            PlanOutcome::Rejected(rejection) if rejection.start_proven => return Some(rejection),
            PlanOutcome::Rejected(_) => bound,
            PlanOutcome::Allocated(plan) => {
                self.try_ends(range, &plan);
                plan.objective.bound.map_or(bound, |own| own.max(bound))
            }
        };
        let is_open = self.best.as_ref().is_none_or(|(best, _)| (bound, distance(range)) < *best);
        if is_open && is_single {
            self.unproven = self.unproven.into_iter().chain([bound]).min();
        } else if is_open {
            self.open.push(Reverse(((bound, distance(range)), range, true)));
        }
        None
    }

    /// Which single factors of a range the hosts and the start of a plan for it serve.
    fn try_ends(&mut self, (low, high): Range, plan: &Plan) {
        let is_of = |candidate: &&Candidate<'_>| {
            plan.seats.iter().any(|seat| seat.site == *candidate.site && *seat.host() == candidate.host.id)
        };
        let chosen: Vec<Candidate<'_>> = self.candidates.iter().filter(is_of).copied().collect();
        let plain = Factor::ONE.clamp(low, high);
        let mut factors = vec![plain, low, high];
        factors.dedup();
        factors.retain(|factor| self.try_factor(*factor, &chosen, plan.start));
        let wanted = match self.job.objective {
            ObjectiveKind::Start | ObjectiveKind::Cost => plain,
            // The sooner they are over the better.
            ObjectiveKind::Finish | ObjectiveKind::Runtime | ObjectiveKind::HostTime => high,
        };
        let mut wanted = wanted.thousandths();
        let nearest = factors.into_iter().map(Factor::thousandths).min_by_key(|factor| factor.abs_diff(wanted));
        let Some(mut serving) = nearest else { return };
        // Nearer and nearer to what is wanted, as long as that does not serve.
        while serving.abs_diff(wanted) > 1 {
            let middle = serving.midpoint(wanted);
            if self.try_factor(Factor::of_thousandths(middle), &chosen, plan.start) {
                serving = middle;
            } else {
                wanted = middle;
            }
        }
    }

    /// Whether these hosts serve a factor at this start.
    fn try_factor(&mut self, factor: Factor, chosen: &[Candidate<'_>], start: Time) -> bool {
        let demand = self.job.demand.at_factor(factor);
        let Some(plan) = plan_on(&Job { demand: &demand, ..*self.job }, chosen, start) else { return false };
        let rank = (plan.objective.value, distance((factor, factor)));
        if self.best.as_ref().is_none_or(|(best, _)| rank < *best) {
            self.best = Some((rank, plan));
        }
        true
    }

    /// The plan found, or the one that was made of its factor, whichever is better, with what is proven over all factors.
    fn answer(self, last: PlanOutcome) -> PlanOutcome {
        let open = self.open.into_iter().map(|Reverse(((bound, _), ..))| bound).chain(self.unproven).min();
        let mut plan = match (self.best, last) {
            (Some((_, found)), PlanOutcome::Allocated(plan)) if plan.objective.value <= found.objective.value => plan,
            (Some((_, found)), _) => found,
            (None, PlanOutcome::Allocated(plan)) => plan,
            (None, PlanOutcome::Rejected(Rejection { reason, start_proven })) => {
                return rejected(reason, start_proven && open.is_none());
            }
        };
        let value = plan.objective.value;
        plan.start_proven &= open.is_none_or(|open| open >= value);
        plan.objective.bound = Some(open.map_or(value, |open| open.min(value)));
        PlanOutcome::Allocated(plan)
    }
}
