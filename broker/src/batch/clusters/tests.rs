//! Whether placements fit, against a count of every second; whether the shortest is the shortest, against all orders, modes and starts.

use std::ops::{Range, RangeInclusive};

use proptest::prelude::*;

use super::{
    super::{multicluster::Choice, watch::Watch},
    bounds::Bounds,
    local::{Placed, Placer, Worth, search},
    mesd::mesd,
    modes::Modes,
    package::{Taste, packages},
    problem::{Gang, Group, Link, Placement, Problem, Steps, Units},
    room::Room,
    search::{Work, shortest},
};
use crate::request::Effort;

const NEVER: i64 = i64::MAX / 4;

fn gang(work: i64, compute: i64, seats: Units, mbps: i64, speeds: &[u32]) -> Gang {
    let slow = |speed: &u32| {
        let speed = i64::from(*speed);
        Some((work * (compute * 1000 + (1000 - compute) * speed) + 1000 * speed - 1) / (1000 * speed))
    };
    let n = i64::from(seats);
    let load = |t: i64| Units::try_from((t * mbps * (n - t) + (n - 1).max(1) - 1) / (n - 1).max(1)).unwrap();
    Gang {
        seats,
        earliest: 0,
        latest: NEVER,
        deadline: NEVER,
        seconds: speeds.iter().map(slow).collect(),
        loads: (0..=n).map(load).collect(),
        sites_max: usize::MAX,
    }
}

/// Clusters with these speeds, hosts and uplinks.
fn clusters(all: &[(u32, Units, Units)]) -> Problem {
    let from_start = |level| vec![(0, level)];
    Problem {
        groups: all.iter().enumerate().map(|(site, of)| Group { site, speed: of.0, free: from_start(of.1) }).collect(),
        links: all.iter().enumerate().map(|(site, of)| Link { site, free: from_start(of.2) }).collect(),
        gangs: Vec::new(),
    }
}

fn modes_of(problem: &Problem) -> (Room, Vec<Modes>) {
    let room = Room::of(problem);
    let modes = (0..problem.gangs.len()).map(|gang| Modes::of(problem, &room, gang)).collect();
    (room, modes)
}

/// What is free in every second until `end`, counted from the problem alone.
fn by_second(problem: &Problem, end: i64) -> Vec<Vec<Units>> {
    let all = || problem.groups.iter().map(|group| &group.free).chain(problem.links.iter().map(|link| &link.free));
    let level = |steps: &Steps, at: i64| steps.iter().rfind(|step| step.0 <= at).unwrap_or(&steps[0]).1;
    (0..end).map(|at| all().map(|steps| level(steps, at)).collect()).collect()
}

fn fits_at(free: &[Vec<Units>], needs: &[Units], start: i64, seconds: i64) -> bool {
    (start..start + seconds).all(|at| {
        free.get(usize::try_from(at).unwrap())
            .is_some_and(|free| free.iter().zip(needs).all(|(free, need)| free >= need))
    })
}

fn take(free: &mut [Vec<Units>], needs: &[Units], start: i64, seconds: i64, sign: Units) {
    for at in start..start + seconds {
        let free = &mut free[usize::try_from(at).unwrap()];
        free.iter_mut().zip(needs).for_each(|(free, need)| *free -= sign * need);
    }
}

fn holds(problem: &Problem, modes: &[Modes], placed: &Placed) -> bool {
    let mut free = by_second(problem, 400);
    problem.gangs.iter().zip(modes).zip(placed).all(|((gang, modes), placement)| {
        let Some(Placement { start, mode }) = placement else { return true };
        let mode = &modes.all[*mode];
        let hosts: Units = mode.needs[..problem.groups.len()].iter().sum();
        let fits = hosts == gang.seats
            && (gang.earliest..=gang.latest_start(mode.seconds)).contains(start)
            && fits_at(&free, &mode.needs, *start, mode.seconds);
        if fits {
            take(&mut free, &mode.needs, *start, mode.seconds, 1);
        }
        fits
    })
}

