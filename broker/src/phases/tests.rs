//! The phases against exhaustive search on small grids: earliest start, feasibility, best factor, bounds and proofs.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    amount::Amount,
    host::Speed,
    ids::HostId,
    plan::Seat,
    request::RequestDocument,
    resources::{Amounts, ResourceName, amount_of},
    time::{Span, Window},
};

const NAMES: [&str; 3] = ["cpu", "memory", "mhz"];

/// A host as the tests make it: capacities, and steps of use for every resource.
type RawHost = (Vec<u64>, Vec<BTreeMap<i64, u64>>);

struct Grid {
    site: SiteId,
    hosts: Vec<(Host, Schedule)>,
}

impl Grid {
    fn new(raw: &[RawHost]) -> Grid {
        let hosts = raw.iter().enumerate().map(|(index, (capacities, occupancies))| {
            let capacity = named(capacities.iter().map(|amount| Amount(*amount)));
            let steps =
                occupancies.iter().map(|steps| steps.iter().map(|(t, used)| (Time(*t), Amount(*used))).collect());
            let schedule = Schedule::from_steps(&named(steps)).unwrap();
            let id = HostId::new(&format!("h{index:03}")).unwrap();
            (Host { id, capacity, attributes: BTreeMap::new(), speed: Speed::REFERENCE }, schedule)
        });
        Grid { site: SiteId::new("s").unwrap(), hosts: hosts.collect() }
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        self.hosts.iter().map(|(host, schedule)| Candidate { site: &self.site, host, schedule }).collect()
    }

    fn host(&self, id: &HostId) -> &(Host, Schedule) {
        self.hosts.iter().find(|(host, _)| host.id == *id).unwrap()
    }
}

fn named<T>(values: impl Iterator<Item = T>) -> BTreeMap<ResourceName, T> {
    NAMES.iter().map(|name| ResourceName::new(name).unwrap()).zip(values).collect()
}

fn request(hosts: u32, duration: i64, per_host: &[Option<u64>], total: &[Option<u64>]) -> Request {
    let pick = |amounts: &[Option<u64>]| -> Amounts {
        let all = named(amounts.iter().copied());
        all.into_iter().filter_map(|(name, amount)| Some((name, Amount(amount?)))).collect()
    };
    let document = RequestDocument {
        hosts,
        duration: Some(duration),
        per_host: pick(per_host),
        total: pick(total),
        ..RequestDocument::default()
    };
    Request::try_from(document).unwrap()
}

/// Everything there is to know about one start.
struct Exhaustive {
    feasible: bool,
    best: f64,
}

fn factor(request: &Request, window: Window, hosts: &[&(Host, Schedule)]) -> f64 {
    let resources = request.demand().resources();
    let ratio = |name: &ResourceName| {
        let used: u64 = hosts.iter().map(|(_, schedule)| schedule.peak(name, window).0).sum();
        let capacity: u64 = hosts.iter().map(|(host, _)| amount_of(&host.capacity, name).0).sum();
        (request_needs(request, name) + used) as f64 / capacity.max(1) as f64
    };
    resources.iter().map(ratio).product()
}

fn request_needs(request: &Request, name: &ResourceName) -> u64 {
    request.demand().needed_in_sum(name).0
}

/// Looks at every N-subset of the hosts that are available at `start`.
fn look(grid: &Grid, request: &Request, start: i64) -> Exhaustive {
    let window = Window::starting(Time(start), request.demand().length().at_reference());
    let resources = request.demand().resources();
    let free = |(host, schedule): &(Host, Schedule), name: &ResourceName| {
        i128::from(amount_of(&host.capacity, name).0) - i128::from(schedule.peak(name, window).0)
    };
    let available: Vec<_> = grid
        .hosts
        .iter()
        .filter(|host| {
            resources.iter().all(|name| free(host, name) >= i128::from(request.demand().minimum_on_each(name).0))
        })
        .collect();
    let mut found = Exhaustive { feasible: false, best: 0.0 };
    for subset in 0_u32..1 << available.len() {
        if subset.count_ones() as usize != request.demand().seats() {
            continue;
        }
        let set: Vec<_> = (0..available.len()).filter(|at| subset >> at & 1 == 1).map(|at| available[at]).collect();
        let reaches = |name: &ResourceName| {
            set.iter().map(|host| free(host, name)).sum::<i128>() >= i128::from(request_needs(request, name))
        };
        if resources.iter().all(reaches) {
            found.feasible = true;
            found.best = found.best.max(factor(request, window, &set));
        }
    }
    found
}

