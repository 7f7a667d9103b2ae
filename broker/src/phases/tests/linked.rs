//! Seats that talk to each other, over links, under every objective and limit, against the search through every start and every set.

use super::{
    priced::{KINDS, Known, RawPrices, Serving, cost_of, least_cost, raw_prices, tariff},
    *,
};
use crate::{
    cost::Cost,
    request::RequestDocument,
    traffic::Traffic,
    uplinks::{Uplink, Uplinks},
};

/// The capacity of a site's link, and uses as (start, length, amount); none without a limit.
type RawLink = Option<(u64, Vec<(i64, i64, u64)>)>;

/// A grid with prices and links, and what is asked of it.
#[derive(Debug, Clone)]
struct Case {
    hosts: Vec<(RawHost, RawPrices)>,
    links: Vec<RawLink>,
    raw: RawRequest,
    traffic: Traffic,
    /// Other seats of the request, which are not planned, and how long they last.
    kept: Option<(usize, i64)>,
    budget: Option<u64>,
    starts: (i64, i64),
}

/// What the best plan has: value, start, hosts of any such plan.
type Best = (i64, i64);

fn uplinks(raw: &[RawLink]) -> Uplinks {
    let link = |(site, raw): (usize, &RawLink)| {
        let (mbps, uses) = raw.as_ref()?;
        let mut link = Uplink { mbps: Amount(*mbps), occupancy: Default::default(), coarse_from: None };
        for (start, length, amount) in uses {
            link.occupancy.add(Window { start: Time(*start), end: Time(start + length) }, Amount(*amount));
        }
        Some((SiteId::new(&format!("s{site}")).unwrap(), link))
    };
    raw.iter().enumerate().filter_map(link).collect()
}

/// How long seats on these hosts last, by the definition; none when that is longer than the other seats last.
fn length_of(case: &Case, speeds: impl Iterator<Item = u32>) -> Option<i64> {
    let slowest = i64::from(speeds.min().unwrap());
    let compute = i64::from(case.traffic.compute);
    let parts = case.raw.length * (compute * 1000 + (1000 - compute) * slowest);
    let length = (parts + 1000 * slowest - 1) / (1000 * slowest);
    case.kept.map_or(Some(length), |(_, lasting)| (length <= lasting).then_some(lasting))
}

/// Whether the links bear so many seats at each site from `start` until `end`, second by second.
fn links_bear(case: &Case, sites: &[usize], (start, end): (i64, i64)) -> bool {
    // All hosts of such a request are at one site, and send nothing over its link.
    if case.raw.sites_max == Some(1) {
        return true;
    }
    let seats = (sites.len() + case.kept.map_or(0, |(seats, _)| seats)) as u64;
    (0..case.links.len()).all(|site| {
        let here = sites.iter().filter(|other| **other == site).count() as u64;
        let Some((mbps, uses)) = &case.links[site] else { return true };
        if here == 0 || here == seats {
            return true;
        }
        let load = (here * case.traffic.mbps.0 * (seats - here)).div_ceil(seats - 1);
        (start..end).all(|at| {
            let used = uses.iter().filter(|(begin, length, _)| (*begin..begin + length).contains(&at));
            used.map(|(_, _, amount)| amount).sum::<u64>() + load <= *mbps
        })
    })
}

/// The hosts as they serve together at a start; none when they cannot.
fn serving<'c>(case: &'c Case, grid: &Grid, set: &[usize], start: i64) -> Option<Vec<Serving<'c>>> {
    let raw = &case.raw;
    let length = length_of(case, set.iter().map(|at| grid.hosts[*at].1.speed.thousandths()))?;
    let serve = |at: &usize| {
        let (site, host, schedule) = &grid.hosts[*at];
        let free = free_for(raw, start, length, host, schedule)?;
        Some((*site, length, capacities(host), free, &case.hosts[*at].1))
    };
    let serving: Vec<Serving<'_>> = set.iter().map(serve).collect::<Option<_>>()?;
    let sites: Vec<usize> = serving.iter().map(|serving| serving.0).collect();
    let different: BTreeSet<&usize> = sites.iter().collect();
    let reaches = |index: usize| serving.iter().map(|serving| serving.3[index]).sum::<u64>() >= needed(raw, index);
    let is_good = (0..3).all(reaches)
        && raw.sites_max.is_none_or(|most| different.len() <= most as usize)
        && links_bear(case, &sites, (start, start + length));
    is_good.then_some(serving)
}