/// The least end over all orders, all modes, and of each the first second at which it fits.
fn least_end(problem: &Problem, modes: &[Modes]) -> Option<i64> {
    fn visit(problem: &Problem, modes: &[Modes], free: &mut [Vec<Units>], left: u32, end: i64, best: &mut Option<i64>) {
        if left == 0 {
            *best = Some(best.map_or(end, |best| best.min(end)));
        }
        for gang in (0..modes.len()).filter(|gang| left & (1 << gang) != 0) {
            for mode in &modes[gang].all {
                let asked = &problem.gangs[gang];
                let last = asked.latest_start(mode.seconds).min(120);
                let Some(start) = (asked.earliest..=last).find(|at| fits_at(free, &mode.needs, *at, mode.seconds))
                else {
                    continue;
                };
                let own = end.max(start + mode.seconds);
                if best.is_none_or(|best| own < best) {
                    take(free, &mode.needs, start, mode.seconds, 1);
                    visit(problem, modes, free, left & !(1 << gang), own, best);
                    take(free, &mode.needs, start, mode.seconds, -1);
                }
            }
        }
    }
    let mut best = None;
    visit(problem, modes, &mut by_second(problem, 200), (1 << modes.len()) - 1, 0, &mut best);
    best
}

/// Two clusters, and up to four gangs.
fn tiny() -> impl Strategy<Value = Problem> {
    some(2..=2, 1..5)
}

/// Clusters, sometimes partly booked, and gangs, some of which arrive later or are in a hurry.
fn some(sites: RangeInclusive<usize>, gangs: Range<usize>) -> impl Strategy<Value = Problem> {
    let cluster = (1_u32..4, 1_i32..4, 0_i32..12, prop::option::of((0_i64..9, 1_i64..9, 0_i32..3)));
    let one =
        (1_i64..20, 0_i64..=10, 1_i32..5, 0_i64..6, prop_oneof![Just(0_i64), 0_i64..9], prop::option::of(0_i64..30));
    (prop::collection::vec(cluster, sites), prop::collection::vec(one, gangs)).prop_map(|(sites, jobs)| {
        let plain: Vec<_> = sites.iter().map(|(speed, hosts, link, _)| (speed * 500, *hosts, *link)).collect();
        let mut problem = clusters(&plain);
        for (site, (.., booked)) in sites.iter().enumerate() {
            let Some((from, length, part)) = *booked else { continue };
            for (steps, part) in [(&mut problem.groups[site].free, part), (&mut problem.links[site].free, part * 3)] {
                let all = steps[0].1;
                steps.extend([(from, (all - part).max(0)), (from + length, all)]);
            }
        }
        let speeds: Vec<u32> = plain.iter().map(|of| of.0).collect();
        problem.gangs = jobs
            .into_iter()
            .map(|(work, compute, seats, mbps, earliest, hurry)| Gang {
                earliest,
                deadline: hurry.map_or(NEVER, |hurry| earliest + work * 2 + hurry),
                ..gang(work, compute * 100, seats, mbps, &speeds)
            })
            .collect();
        problem
    })
}

