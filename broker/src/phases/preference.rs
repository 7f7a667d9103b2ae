//! Which of several nearly equal plans is taken. Coordinators that plan at one time on the same schedules would all take the same
//! hosts, and all but one be refused; so each prefers hosts in an order of its own, drawn for its request.
//!
//! Invariant: the set stays feasible, and its factor is at most the part [`NEARLY`] below that of the best set found. What is proven of the
//! best factor stays true.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    Candidate,
    field::Field,
    optimize::{LANES_MAX, Optimum},
    problem::{Problem, Slot},
};
use crate::{
    ids::SiteId,
    resources::{ResourceName, amount_of},
    time::{Span, Time, Window},
};

/// This part of the factor is given up for hosts that others do not take.
pub(crate) const NEARLY: f64 = 0.001;
/// Most swaps tried.
const TRIES_MAX: usize = 1 << 16;

/// The place of each candidate in the order of a request: the lower, the more it is preferred. It depends on the request and on
/// the host only, not on the other candidates.
pub(crate) fn ranks(order: u64, candidates: &[&Candidate<'_>]) -> Vec<u64> {
    let rank = |candidate: &&Candidate<'_>| {
        let names = [candidate.site.as_str(), candidate.host.id.as_str()];
        names.iter().fold(order, |hash, name| mixed(fnv_1a(hash, name)))
    };
    candidates.iter().map(rank).collect()
}

/// The place of a site in the order of a request: the lower, the more it is preferred. It depends on the request and the site only.
#[must_use]
pub fn site_rank(order: u64, site: &SiteId) -> u64 {
    mixed(fnv_1a(order, site.as_str()))
}

/// The ranks of [`ranks`], but hosts of the sites come first that have most processors free at that time, as the source of plans with deadlines has it:
/// so load spreads over the sites.
pub(crate) fn spreading_ranks(order: u64, candidates: &[&Candidate<'_>], at: Time) -> Vec<u64> {
    let (cpu, moment) = (ResourceName::cpu(), Window::starting(at, Span(1)));
    let mut free: BTreeMap<&SiteId, u64> = BTreeMap::new();
    for candidate in candidates {
        let used = candidate.schedule.peak(&cpu, moment);
        let left = amount_of(&candidate.host.capacity, &cpu).0.saturating_sub(used.0);
        let of_site = free.entry(candidate.site).or_default();
        *of_site = of_site.saturating_add(left);
    }
    let mut most_first: Vec<u64> = free.values().copied().collect();
    most_first.sort_unstable_by_key(|free| Reverse(*free));
    let place = |candidate: &&Candidate<'_>| {
        let of_site = free.get(candidate.site).copied().unwrap_or_default();
        most_first.partition_point(|free| *free > of_site) as u64
    };
    // Sites are fewer than hosts, of which one planner never sees that many.
    let ranks = ranks(order, candidates).into_iter().zip(candidates);
    ranks.map(|(rank, candidate)| (place(candidate) << 32) | (rank >> 32)).collect()
}

