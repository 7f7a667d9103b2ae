//! The objective cost, and budgets under every objective, against the search through every start, every set and every way to share.

use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    cost::{Cost, Price, PriceList, Prices},
    request::RequestDocument,
    tariff::Tariff,
};

pub(super) const KINDS: [&str; 5] = ["start", "finish", "runtime", "host_time", "cost"];
/// How many of what a price is for make one unit of it, by the names.
const UNITS: [u128; 3] = [1000, 1024, 1];

/// The prices of a host: when each list begins, and its prices.
pub(super) type RawPrices = Vec<(i64, [u32; 3])>;

fn prices(raw: &RawPrices) -> Prices {
    let list = |prices: [u32; 3]| -> PriceList { named(prices.map(Price)).collect() };
    Prices::From(raw.iter().map(|(from, prices)| (Time(*from), list(*prices))).collect())
}

pub(super) fn tariff(raw: &RawPrices) -> Arc<Tariff> {
    Arc::new(Tariff { prices: prices(raw), ..Tariff::default() })
}

pub(super) fn raw_prices() -> impl Strategy<Value = RawPrices> {
    let price = |most: u32| prop_oneof![Just(0), 0..most, 0..most];
    let list = || [price(1_500_000), price(1_500_000), price(1_500)];
    (list(), prop::collection::btree_map(0_i64..40, list(), 0..3)).prop_map(|(first, later)| {
        let later = later.into_iter().filter(|(from, _)| *from > 3);
        [(3, first)].into_iter().chain(later).collect()
    })
}

/// What a seat costs, as the format has it.
fn seat_cost(raw: &RawPrices, start: i64, seconds: i64, amounts: Each) -> i64 {
    let Some((_, list)) = raw.iter().rev().find(|(from, _)| *from <= start) else { return 0 };
    let each = |index: usize| u128::from(list[index]) * u128::from(amounts[index]) * (128_000 / UNITS[index]);
    let parts = (0..3).map(each).sum::<u128>() * u128::from(seconds.unsigned_abs());
    i64::try_from(parts.div_ceil(128_000 * 3600)).unwrap()
}

/// A host that can serve: site, length, capacities, free amounts, prices.
pub(super) type Serving<'a> = (usize, i64, Each, Each, &'a RawPrices);

/// What was found before: the least cost of sets with these lengths, free amounts and prices.
pub(super) type Known = BTreeMap<Vec<(i64, Each, Option<[u32; 3]>)>, i64>;