/// Panics unless the grants are what the request asks, and fit beside what is there.
fn check_seats(grid: &Grid, request: &Request, start: Time, seats: &[Seat]) {
    let window = Window::starting(start, request.demand().length().at_reference());
    assert_eq!(seats.len(), request.demand().seats());
    assert!(seats.is_sorted_by(|a, b| (&a.site, a.host()) < (&b.site, b.host())), "distinct and in order");
    for name in request.demand().resources() {
        let mut sum = 0;
        for seat in seats {
            let (host, schedule) = grid.host(seat.host());
            let amount = amount_of(&seat.amounts, &name).0;
            assert!(amount >= amount_of(request.demand().per_host(), &name).0);
            assert!(amount + schedule.peak(&name, window).0 <= amount_of(&host.capacity, &name).0);
            sum += amount;
        }
        assert_eq!(sum, request_needs(request, &name));
    }
}

fn hosts_strategy(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<RawHost>> {
    let steps = prop::collection::btree_map(0_i64..40, 0_u64..12, 0..8);
    prop::collection::vec((prop::collection::vec(0_u64..14, 3), prop::collection::vec(steps, 3)), count)
}

fn amounts_strategy(most: u64) -> impl Strategy<Value = Vec<Option<u64>>> {
    prop::collection::vec(prop::option::of(0..most), 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn answers_match_exhaustive_search(
        raw in hosts_strategy(1..9), hosts in 1_u32..5, duration in 1_i64..14,
        per_host in amounts_strategy(4), total in amounts_strategy(36),
        earliest in 0_i64..20, reach in 0_i64..24, seed in 0_u64..4,
    ) {
        let grid = Grid::new(&raw);
        let request = request(hosts, duration, &per_host, &total);
        let (first, last) = (Time(earliest), Time(earliest + reach));
        let best_start = (earliest..=earliest + reach).find(|start| look(&grid, &request, *start).feasible);
        for effort in [Effort::Fast, Effort::Balanced, Effort::Thorough] {
            match plan(&Job::of(&request, (first, last)), &grid.candidates(), effort, seed, &mut ()) {
                PlanOutcome::Allocated(plan) => {
                    check_seats(&grid, &request, plan.start, &plan.seats);
                    prop_assert_eq!(Some(plan.start.0), best_start);
                    prop_assert!(plan.start_proven);
                    let chosen: Vec<_> = plan.seats.iter().map(|grant| grid.host(grant.host())).collect();
                    let window = Window::starting(plan.start, request.demand().length().at_reference());
                    let real = factor(&request, window, &chosen);
                    prop_assert!((plan.efficiency - real).abs() <= 1e-12 * real.max(1.0));
                    let best = look(&grid, &request, plan.start.0).best;
                    prop_assert!(plan.efficiency <= best * (1.0 + 1e-12));
                    prop_assert!(plan.efficiency_bound >= best * (1.0 - 1e-12), "{} < {}", plan.efficiency_bound, best);
                    if effort != Effort::Fast {
                        prop_assert!(plan.efficiency >= best * (1.0 - 1e-9), "{} of {}", plan.efficiency, best);
                    }
                }
                PlanOutcome::Rejected(rejection) => {
                    prop_assert_eq!(None, best_start);
                    prop_assert!(rejection.start_proven);
                    prop_assert!(!rejection.reason.detail().is_empty());
                }
            }
        }
    }

    #[test]
    fn many_steps_are_swept_like_single_starts(
        raw in prop::collection::vec((
            prop::collection::vec(6_u64..14, 3),
            prop::collection::vec(prop::collection::btree_map(0_i64..900, 0_u64..13, 60..160), 3),
        ), 4..7),
        duration in 1_i64..120, total in prop::collection::vec(prop::option::of(8_u64..24), 3),
    ) {
        let grid = Grid::new(&raw);
        let request = request(3, duration, &[Some(1), Some(1), None], &total);
        let best_start = (0..=850).find(|start| look(&grid, &request, *start).feasible);
        let outcome = plan(&Job::of(&request, (Time(0), Time(850))), &grid.candidates(), Effort::Balanced, 1, &mut ());
        prop_assert!(outcome.start_proven());
        prop_assert_eq!(outcome.plan().map(|plan| plan.start.0), best_start);
        if let PlanOutcome::Rejected(Rejection { reason: Reason::NoWindow { nearest, .. }, .. }) = outcome {
            prop_assert!((0..=850).contains(&nearest.start.0));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_the_order_of_hosts_does_not_matter(
        raw in hosts_strategy(6..24), hosts in 2_u32..8, per_host in amounts_strategy(3), total in amounts_strategy(40),
        turn in 0_usize..24, seed in 0_u64..1000,
    ) {
        let grid = Grid::new(&raw);
        let request = request(hosts, 5, &per_host, &total);
        let mut candidates = grid.candidates();
        let answer = |candidates: &[Candidate<'_>]| {
            plan(&Job::of(&request, (Time(0), Time(40))), candidates, Effort::Balanced, seed, &mut ())
        };
        let first = answer(&candidates);
        prop_assert_eq!(&first, &answer(&candidates));
        let count = candidates.len();
        candidates.rotate_left(turn % count);
        candidates.push(candidates[0]);
        prop_assert_eq!(first, answer(&candidates));
    }

    #[test]
    fn no_amount_and_no_window_panics(
        capacities in prop::collection::vec(prop::collection::vec(prop_oneof![
            Just(0), Just(1), Just(Amount::MAX.0), Just(u64::MAX), 0..=Amount::MAX.0], 3), 0..12),
        hosts in 1_u32..15,
        per_host in prop::collection::vec(prop::option::of(prop_oneof![Just(0), Just(1), Just(Amount::MAX.0)]), 3),
        total in prop::collection::vec(prop::option::of(prop_oneof![
            Just(0), Just(1), Just(Amount::MAX.0), 0..=Amount::MAX.0]), 3),
        duration in prop_oneof![Just(1), Just(Time::MAX.0), 1_i64..1000],
        earliest in prop_oneof![Just(0), Just(Time::MAX.0), 0_i64..1000],
        reach in prop_oneof![Just(0), 0_i64..1000],
        used in prop_oneof![Just(0), Just(1), Just(Amount::MAX.0)],
    ) {
        let steps: Vec<_> = NAMES.iter().map(|_| BTreeMap::from([(3, used), (500, 0)])).collect();
        let raw: Vec<RawHost> = capacities.into_iter().map(|capacity| (capacity, steps.clone())).collect();
        let grid = Grid::new(&raw);
        let request = request(hosts, duration, &per_host, &total);
        let (first, last) = (Time(earliest), Time((earliest + reach).min(Time::MAX.0)));
        let outcome = plan(&Job::of(&request, (first, last)), &grid.candidates(), Effort::Balanced, 1, &mut ());
        if let PlanOutcome::Allocated(plan) = outcome {
            check_seats(&grid, &request, plan.start, &plan.seats);
            prop_assert!(plan.efficiency.is_finite() && plan.efficiency_bound >= plan.efficiency);
        }
    }
}

#[test]
fn a_rejection_names_what_is_missing() {
    let full: BTreeMap<i64, u64> = BTreeMap::from([(0, 8), (100, 0)]);
    let raw: Vec<RawHost> =
        (0..4).map(|_| (vec![10, 10, 10], vec![full.clone(), BTreeMap::new(), BTreeMap::new()])).collect();
    let grid = Grid::new(&raw);
    let reject = |request: &Request, latest: i64| match plan(
        &Job::of(request, (Time(0), Time(latest))),
        &grid.candidates(),
        Effort::Balanced,
        1,
        &mut (),
    ) {
        PlanOutcome::Rejected(rejection) => rejection.reason,
        PlanOutcome::Allocated(plan) => panic!("{plan:?}"),
    };
    let reason = reject(&request(5, 10, &[Some(1), None, None], &[]), 50);
    assert_eq!(reason.code(), "too_few_hosts");
    let reason = reject(&request(2, 10, &[], &[Some(21), None, None]), 50);
    assert_eq!(reason.detail(), "cpu: 0.021 asked in sum, the largest hosts together have 0.02");
    let reason = reject(&request(2, 10, &[Some(1), None, None], &[Some(12), None, None]), 50);
    assert_eq!(reason.detail(), "no start works; nearest miss: 2 of 2 hosts at 0 s; cpu short by 0.008");
    let reason = reject(&request(2, 10, &[Some(4), None, None], &[]), 50);
    assert_eq!(reason.detail(), "no start works; nearest miss: 0 of 2 hosts at 0 s");
    let reason = match plan(
        &Job::of(&request(1, 10, &[], &[]), (Time(5), Time(4))),
        &grid.candidates(),
        Effort::Fast,
        1,
        &mut (),
    ) {
        PlanOutcome::Rejected(rejection) => rejection.reason,
        PlanOutcome::Allocated(plan) => panic!("{plan:?}"),
    };
    assert_eq!(reason.code(), "window_passed");
    assert_eq!(Span(10), request(1, 10, &[], &[]).demand().length().at_reference());
}