/// The hash FNV-1a of a name and its end, begun with another hash.
fn fnv_1a(begun: u64, name: &str) -> u64 {
    let bytes = name.bytes().chain([0xff]);
    bytes.fold(begun ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads the last bytes over all bits: the finalizer of SplitMix64.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Swaps hosts of the best set for preferred ones while it stays nearly as good.
pub(crate) fn prefer(problem: &Problem<'_>, slot: &Slot, optimum: &mut Optimum, ranks: &[u64]) {
    match problem.width() {
        0..=4 => prefer_in::<4>(problem, slot, optimum, ranks),
        5..=8 => prefer_in::<8>(problem, slot, optimum, ranks),
        _ => prefer_in::<LANES_MAX>(problem, slot, optimum, ranks),
    }
}

fn prefer_in<const LANES: usize>(problem: &Problem<'_>, slot: &Slot, optimum: &mut Optimum, ranks: &[u64]) {
    let field = Field::<LANES>::new(problem, slot);
    let rank = |at: u32| ranks[slot.hosts[at as usize] as usize];
    let mut chosen = optimum.chosen.clone();
    let mut is_chosen = vec![false; slot.len()];
    chosen.iter().for_each(|at| is_chosen[*at as usize] = true);
    let mut outside: Vec<u32> = (0..slot.len() as u32).filter(|at| !is_chosen[*at as usize]).collect();
    let least = optimum.factor * (1.0 - NEARLY);
    outside.sort_unstable_by_key(|at| rank(*at));
    let (mut sums, mut tries_left) = (field.sums(&chosen), TRIES_MAX);
    let (mut member, mut without_swap) = (0, 0);
    while without_swap < chosen.len() {
        let leaving = chosen[member];
        let mut swap = None;
        for (index, outsider) in outside.iter().enumerate() {
            if rank(*outsider) >= rank(leaving) || tries_left == 0 {
                break;
            }
            tries_left -= 1;
            let swapped = sums.swapped(&field.hosts[leaving as usize], &field.hosts[*outsider as usize]);
            if swapped.is_feasible() && swapped.factor() >= least {
                swap = Some((index, swapped));
                break;
            }
        }
        match swap {
            Some((index, swapped)) => {
                chosen[member] = outside.remove(index);
                let place = outside.partition_point(|at| rank(*at) < rank(leaving));
                outside.insert(place, leaving);
                (sums, without_swap) = (swapped, 0);
            }
            None => without_swap += 1,
        }
        member = (member + 1) % chosen.len();
    }
    // Fresh sums: the others drift by rounding where amounts are large.
    let factor = field.sums(&chosen).factor();
    if slot.is_feasible(problem, &chosen) && factor >= least {
        (optimum.chosen, optimum.factor) = (chosen, factor);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::{
        host::Host,
        ids::SiteId,
        phases::{Candidate, Job, plan},
        plan::{Plan, PlanOutcome},
        request::{Effort, Request},
        schedule::Schedule,
        time::{Time, Window},
    };

    use super::NEARLY;

    fn hosts(capacities: &[(u64, u64)]) -> Vec<(SiteId, Host)> {
        let host = |(index, (cpu, memory)): (usize, &(u64, u64))| {
            let text = format!(
                r#"{{"id":"h{index}","capacity":{{"cpu":{cpu},"memory":{memory}}},"attributes":{{}},"speed":1000}}"#
            );
            (SiteId::new(&format!("s{}", index % 5)).unwrap(), serde_json::from_str(&text).unwrap())
        };
        capacities.iter().enumerate().map(host).collect()
    }

    fn planned(hosts: &[(SiteId, Host)], request: &Request, order: Option<u64>) -> Option<Plan> {
        let schedule = Schedule::default();
        let candidate = |(site, host)| Candidate { site, host, schedule: &schedule };
        let candidates: Vec<Candidate<'_>> = hosts.iter().map(|(site, host)| candidate((site, host))).collect();
        let job = Job { order, ..Job::of(request, (Time(0), Time(0))) };
        match plan(&job, &candidates, Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Allocated(plan) => Some(plan),
            PlanOutcome::Rejected(_) => None,
        }
    }

    proptest! {
        #[test]
        fn what_is_preferred_is_feasible_and_nearly_as_good(
            capacities in proptest::collection::vec((500_u64..4_000, 500_u64..4_000), 3..14),
            (cpu, memory, order) in (0_u64..6_000, 0_u64..6_000, any::<u64>()),
        ) {
            let hosts = hosts(&capacities);
            let text = format!(r#"{{"hosts":3,"duration":60,"total":{{"cpu":{cpu},"memory":{memory}}}}}"#);
            let request: Request = serde_json::from_str(&text).unwrap();
            let (best, preferred) = (planned(&hosts, &request, None), planned(&hosts, &request, Some(order)));
            prop_assert_eq!(best.is_some(), preferred.is_some());
            if let (Some(best), Some(preferred)) = (best, preferred) {
                prop_assert!(preferred.efficiency <= best.efficiency_bound && preferred.efficiency >= best.efficiency * (1.0 - 2.0 * NEARLY));
                prop_assert_eq!(preferred.efficiency_bound, best.efficiency_bound);
                prop_assert_eq!(preferred.start_proven, best.start_proven);
                let got = |name: &str| -> u64 {
                    let of = |seat: &crate::plan::Seat| {
                        seat.amounts.iter().filter(|(of, _)| of.as_str() == name).map(|(_, amount)| amount.0).sum::<u64>()
                    };
                    preferred.seats.iter().map(of).sum()
                };
                prop_assert!(got("cpu") >= cpu && got("memory") >= memory);
                let distinct: BTreeSet<_> = preferred.seats.iter().map(|seat| (&seat.site, seat.host())).collect();
                prop_assert_eq!(distinct.len(), 3);
            }
        }
    }

    #[test]
    fn who_spreads_takes_hosts_of_the_site_with_most_processors_free() {
        let hosts = hosts(&[(2_000, 2_000); 20]);
        let request: Request = serde_json::from_str(r#"{"hosts":3,"duration":60,"total":{"cpu":3000}}"#).unwrap();
        // No host is free before 10; what is free then counts.
        let during = |start, end| {
            let mut schedule = Schedule::default();
            schedule.add(Window { start: Time(start), end: Time(end) }, &hosts[0].1.capacity);
            schedule
        };
        let (idle, busy) = (during(0, 10), during(0, 20));
        for (free, order) in (0..5).zip(0..) {
            // Each other site has three hosts free, as many as are asked for.
            let schedule = |number: usize| if number < 5 && number != free { &busy } else { &idle };
            let candidates: Vec<Candidate<'_>> = (hosts.iter().enumerate())
                .map(|(number, (site, host))| Candidate { site, host, schedule: schedule(number) })
                .collect();
            let job = Job { order: Some(order), spreads: true, ..Job::of(&request, (Time(0), Time(10))) };
            let PlanOutcome::Allocated(plan) = plan(&job, &candidates, Effort::Balanced, 1, &mut ()) else { panic!() };
            assert!(plan.seats.iter().all(|seat| seat.site.as_str() == format!("s{free}")), "{plan:?}");
        }
    }

    #[test]
    fn requests_of_equal_demand_prefer_different_hosts() {
        let hosts = hosts(&[(2_000, 2_000); 20]);
        let request: Request = serde_json::from_str(r#"{"hosts":3,"duration":60,"total":{"cpu":3000}}"#).unwrap();
        let of = |order| {
            let plan = planned(&hosts, &request, order).unwrap();
            plan.seats.iter().map(|seat| seat.host().to_string()).collect::<Vec<_>>()
        };
        let sets: BTreeSet<_> = (0..50).map(|order| of(Some(order))).collect();
        assert!(sets.len() > 40, "{}", sets.len());
        assert_eq!(of(Some(7)), of(Some(7)));
        assert_eq!(of(None), of(None));
    }
}