/// The least cost of a set over all ways to share.
pub(super) fn least_cost(raw: &RawRequest, start: i64, set: &[Serving<'_>], known: &mut Known) -> i64 {
    if raw.is_exclusive {
        return set.iter().map(|(_, length, capacity, _, prices)| seat_cost(prices, start, *length, *capacity)).sum();
    }
    let list = |prices: &RawPrices| prices.iter().rev().find(|(from, _)| *from <= start).map(|(_, list)| *list);
    let key = set.iter().map(|(_, length, _, free, prices)| (*length, *free, list(prices))).collect();
    *known.entry(key).or_insert_with(|| share(raw, start, set, (0, 0), None, &mut vec![[0; 3]; set.len()]))
}

/// The least cost when this member gives any amount of this resource, those before it what they have been given.
fn share(
    raw: &RawRequest,
    start: i64,
    set: &[Serving<'_>],
    (resource, member): (usize, usize),
    left: Option<u64>,
    given: &mut Vec<Each>,
) -> i64 {
    if resource == 3 {
        let cost =
            |((_, length, _, _, prices), given): (&Serving<'_>, &Each)| seat_cost(prices, start, *length, *given);
        return set.iter().zip(given.iter()).map(cost).sum();
    }
    if !raw.is_asked(resource) {
        return share(raw, start, set, (resource + 1, 0), None, given);
    }
    let left = left.unwrap_or_else(|| needed(raw, resource));
    if member == set.len() {
        return if left == 0 { share(raw, start, set, (resource + 1, 0), None, given) } else { i64::MAX };
    }
    let total = raw.total[resource].unwrap_or(0);
    let mut least = raw.per_host[resource].unwrap_or_else(|| u64::from(total >= raw.seats as u64));
    if member + 1 == set.len() {
        least = least.max(left);
    }
    let mut best = i64::MAX;
    for amount in least..=set[member].3[resource].min(left) {
        given[member][resource] = amount;
        best = best.min(share(raw, start, set, (resource, member + 1), Some(left - amount), given));
    }
    best
}

/// The least value within the budget, its first start, and the best factor of the sets that have both.
fn best_within(
    grid: &Grid,
    prices: &[RawPrices],
    raw: &RawRequest,
    (kind, budget): (&str, i64),
    (first, last): (i64, i64),
    known: &mut Known,
) -> Option<(i64, i64, f64)> {
    let mut best: Option<(i64, i64, f64)> = None;
    for start in first..=last {
        let serving = |((site, host, schedule), prices): (&(usize, Host, Schedule), _)| {
            let free = free_on(raw, start, host, schedule)?;
            Some((*site, length(raw, host), capacities(host), free, prices))
        };
        let available: Vec<Serving<'_>> = grid.hosts.iter().zip(prices).filter_map(serving).collect();
        for subset in (0_u32..1 << available.len()).filter(|subset| subset.count_ones() as usize == raw.seats) {
            let set: Vec<_> = (0..available.len()).filter(|at| subset >> at & 1 == 1).map(|at| available[at]).collect();
            let sites: BTreeSet<usize> = set.iter().map(|(site, ..)| *site).collect();
            let reaches = |index: usize| set.iter().map(|serving| serving.3[index]).sum::<u64>() >= needed(raw, index);
            if !(0..3).all(reaches) || raw.sites_max.is_some_and(|most| sites.len() > most as usize) {
                continue;
            }
            let cost = least_cost(raw, start, &set, known);
            let lengths: Vec<i64> = set.iter().map(|serving| serving.1).collect();
            let value = if kind == "cost" { cost } else { value(kind, start, &lengths) };
            let factor = factor(raw, &set.iter().map(|serving| (serving.2, serving.3)).collect::<Vec<_>>());
            let is_better =
                best.is_none_or(|(least, at, most)| value < least || ((value, start) == (least, at) && factor > most));
            if cost <= budget && is_better {
                best = Some((value, start, factor));
            }
        }
    }
    best
}

/// What the plan's seats cost by the format.
pub(super) fn cost_of(grid: &Grid, prices: &[RawPrices], plan: &Plan) -> i64 {
    let of_seat = |seat: &Seat| {
        let at = grid.hosts.iter().position(|(_, host, _)| host.id == *seat.host()).unwrap();
        let amounts = NAMES.map(|name| amount_of(&seat.amounts, &ResourceName::new(name).unwrap()).0);
        let cost = seat_cost(&prices[at], plan.start.0, seat.window.duration().0.cast_signed(), amounts);
        assert_eq!(seat.agreed.cost.0.cast_signed(), cost);
        cost
    };
    plan.seats.iter().map(of_seat).sum()
}

fn check(hosts: &[(RawHost, RawPrices)], raw: &RawRequest, budget: Option<u64>, (first, last): (i64, i64), seed: u64) {
    let (raw_hosts, raw_prices): (Vec<RawHost>, Vec<RawPrices>) = hosts.iter().cloned().unzip();
    let mut grid = Grid::new(&raw_hosts);
    grid.hosts.iter_mut().zip(&raw_prices).for_each(|((_, host, _), raw)| host.tariff = tariff(raw));
    let mut known = Known::new();
    for kind in KINDS {
        let document: RequestDocument = serde_json::from_value(document(raw, kind)).unwrap();
        let request = Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap();
        let most = budget.map_or(i64::MAX, u64::cast_signed);
        let best = best_within(&grid, &raw_prices, raw, (kind, most), (first, last), &mut known);
        let job = Job::of(&request, (Time(first), Time(last)));
        match plan(&job, &grid.candidates(request.demand()), Effort::Balanced, seed, &mut ()) {
            PlanOutcome::Allocated(plan) => {
                check_seats(&grid, raw, plan.start, &plan.seats);
                let cost = cost_of(&grid, &raw_prices, &plan);
                assert_eq!(plan.cost().0.cast_signed(), cost);
                assert!(cost <= most, "{kind}: {plan:?}");
                let (least, start, factor) = best.unwrap_or_else(|| panic!("{kind}: there is no plan, but {plan:?}"));
                assert_eq!((plan.objective.value, plan.start.0), (least, start), "{kind}: {plan:?}");
                assert_eq!(plan.objective.bound, Some(least), "{kind}: {plan:?}");
                assert!(plan.start_proven && plan.efficiency_bound >= factor * (1.0 - 1e-12), "{kind}: {plan:?}");
                let real = factor_of(&grid, raw, &plan);
                assert!((plan.efficiency - real).abs() <= 1e-12 * real.max(1.0), "{kind}");
            }
            PlanOutcome::Rejected(rejection) => {
                assert_eq!(None, best, "{kind}: {rejection:?}");
                assert!(rejection.start_proven, "{kind}: {rejection:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_hosts_are_chosen_at_the_least_cost_and_within_the_budget(
        hosts in prop::collection::vec((host(), raw_prices()), 0..8), raw in raw_request(),
        budget in prop::option::of(0_u64..60), (earliest, reach) in (0_i64..10, 0_i64..45), seed in 0_u64..4,
    ) {
        let raw = RawRequest { total: [None; 3], sites_max: None, ..raw };
        check(&hosts, &raw, budget, (earliest, earliest + reach), seed);
    }

    #[test]
    fn totals_and_sites_are_met_at_the_least_cost_and_within_the_budget(
        hosts in prop::collection::vec((host(), raw_prices()), 0..6), raw in raw_request(),
        budget in prop::option::of(0_u64..60), (earliest, reach) in (0_i64..10, 0_i64..25), seed in 0_u64..4,
    ) {
        check(&hosts, &raw, budget, (earliest, earliest + reach), seed);
    }
}

/// The front is what planning for the least cost finds at every start by itself.
fn check_front(hosts: &[(RawHost, RawPrices)], raw: &RawRequest, budget: Option<u64>, first: i64, last: i64) {
    let (raw_hosts, raw_prices): (Vec<RawHost>, Vec<RawPrices>) = hosts.iter().cloned().unzip();
    let mut grid = Grid::new(&raw_hosts);
    grid.hosts.iter_mut().zip(&raw_prices).for_each(|((_, host, _), raw)| host.tariff = tariff(raw));
    let document: RequestDocument = serde_json::from_value(document(raw, "start")).unwrap();
    let request = Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap();
    let (job, candidates) = (|starts| Job::of(&request, starts), grid.candidates(request.demand()));
    let mut expected: Vec<(Time, Cost)> = Vec::new();
    for start in first..=last {
        let at = Job { objective: ObjectiveKind::Cost, ..job((Time(start), Time(start))) };
        if let PlanOutcome::Allocated(plan) = plan(&at, &candidates, Effort::Balanced, 1, &mut ()) {
            assert!(plan.start_proven);
            if expected.last().is_none_or(|(_, cost)| plan.cost() < *cost) {
                expected.push((plan.start, plan.cost()));
            }
        }
    }
    let found = front(&job((Time(first), Time(last))), &candidates, Effort::Balanced, 1);
    let points: Vec<(Time, Cost)> = found.points.iter().map(|point| (point.start, point.cost)).collect();
    assert_eq!(points, expected);
    assert!(found.is_proven && found.points.iter().all(|point| point.is_proven));
    // What a search finds that is cut off may be worse, but nothing of it is called proven that is not so.
    let rough = front::within(&job((Time(first), Time(last))), &candidates, cut(), 1);
    for point in rough.points.iter().filter(|point| point.is_proven) {
        assert!(points.contains(&(point.start, point.cost)), "{rough:?}, {points:?}");
    }
    if rough.is_proven {
        assert_eq!(rough.points, found.points);
    }
    for most in 0..4 {
        let (kept, left_out) = found.thinned(most);
        assert_eq!(kept.len() + left_out, points.len());
        assert!(kept.len() <= most && kept.is_sorted_by(|a, b| a.start < b.start));
        if most > 1 {
            assert_eq!((kept.first(), kept.last()), (found.points.first(), found.points.last()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_front_is_the_least_cost_of_every_start_where_it_falls(
        hosts in prop::collection::vec((host(), raw_prices()), 0..8), raw in raw_request(),
        budget in prop::option::of(0_u64..60), (earliest, reach) in (0_i64..10, 0_i64..45),
    ) {
        let raw = RawRequest { total: [None; 3], sites_max: None, ..raw };
        check_front(&hosts, &raw, budget, earliest, earliest + reach);
    }

    #[test]
    fn with_totals_and_sites_the_front_is_the_least_cost_of_every_start_too(
        hosts in prop::collection::vec((host(), raw_prices()), 0..6), raw in raw_request(),
        budget in prop::option::of(0_u64..60), (earliest, reach) in (0_i64..10, 0_i64..25),
    ) {
        check_front(&hosts, &raw, budget, earliest, earliest + reach);
    }
}

/// The front over all shapes is what planning each of them for the least cost finds at every start.
fn check_front_of_shapes(
    hosts: &[(RawHost, RawPrices)],
    raw: &RawRequest,
    (shapes, budget): (&[(usize, i64)], Option<u64>),
    (first, last): (i64, i64),
) {
    let (raw_hosts, raw_prices): (Vec<RawHost>, Vec<RawPrices>) = hosts.iter().cloned().unzip();
    let mut grid = Grid::new(&raw_hosts);
    grid.hosts.iter_mut().zip(&raw_prices).for_each(|((_, host, _), raw)| host.tariff = tariff(raw));
    let mut document = document(raw, "start");
    for key in ["hosts", "work", "duration"] {
        document.as_object_mut().unwrap().remove(key);
    }
    let shape = |(hosts, duration): &(usize, i64)| serde_json::json!({"hosts": hosts, "duration": duration});
    document["shapes"] = shapes.iter().map(shape).collect();
    let document: RequestDocument = serde_json::from_value(document).unwrap();
    let request = Request::try_from(RequestDocument { budget: budget.map(Cost), ..document }).unwrap();
    let mut expected: Vec<(Time, Cost)> = Vec::new();
    for start in first..=last {
        let cost = |(_, job): (_, Job<'_>)| {
            let job = Job { objective: ObjectiveKind::Cost, ..job };
            let planned = plan(&job, &grid.candidates(job.demand), Effort::Balanced, 1, &mut ());
            planned.plan().map(Plan::cost)
        };
        let least = Job::of_shapes(&request, (Time(start), Time(start))).filter_map(cost).min();
        if let Some(least) = least.filter(|least| expected.last().is_none_or(|(_, cost)| least < cost)) {
            expected.push((Time(start), least));
        }
    }
    let jobs = || Job::of_shapes(&request, (Time(first), Time(last)));
    let found = front_of_shapes(jobs(), &grid.all(), Effort::Balanced, 1);
    let points: Vec<(Time, Cost)> = found.points.iter().map(|point| (point.start, point.cost)).collect();
    assert_eq!(points, expected);
    assert!(found.is_proven && found.points.iter().all(|point| point.is_proven));
    for point in &found.points {
        let (_, job) = jobs().find(|(shape, _)| *shape == point.shape).unwrap();
        let at = Job { objective: ObjectiveKind::Cost, earliest: point.start, latest: point.start, ..job };
        let planned = plan(&at, &grid.candidates(job.demand), Effort::Balanced, 1, &mut ());
        assert_eq!(planned.plan().map(Plan::cost), Some(point.cost), "it is of the shape that it names");
    }
    let rough = jobs().map(|(_, job)| front::within(&job, &grid.candidates(job.demand), cut(), 1));
    let rough = front::merged(rough);
    for point in rough.points.iter().filter(|point| point.is_proven) {
        assert!(points.contains(&(point.start, point.cost)), "{rough:?}, {points:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_front_over_all_shapes_is_the_least_cost_of_any_of_them(
        hosts in prop::collection::vec((host(), raw_prices()), 0..7), raw in raw_request(), has_totals in any::<bool>(),
        shapes in prop::collection::vec((1_usize..5, 1_i64..20), 1..4),
        budget in prop::option::of(0_u64..60), (earliest, reach) in (0_i64..10, 0_i64..25),
    ) {
        let raw = if has_totals { raw } else { RawRequest { total: [None; 3], sites_max: None, ..raw } };
        check_front_of_shapes(&hosts, &raw, (&shapes, budget), (earliest, earliest + reach));
    }
}

/// Limits that allow next to no search.
fn cut() -> Limits {
    Limits { feasibility_nodes_in_all: 0, ..Limits::of(Effort::Fast) }
}

#[test]
fn what_a_search_that_was_cut_has_not_proven_is_not_called_proven() {
    let raw_hosts: Vec<RawHost> =
        (0..40).map(|at| (at as usize % 4, 1000, [3 + at % 7, 2 + at % 5, 0], Vec::new())).collect();
    let mut grid = Grid::new(&raw_hosts);
    for (at, (_, host, _)) in (0_u32..).zip(&mut grid.hosts) {
        let later = (20, [900_000 + 137_000 * (at % 9), 700_000 + 91_000 * (at % 11), 0]);
        host.tariff = tariff(&vec![(0, [1_500_000 - 31_000 * (at % 13), 1_100_000 + 77_000 * (at % 5), 0]), later]);
    }
    let raw = RawRequest { seats: 9, length: 10, total: [Some(57), Some(41), None], ..RawRequest::default() };
    let request =
        Request::try_from(serde_json::from_value::<RequestDocument>(document(&raw, "start")).unwrap()).unwrap();
    let found = front::within(&Job::of(&request, (Time(0), Time(30))), &grid.all(), cut(), 1);
    assert!(!found.points.is_empty() && !found.is_proven, "{found:?}");
    assert!(found.points.iter().any(|point| !point.is_proven), "{found:?}");
}

#[test]
fn a_budget_that_nothing_meets_is_refused_with_what_the_cheapest_would_cost() {
    let mut grid = Grid::new(&vec![(0, 1000, [4; 3], Vec::new()); 3]);
    for (price, (_, host, _)) in [4, 2, 3].into_iter().zip(&mut grid.hosts) {
        host.tariff = tariff(&vec![(0, [0, 0, price * 3600])]);
    }
    let raw = RawRequest { seats: 2, length: 10, per_host: [None, None, Some(1)], ..RawRequest::default() };
    let reason = |budget| {
        let document: RequestDocument = serde_json::from_value(document(&raw, "finish")).unwrap();
        let request = Request::try_from(RequestDocument { budget: Some(Cost(budget)), ..document }).unwrap();
        match plan(&Job::of(&request, (Time(0), Time(9))), &grid.all(), Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Rejected(Rejection { reason, start_proven: true }) => Some((reason.code(), reason.detail())),
            PlanOutcome::Rejected(rejection) => panic!("{rejection:?}"),
            PlanOutcome::Allocated(plan) => {
                assert_eq!(plan.cost(), Cost(50));
                None
            }
        }
    };
    assert_eq!(reason(50), None);
    let expected = "the cheapest plan found costs 0.05 credits, the budget is 0.049: offer that much, ask for less, or allow other starts".to_owned();
    assert_eq!(reason(49), Some(("budget", expected)));
}