#[cfg(feature = "oracles")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_general_solver_finds_the_same_end(problem in some(3..=4, 5..8)) {
        let (room, modes) = modes_of(&problem);
        let latest = problem.gangs.iter().map(|gang| gang.earliest).max().unwrap_or(0);
        let longest = |modes: &Modes| modes.all.iter().map(|mode| mode.seconds).max().unwrap_or(0);
        // By then everything is free; a gang after the other ends before this.
        let horizon = latest.max(18) + modes.iter().map(longest).sum::<i64>();
        let least = super::oracle::least_end(&problem, &modes, horizon);
        let (placed, bound) = shortest(&problem, &modes, &room, Work { local: (1, 1), exact: u64::MAX }, Watch::NOBODY);
        let worth = Worth::of(&placed, &modes);
        if worth.postponed == 0 {
            prop_assert_eq!((Some(worth.makespan), bound), (least, least));
        } else if let Some(least) = least {
            prop_assert!(bound.is_some_and(|bound| bound <= least));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn the_shortest_is_the_shortest_of_all_orders_modes_and_starts(problem in tiny()) {
        let (room, modes) = modes_of(&problem);
        let least = least_end(&problem, &modes);
        // Local search alone, and hardly any of it, so that the proof has to find what is better.
        let work = Work { local: (1, 1), exact: u64::MAX };
        let (placed, bound) = shortest(&problem, &modes, &room, work, Watch::NOBODY);
        prop_assert!(holds(&problem, &modes, &placed), "{placed:?}");
        let worth = Worth::of(&placed, &modes);
        if worth.postponed == 0 {
            prop_assert_eq!((Some(worth.makespan), bound), (least, least));
        } else if let Some(least) = least {
            prop_assert!(bound.is_some_and(|bound| bound <= least));
        }
        let bounds = Bounds::of(&problem, &modes, &room);
        prop_assert!(least.is_none_or(|least| bounds.least_end(&problem, NEVER) <= least));
    }

    #[test]
    fn in_slots_placements_hold_and_end_no_earlier(problem in tiny(), slot in 1_i64..7) {
        let slotted = problem.in_slots(slot);
        let ((_, modes), (room, slots)) = (modes_of(&problem), modes_of(&slotted));
        let (placed, _) = shortest(&slotted, &slots, &room, Work { local: (1, 1), exact: u64::MAX }, Watch::NOBODY);
        // The same needs in seconds: shorter than the slots, so what fits there fits here.
        let real: Placed = placed
            .iter()
            .enumerate()
            .map(|(gang, at)| {
                let (at, same) = (at.as_ref()?, |needs: &[Units]| modes[gang].all.iter().position(|of| of.needs == needs));
                Some(Placement { start: at.start * slot, mode: same(&slots[gang].all[at.mode].needs)? })
            })
            .collect();
        prop_assert_eq!(real.iter().flatten().count(), placed.iter().flatten().count());
        prop_assert!(holds(&problem, &modes, &real), "{placed:?}");
        let worth = Worth::of(&real, &modes);
        prop_assert!(worth.postponed > 0 || least_end(&problem, &modes).is_some_and(|least| least <= worth.makespan));
        if slot == 1 {
            let (exact, _) = shortest(&problem, &modes, &room, Work { local: (1, 1), exact: u64::MAX }, Watch::NOBODY);
            prop_assert_eq!(Worth::of(&exact, &modes), worth);
        }
    }

    #[test]
    fn heuristics_hold_and_place_what_is_not_in_a_hurry(problem in tiny()) {
        let (room, modes) = modes_of(&problem);
        let queue: Vec<usize> = (0..modes.len()).collect();
        for placed in [
            mesd(&problem, &modes, &room, Choice::Carried),
            mesd(&problem, &modes, &room, Choice::Literal),
            packages(&problem, &modes, &room, Taste::ShortRuns, &(queue.clone(), true)),
            packages(&problem, &modes, &room, Taste::FewLoads, &(queue.clone(), false)),
            packages(&problem, &modes, &room, Taste::FastHosts, &(queue.clone(), false)),
        ] {
            prop_assert!(holds(&problem, &modes, &placed), "{placed:?}");
        }
        let placed = mesd(&problem, &modes, &room, Choice::Carried);
        for (gang, placement) in placed.iter().enumerate() {
            let is_free = problem.gangs[gang].deadline == NEVER && !modes[gang].all.is_empty();
            prop_assert!(!is_free || placement.is_some(), "{placed:?}");
        }
    }

    #[test]
    fn a_package_is_the_cheapest_of_all_assignments(mut problem in tiny(), taste in 0_usize..3) {
        problem.gangs.iter_mut().for_each(|gang| (gang.earliest, gang.deadline) = (0, NEVER));
        let (room, modes) = modes_of(&problem);
        let taste = [Taste::ShortRuns, Taste::FewLoads, Taste::FastHosts][taste];
        let queue: Vec<usize> = (0..modes.len()).collect();
        let placed = packages(&problem, &modes, &room, taste, &(queue, false));
        let costs: Vec<_> = modes.iter().map(|of| taste.costs(&problem, of)).collect();
        let first: Vec<usize> =
            (0..modes.len()).filter(|gang| placed[*gang].as_ref().is_some_and(|at| at.start == 0)).collect();
        let of = |gang: usize| costs[gang][placed[gang].as_ref().unwrap().mode].unwrap();
        let cost: i64 = first.iter().map(|gang| of(*gang)).sum();
        let mut free = by_second(&problem, 200);
        prop_assert_eq!(cost, cheapest(&modes, &costs, &first, &mut free).unwrap());
    }
}

/// The least sum of costs over all modes that start at 0 and fit together.
fn cheapest(modes: &[Modes], costs: &[Vec<Option<i64>>], gangs: &[usize], free: &mut [Vec<Units>]) -> Option<i64> {
    let Some((gang, rest)) = gangs.split_first() else { return Some(0) };
    let mut best = None;
    for (mode, cost) in modes[*gang].all.iter().zip(&costs[*gang]) {
        let Some(cost) = cost.filter(|_| fits_at(free, &mode.needs, 0, mode.seconds)) else { continue };
        take(free, &mode.needs, 0, mode.seconds, 1);
        let all = cheapest(modes, costs, rest, free).map(|rest| rest + cost);
        take(free, &mode.needs, 0, mode.seconds, -1);
        best = [best, all].into_iter().flatten().min();
    }
    best
}