/// The least value by each objective, and its first start.
fn best(case: &Case, grid: &Grid) -> [Option<Best>; 5] {
    let (mut best, mut known) = ([None::<Best>; 5], Known::new());
    let most = case.budget.map_or(i64::MAX, u64::cast_signed);
    for start in case.starts.0..=case.starts.1 {
        for subset in (0_u32..1 << grid.hosts.len()).filter(|subset| subset.count_ones() as usize == case.raw.seats) {
            let set: Vec<usize> = (0..grid.hosts.len()).filter(|at| subset >> at & 1 == 1).collect();
            let Some(serving) = serving(case, grid, &set, start) else { continue };
            let cost = least_cost(&case.raw, start, &serving, &mut known);
            if cost > most {
                continue;
            }
            let lengths: Vec<i64> = serving.iter().map(|serving| serving.1).collect();
            for (kind, best) in KINDS.iter().zip(&mut best) {
                let value = if *kind == "cost" { cost } else { value(kind, start, &lengths) };
                if best.is_none_or(|known| (value, start) < known) {
                    *best = Some((value, start));
                }
            }
        }
    }
    best
}

/// Panics unless the plan is what the request asks.
fn check_plan(case: &Case, grid: &Grid, plan: &Plan) {
    let raw = &case.raw;
    let at = |seat: &Seat| grid.hosts.iter().position(|(_, host, _)| host.id == *seat.host()).unwrap();
    let set: Vec<usize> = plan.seats.iter().map(at).collect();
    assert!(set.len() == raw.seats && set.iter().collect::<BTreeSet<_>>().len() == raw.seats, "{plan:?}");
    let serving = serving(case, grid, &set, plan.start.0).unwrap_or_else(|| panic!("no plan: {plan:?}"));
    let mut sums = [0; 3];
    for (seat, (_, length, capacity, free, _)) in plan.seats.iter().zip(&serving) {
        assert_eq!(seat.window, Window { start: plan.start, end: Time(plan.start.0 + length) });
        for (index, (name, free)) in named(*free).enumerate() {
            let amount = amount_of(&seat.amounts, &name).0;
            assert!(amount <= free && amount >= raw.per_host[index].unwrap_or(0));
            assert!(!raw.is_exclusive || amount == capacity[index]);
            sums[index] += amount;
        }
    }
    for (index, sum) in sums.into_iter().enumerate() {
        assert!(if raw.is_exclusive { sum >= needed(raw, index) } else { sum == needed(raw, index) });
    }
    let amounts: Vec<_> = serving.iter().map(|serving| (serving.2, serving.3)).collect();
    let real = factor(raw, &amounts);
    assert!((plan.efficiency - real).abs() <= 1e-12 * real.max(1.0) && plan.efficiency <= plan.efficiency_bound);
    assert_eq!(plan.traffic, Some(case.traffic));
}

/// What a rejection calls the cheapest plan is what the cheapest costs.
fn check_cheapest(case: &Case, grid: &Grid, reason: &Reason) {
    if let Reason::Budget { cheapest: Some(cheapest), .. } = reason {
        let without = Case { budget: None, ..case.clone() };
        let mut all = KINDS.iter().zip(best(&without, grid));
        let least = all.find_map(|(kind, best)| (*kind == "cost").then_some(best)).flatten();
        assert_eq!(least.map(|(cost, _)| cost), Some(cheapest.0.cast_signed()), "{case:?}");
    }
}

fn check(case: &Case, seed: u64, limits: &Limits, is_exact: bool) {
    check_where_settled(case, seed, limits, (usize::MAX, is_exact));
}

