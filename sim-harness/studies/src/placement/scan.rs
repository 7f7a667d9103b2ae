//! The scan over slots that the planner is compared with: one pass in order of their starts, which keeps the slots that are open.
//!
//! At the start of each slot the N cheapest open ones are taken; where the criterion is about time, members are then exchanged for
//! others within the budget while that helps. Source: the dissertation on windows of slots, chapter 2 (one algorithm a criterion, and
//! the shift to the left). Invariant: no search; nothing is proven of an answer.

use broker::{
    cost::Cost,
    ids::HostId,
    phases::{Candidate, FreeSlot, Job, PhaseObserver, free_slots, plan_on},
    plan::{Plan, PlanOutcome},
    request::{Effort, ObjectiveKind},
    strategy::Strategy,
    time::Time,
};

/// The strategy.
#[derive(Debug)]
pub struct SlotScan {
    /// The window found slides to the left as far as its slots allow.
    pub shifts: bool,
}

impl Strategy for SlotScan {
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        _: Effort,
        _: u64,
        _: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        let slots = free_slots(job, candidates);
        let (mut open, mut best): (Vec<FreeSlot<'_>>, Option<(Vec<FreeSlot<'_>>, Plan)>) = (Vec::new(), None);
        for slot in &slots {
            open.retain(|other| other.last >= slot.first);
            open.push(*slot);
            let Some(window) = choose(job, &open, slot.first) else { continue };
            let Some(plan) = planned(job, &window, slot.first) else { continue };
            if best.as_ref().is_none_or(|(_, best)| plan.objective.value < best.objective.value) {
                best = Some((window, plan));
            }
            if job.objective == ObjectiveKind::Start {
                break;
            }
        }
        let Some((window, plan)) = best else {
            return PlanOutcome::unexplained(job.earliest, job.demand.seats());
        };
        let leftmost = window.iter().map(|slot| slot.first).max().filter(|_| self.shifts);
        // At another start the prices may be others.
        let shifted = leftmost.and_then(|start| planned(job, &window, start));
        PlanOutcome::Allocated(shifted.unwrap_or(plan))
    }
}

fn planned(job: &Job<'_>, window: &[FreeSlot<'_>], start: Time) -> Option<Plan> {
    let chosen: Vec<Candidate<'_>> = window.iter().map(|slot| *slot.candidate).collect();
    plan_on(job, &chosen, start)
}

fn name<'s>(slot: &'s FreeSlot<'_>) -> &'s HostId {
    &slot.candidate.host.id
}

/// N of the open slots by the criterion within the budget, when N seats begin at `start`.
fn choose<'a>(job: &Job<'_>, open: &[FreeSlot<'a>], start: Time) -> Option<Vec<FreeSlot<'a>>> {
    let pick = job.demand.seats();
    if open.len() < pick {
        return None;
    }
    let demand = job.demand;
    let minima = demand.minima();
    let cost = |slot: &FreeSlot<'_>| {
        let host = slot.candidate.host;
        let amounts = if demand.is_exclusive() { &host.capacity } else { &minima };
        host.tariff.prices.of_seat(start, slot.length, amounts)
    };
    let mut seats: Vec<(Cost, FreeSlot<'_>)> = open.iter().map(|slot| (cost(slot), *slot)).collect();
    seats.sort_by(|(a, one), (b, other)| (a, name(one)).cmp(&(b, name(other))));
    let mut outside = seats.split_off(pick);
    let budget = job.budget.unwrap_or(Cost(u64::MAX));
    let mut spent: Cost = seats.iter().map(|(cost, _)| *cost).sum();
    if spent > budget {
        return None;
    }
    let is_timed = !matches!(job.objective, ObjectiveKind::Start | ObjectiveKind::Cost);
    // The longest member goes for the cheapest shorter one outside.
    while is_timed
        && let Some(longest) = (0..pick).max_by_key(|at| seats[*at].1.length)
        && let Some(shorter) = outside.iter().position(|(cost, slot)| {
            slot.length < seats[longest].1.length && spent.0 - seats[longest].0.0 + cost.0 <= budget.0
        })
    {
        spent = Cost(spent.0 - seats[longest].0.0 + outside[shorter].0.0);
        std::mem::swap(&mut seats[longest], &mut outside[shorter]);
    }
    Some(seats.into_iter().map(|(_, slot)| slot).collect())
}
