//! The scan over slots that the planner is compared with: one pass in order of their starts, which keeps the slots that are open.
//!
//! At the start of each slot the N cheapest open ones are taken; where the criterion is about time, members are then exchanged for
//! others within the budget while that helps. Source: the dissertation on windows of slots, chapter 2 (one algorithm a criterion, and
//! the shift to the left). Invariant: no search; nothing is proven of an answer.

use crate::{
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        request::{Request, RequestDocument},
        snapshot::GridSnapshot,
        strategy::{Phases, Strategy as _},
    };

    proptest! {
        #[test]
        fn its_plans_hold_and_are_never_better_than_the_best(
            hosts in prop::collection::vec((500_u32..4000, 0_i64..40, 1_i64..30, 0_u32..900_000), 1..12),
            (seats, work, budget) in (1_u32..5, 1_i64..30, prop::option::of(0_u64..200)),
        ) {
            let host = |(at, (speed, from, length, price)): (usize, &(u32, i64, i64, u32))| {
                let until = from + length;
                format!(r#"{{"id":"h{at}","site":"s","resources":{{"cpu":100}},"speed":{speed},"prices":{{"cpu":{price}}},"occupancy":{{"cpu":[[{from},1],[{until},0]]}}}}"#)
            };
            let hosts: Vec<String> = hosts.iter().enumerate().map(host).collect();
            let grid = GridSnapshot::read(&format!(r#"{{"format":"kolo-grid/2","hosts":[{}]}}"#, hosts.join(","))).unwrap();
            let all = grid.hosts.iter();
            let candidates: Vec<Candidate<'_>> =
                all.map(|entry| Candidate { site: &entry.site, host: &entry.host, schedule: &entry.schedule }).collect();
            for kind in ["start", "finish", "runtime", "host_time", "cost"] {
                let text = format!(r#"{{"hosts":{seats},"work":{work},"per_host":{{"cpu":100}},"objective":"{kind}"}}"#);
                let document: RequestDocument = serde_json::from_str(&text).unwrap();
                let request = Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap();
                let job = Job::of(&request, (Time(0), Time(60)));
                let best = Phases.plan(&job, &candidates, Effort::Balanced, 1, &mut ());
                let scan = |shifts| SlotScan { shifts }.plan(&job, &candidates, Effort::Balanced, 1, &mut ());
                let (plain, shifted) = (scan(false), scan(true));
                // Prices never change, so it finds the first start, and the least cost.
                prop_assert_eq!(plain.plan().is_some(), best.plan().is_some());
                for outcome in [plain, shifted] {
                    let (Some(plan), Some(best)) = (outcome.plan(), best.plan()) else { continue };
                    prop_assert!(plan.objective.value >= best.objective.value, "{kind}");
                    let is_exact = ["start", "cost"].contains(&kind);
                    prop_assert!(!is_exact || plan.objective.value == best.objective.value, "{kind}");
                    prop_assert!(budget.is_none_or(|budget| plan.cost().0 <= budget));
                }
            }
        }
    }
}