/// The shares of sets of at most `settled_max` seats are settled to the rounding.
fn check_where_settled(case: &Case, seed: u64, limits: &Limits, (settled_max, is_exact): (usize, bool)) {
    let (raw_hosts, prices): (Vec<RawHost>, Vec<RawPrices>) = case.hosts.iter().cloned().unzip();
    let mut grid = Grid::new(&raw_hosts);
    grid.hosts.iter_mut().zip(&prices).for_each(|((_, host, _), raw)| host.tariff = tariff(raw));
    let links = uplinks(&case.links);
    for (kind, best) in KINDS.iter().zip(best(case, &grid)) {
        let document: RequestDocument = serde_json::from_value(document(&case.raw, kind)).unwrap();
        let (traffic, budget) = (Some(case.traffic), case.budget.map(Cost));
        let kept = case.kept.map_or(0, |(seats, _)| seats as u32);
        let hosts = document.hosts + kept;
        let request = Request::try_from(RequestDocument { hosts, traffic, budget, ..document.clone() }).unwrap();
        let rest = case.kept.map(|(_, lasting)| {
            let other = (&BTreeSet::new(), Span(lasting.unsigned_abs()));
            request.demand().rest(document.hosts, &std::iter::empty(), other)
        });
        // No speed is enough.
        let Some(demand) = rest.as_ref().unwrap_or(&Some(request.demand().clone())).clone() else {
            assert!(best.is_none(), "{kind}: {best:?}");
            continue;
        };
        let (first, last) = case.starts;
        let job = Job { demand: &demand, uplinks: &links, ..Job::of(&request, (Time(first), Time(last))) };
        let candidates = grid.candidates(&demand);
        let mut problem = Problem::new(&job, &candidates);
        problem.settled_max = problem.settled_max.min(settled_max);
        match plan_problem(&mut problem, &job, limits, seed, &mut ()) {
            PlanOutcome::Allocated(plan) => {
                check_plan(case, &grid, &plan);
                let cost = cost_of(&grid, &prices, &plan);
                assert!(case.budget.is_none_or(|most| cost <= most.cast_signed()), "{kind}: {plan:?}");
                let lengths: Vec<i64> = plan.seats.iter().map(|seat| seat.window.duration().0.cast_signed()).collect();
                let real = if *kind == "cost" { cost } else { value(kind, plan.start.0, &lengths) };
                assert_eq!(plan.objective.value, real, "{kind}: {plan:?}");
                let (least, start) = best.unwrap_or_else(|| panic!("{kind}: there is no plan, but {plan:?}"));
                assert!(plan.objective.bound.is_some_and(|bound| bound <= least), "{kind}: {least}, {plan:?}");
                assert!((least, start) <= (real, plan.start.0), "{kind}: {plan:?}");
                assert!((least, start) == (real, plan.start.0) || !plan.start_proven, "{kind}: {least}, {plan:?}");
                if is_exact {
                    assert_eq!((real, plan.start.0), (least, start), "{kind}: {plan:?}");
                    assert!(plan.start_proven && plan.objective.bound == Some(least), "{kind}: {plan:?}");
                }
            }
            PlanOutcome::Rejected(rejection) => {
                assert!(best.is_none() || !(rejection.start_proven || is_exact), "{kind}: {best:?}, {rejection:?}");
                assert!(rejection.start_proven || !is_exact, "{kind}: {rejection:?}");
                check_cheapest(case, &grid, &rejection.reason);
            }
        }
    }
}