#[test]
fn the_example_of_the_source_is_ordered_as_it_says() {
    // Section 3.3.4: one cluster; the ideal times are those of its formulas, rounded up.
    let speeds = [750, 500, 250, 150];
    let mut problem = clusters(&[(750, 2, 0), (500, 1, 0), (250, 1, 0), (150, 1, 0)]);
    problem.links.clear();
    problem.groups.iter_mut().for_each(|group| group.site = 0);
    problem.gangs = [(2, 500, 100), (3, 700, 50), (2, 500, 75), (2, 700, 100)]
        .map(|(seats, compute, work)| gang(work, compute, seats, 0, &speeds))
        .to_vec();
    let (room, modes) = modes_of(&problem);
    let ideal: Vec<i64> = modes.iter().map(|modes| modes.all[0].seconds).collect();
    assert_eq!(ideal, [117, 85, 88, 124]);
    for choice in [Choice::Carried, Choice::Literal] {
        let placed = mesd(&problem, &modes, &room, choice);
        let runs: Vec<(i64, i64)> = (placed.iter().zip(&modes))
            .map(|(placement, modes)| placement.as_ref().map(|at| (at.start, modes.all[at.mode].seconds)).unwrap())
            .collect();
        // J1 and J3 at once (J3 on .5 and .25: 187.5 s); J4 follows J1 on its hosts, J2 comes last.
        assert_eq!(runs[..1], [(0, 117)], "{choice:?}");
        assert_eq!((runs[2], runs[3]), ((0, 188), (117, 124)), "{choice:?}");
        assert!(runs[1].0 >= 117, "{choice:?} {runs:?}");
    }
}

#[test]
fn a_link_that_is_full_makes_the_literal_choice_wait() {
    // Two seats on two clusters of one host each exchange 10; another gang has the link for its time.
    let mut problem = clusters(&[(1000, 1, 10), (1000, 2, 10)]);
    let speeds = [1000, 1000];
    problem.gangs = vec![gang(10, 1000, 2, 10, &speeds), gang(10, 1000, 2, 10, &speeds)];
    problem.groups[1].free = vec![(0, 1), (10, 2)];
    let (room, modes) = modes_of(&problem);
    let placed = mesd(&problem, &modes, &room, Choice::Carried);
    assert!(holds(&problem, &modes, &placed));
    assert_eq!(placed.iter().flatten().map(|at| at.start).collect::<Vec<_>>(), [0, 10]);
}

#[test]
fn links_of_zero_keep_gangs_at_one_site() {
    let mut problem = clusters(&[(1000, 2, 0), (500, 3, 0)]);
    problem.gangs = [2, 3, 4].map(|seats| gang(10, 1000, seats, 5, &[1000, 500])).to_vec();
    let (room, modes) = modes_of(&problem);
    assert_eq!(modes.iter().map(|modes| modes.all.len()).collect::<Vec<_>>(), [2, 1, 0]);
    let (placed, _) = shortest(&problem, &modes, &room, Work::of(3, Effort::Balanced), Watch::NOBODY);
    assert_eq!(placed[2], None);
    assert!(placed[0].is_some() && placed[1].is_some());
}

#[test]
fn more_gangs_than_a_proof_takes_cost_no_more_work_once_the_bound_is_met() {
    // Twenty gangs of one host on twenty hosts; one more that no link carries must not keep the search going.
    let mut problem = clusters(&[(1000, 10, 0), (500, 10, 0)]);
    problem.gangs = vec![gang(10, 0, 1, 0, &[1000, 500]); 20];
    let (room, modes) = modes_of(&problem);
    let bounds = Bounds::of(&problem, &modes, &room);
    let least = bounds.least_end(&problem, NEVER);
    let mut placer = Placer::new(&problem, &modes, &room, Watch::NOBODY);
    let (_, worth) = search(&mut placer, (20, 1_000_000), least);
    assert_eq!((worth.makespan, worth.postponed), (least, 0));
    assert!(placer.work < 1_000, "{}", placer.work);
}

#[test]
fn too_many_modes_are_cut_and_nothing_is_claimed() {
    let mut problem = clusters(&[(1000, 9, 9_000); 12]);
    problem.gangs = vec![gang(10, 1000, 40, 1, &[1000; 12]); 3];
    let (room, modes) = modes_of(&problem);
    assert!(modes.iter().all(|modes| modes.is_cut && !modes.all.is_empty()));
    let (placed, bound) = shortest(&problem, &modes, &room, Work { local: (1, 1_000), exact: 0 }, Watch::NOBODY);
    assert!(bound.is_none() && placed.iter().all(Option::is_some) && holds(&problem, &modes, &placed));
}