fn case(hosts_max: usize) -> impl Strategy<Value = Case> {
    let link = (0_u64..14, prop::collection::vec((0_i64..50, 1_i64..15, 0_u64..8), 0..3));
    let hosts = prop::collection::vec((host(), raw_prices()), 0..hosts_max);
    let links = prop::collection::vec(prop::option::weighted(0.85, link), 4);
    let traffic = (0_u64..6, prop_oneof![Just(1000), 0_u32..=1000]);
    let starts = (0_i64..10, 0_i64..40);
    (hosts, links, raw_request(), 1_usize..6, traffic, prop::option::weighted(0.3, 0_u64..60), starts).prop_map(
        |(hosts, links, raw, seats, (mbps, compute), budget, (earliest, reach))| Case {
            hosts,
            links,
            raw: RawRequest { seats, is_work: true, ..raw },
            traffic: Traffic { mbps: Amount(mbps), compute },
            kept: None,
            budget,
            starts: (earliest, earliest + reach),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_hosts_are_chosen_as_the_links_bear(case in case(8), seed in 0_u64..4) {
        let raw = RawRequest { total: [None; 3], ..case.raw.clone() };
        check(&Case { raw, ..case }, seed, &Limits::of(Effort::Balanced), true);
    }

    #[test]
    fn totals_are_reached_as_the_links_bear(case in case(7), seed in 0_u64..4) {
        check(&case, seed, &Limits::of(Effort::Balanced), true);
    }

    #[test]
    fn sets_that_are_too_large_to_settle_claim_no_more_than_is_known(
        case in case(7), settled_max in 0_usize..3, seed in 0_u64..4, has_links in any::<bool>(),
    ) {
        let links = if has_links { case.links.clone() } else { vec![None; 4] };
        check_where_settled(&Case { links, ..case }, seed, &Limits::of(Effort::Balanced), (settled_max, false));
    }

    #[test]
    fn what_is_left_of_a_request_goes_with_what_is_kept(
        case in case(7), kept in 1_usize..5, lasting in 1_i64..60, seed in 0_u64..4,
    ) {
        let kept = Some((kept, lasting));
        // What is reached already is not asked for any more.
        let total = case.raw.total.map(|total| total.filter(|total| *total > 0));
        let case = Case { raw: RawRequest { total, ..case.raw.clone() }, ..case };
        check(&Case { kept, ..case.clone() }, seed, &Limits::of(Effort::Balanced), true);
        let raw = RawRequest { total: [None; 3], ..case.raw.clone() };
        check(&Case { raw, kept, ..case }, seed, &Limits::of(Effort::Balanced), true);
    }

    #[test]
    fn a_search_that_is_cut_claims_no_more_than_it_knows(case in case(7), seed in 0_u64..4) {
        let none = Limits { l1: 0, multiplier_steps: 1, feasibility_nodes: 0, feasibility_nodes_max: 0, feasibility_nodes_in_all: 0, ..Limits::of(Effort::Fast) };
        check(&case, seed, &none, false);
    }
}

#[test]
fn an_answer_names_the_link_that_is_short() {
    let hosts = [0, 0, 1, 1].map(|site| ((site, 1000, [4; 3], Vec::new()), Vec::new()));
    let raw =
        RawRequest { seats: 4, length: 10, is_work: true, per_host: [Some(1), None, None], ..RawRequest::default() };
    let reason = |total, mbps| {
        let grid = Grid::new(&hosts.clone().map(|(host, _): (RawHost, RawPrices)| host));
        let links = uplinks(&[Some((100, Vec::new())), Some((mbps, vec![(0, 100, 30)]))]);
        let raw = RawRequest { total: [total, None, None], ..raw.clone() };
        let document: RequestDocument = serde_json::from_value(document(&raw, "start")).unwrap();
        let traffic = Some(Traffic { mbps: Amount(60), compute: 1000 });
        let request = Request::try_from(RequestDocument { traffic, ..document }).unwrap();
        let job = Job { uplinks: &links, ..Job::of(&request, (Time(0), Time(50))) };
        match plan(&job, &grid.all(), Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Rejected(Rejection { reason, start_proven: true }) => Some((reason.code(), reason.detail())),
            PlanOutcome::Rejected(rejection) => panic!("{rejection:?}"),
            PlanOutcome::Allocated(plan) => {
                assert_eq!(plan.loads().into_values().collect::<Vec<_>>(), [Amount(80), Amount(80)]);
                None
            }
        }
    };
    // Two of four seats at each site put ceil(2 * 60 * 2 / 3) = 80 on both links; the second one has 30 less.
    for total in [None, Some(5)] {
        assert_eq!(reason(total, 110), None);
        let text =
            "no start works; the uplink of s1 has 79 Mbit/s free at 0 s, 2 of its hosts would put 80 Mbit/s on it";
        assert_eq!(reason(total, 109), Some(("uplink", text.to_owned())));
    }
}
