//! All objectives, deadlines, speeds, whole hosts and limits of sites against a search through every start and every set of hosts.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    amount::Amount,
    host::Speed,
    ids::HostId,
    plan::Seat,
    resources::{Amounts, ResourceName, amount_of},
    time::Window,
};

const NAMES: [&str; 2] = ["cpu", "memory"];
const KINDS: [&str; 4] = ["start", "finish", "runtime", "host_time"];

/// A host: its site, speed, capacities, and uses as (start, length, amounts).
type RawHost = (usize, u32, [u64; 2], Vec<(i64, i64, [u64; 2])>);

/// A request: seats, work or duration, amounts, and limits.
#[derive(Debug, Clone)]
struct RawRequest {
    seats: usize,
    length: i64,
    is_work: bool,
    per_host: [Option<u64>; 2],
    total: [Option<u64>; 2],
    deadline: Option<i64>,
    speed_min: Option<u32>,
    is_exclusive: bool,
    sites_max: Option<u32>,
}

struct Grid {
    sites: Vec<SiteId>,
    hosts: Vec<(usize, Host, Schedule)>,
}

fn named<T>(values: [T; 2]) -> impl Iterator<Item = (ResourceName, T)> {
    NAMES.iter().map(|name| ResourceName::new(name).unwrap()).zip(values)
}

impl Grid {
    fn new(raw: &[RawHost]) -> Grid {
        let host = |(index, (site, speed, capacity, uses)): (usize, &RawHost)| {
            let mut schedule = Schedule::default();
            for (start, length, amounts) in uses {
                let window = Window { start: Time(*start), end: Time(start + length) };
                schedule.add(window, &named(amounts.map(Amount)).collect());
            }
            let host = Host {
                id: HostId::new(&format!("h{index}")).unwrap(),
                capacity: named(capacity.map(Amount)).collect(),
                attributes: Default::default(),
                speed: Speed::try_from(*speed).unwrap(),
            };
            (*site, host, schedule)
        };
        let sites = (0..4).map(|site| SiteId::new(&format!("s{site}")).unwrap()).collect();
        Grid { sites, hosts: raw.iter().enumerate().map(host).collect() }
    }

    fn candidates(&self, demand: &Demand) -> Vec<Candidate<'_>> {
        let all =
            self.hosts.iter().map(|(site, host, schedule)| Candidate { site: &self.sites[*site], host, schedule });
        all.filter(|candidate| demand.host_needs().are_met_by(candidate.site, candidate.host)).collect()
    }
}

fn request(raw: &RawRequest, kind: &str) -> Request {
    let amounts = |amounts: [Option<u64>; 2]| {
        let some = NAMES.iter().zip(amounts).filter_map(|(name, amount)| Some(((*name).to_owned(), amount?.into())));
        serde_json::Value::Object(some.collect())
    };
    let mut document = serde_json::json!({
        "hosts": raw.seats, "per_host": amounts(raw.per_host), "total": amounts(raw.total), "objective": kind,
        "exclusive": raw.is_exclusive,
    });
    document[if raw.is_work { "work" } else { "duration" }] = raw.length.into();
    if let Some(deadline) = raw.deadline {
        document["deadline"] = deadline.into();
    }
    if let Some(speed) = raw.speed_min {
        document["speed_min"] = speed.into();
    }
    if let Some(most) = raw.sites_max {
        document["sites_max"] = most.into();
    }
    serde_json::from_value(document).unwrap()
}

/// The length of a seat, written out.
fn length(raw: &RawRequest, host: &Host) -> i64 {
    let speed = i64::from(host.speed.thousandths());
    if raw.is_work { (raw.length * 1000 + speed - 1) / speed } else { raw.length }
}

/// What a host has free at a start for its whole seat; none when it cannot take one.
fn free_on(raw: &RawRequest, start: i64, host: &Host, schedule: &Schedule) -> Option<[u64; 2]> {
    let length = length(raw, host);
    let window = Window { start: Time(start), end: Time(start + length) };
    let is_late = raw.deadline.is_some_and(|deadline| start + length > deadline);
    let is_slow = raw.speed_min.is_some_and(|least| host.speed.thousandths() < least);
    let mut free = [0; 2];
    for (index, name) in NAMES.iter().enumerate() {
        let name = ResourceName::new(name).unwrap();
        let used = schedule.peak(&name, window).0;
        let least = match (raw.per_host[index], raw.total[index]) {
            (Some(least), _) => least,
            (None, Some(total)) => u64::from(total >= raw.seats as u64),
            (None, None) => 0,
        };
        let is_asked = raw.per_host[index].is_some() || raw.total[index].is_some();
        free[index] = amount_of(&host.capacity, &name).0.saturating_sub(used);
        let is_short = is_asked && amount_of(&host.capacity, &name).0 < used + least;
        if is_late || is_slow || is_short || (raw.is_exclusive && used > 0) {
            return None;
        }
    }
    Some(free)
}

fn value(kind: &str, start: i64, lengths: &[i64]) -> i64 {
    let longest = *lengths.iter().max().unwrap();
    match kind {
        "start" => start,
        "finish" => start + longest,
        "runtime" => longest,
        _ => lengths.iter().sum(),
    }
}

/// What is asked in sum of a resource.
fn needed(raw: &RawRequest, index: usize) -> u64 {
    raw.total[index].unwrap_or(0).max(raw.per_host[index].unwrap_or(0) * raw.seats as u64)
}

/// The efficiency factor of hosts with these capacities and free amounts.
fn factor(raw: &RawRequest, set: &[([u64; 2], [u64; 2])]) -> f64 {
    let part = |index: usize| {
        let capacity: u64 = set.iter().map(|(capacity, _)| capacity[index]).sum();
        let used: u64 = set.iter().map(|(capacity, free)| capacity[index] - free[index]).sum();
        (needed(raw, index) + used) as f64 / capacity.max(1) as f64
    };
    (0..2).filter(|index| raw.per_host[*index].is_some() || raw.total[*index].is_some()).map(part).product()
}

fn capacities(host: &Host) -> [u64; 2] {
    NAMES.map(|name| amount_of(&host.capacity, &ResourceName::new(name).unwrap()).0)
}

/// The least value of any set at any start, the first start that has it, and the best factor there.
fn best(grid: &Grid, raw: &RawRequest, kind: &str, (first, last): (i64, i64)) -> Option<(i64, i64, f64)> {
    let mut best: Option<(i64, i64, f64)> = None;
    for start in first..=last {
        let available: Vec<_> = grid
            .hosts
            .iter()
            .filter_map(|(site, host, schedule)| {
                let free = free_on(raw, start, host, schedule)?;
                Some((*site, length(raw, host), (capacities(host), free)))
            })
            .collect();
        for subset in (0_u32..1 << available.len()).filter(|subset| subset.count_ones() as usize == raw.seats) {
            let set: Vec<_> = (0..available.len()).filter(|at| subset >> at & 1 == 1).map(|at| available[at]).collect();
            let sites: BTreeSet<usize> = set.iter().map(|(site, ..)| *site).collect();
            let reaches =
                |index: usize| set.iter().map(|(_, _, (_, free))| free[index]).sum::<u64>() >= needed(raw, index);
            if (0..2).all(reaches) && raw.sites_max.is_none_or(|most| sites.len() <= most as usize) {
                let lengths: Vec<i64> = set.iter().map(|(_, length, _)| *length).collect();
                let value = value(kind, start, &lengths);
                let amounts: Vec<_> = set.iter().map(|(.., amounts)| *amounts).collect();
                let factor = factor(raw, &amounts);
                if best.is_none_or(|(least, at, most)| value < least || (value, start) == (least, at) && factor > most)
                {
                    best = Some((value, start, factor));
                }
            }
        }
    }
    best
}

/// Panics unless the seats are what the request asks, and fit beside what is there.
fn check_seats(grid: &Grid, raw: &RawRequest, start: Time, seats: &[Seat]) {
    assert_eq!(seats.len(), raw.seats);
    let hosts: BTreeSet<&HostId> = seats.iter().map(|seat| seat.host()).collect();
    let sites: BTreeSet<&SiteId> = seats.iter().map(|seat| &seat.site).collect();
    assert_eq!(hosts.len(), raw.seats);
    assert!(raw.sites_max.is_none_or(|most| sites.len() <= most as usize));
    let mut sums = [0; 2];
    for seat in seats {
        let (_, host, schedule) = grid.hosts.iter().find(|(_, host, _)| host.id == *seat.host()).unwrap();
        let free = free_on(raw, start.0, host, schedule).expect("the host is available");
        assert_eq!(seat.window, Window { start, end: Time(start.0 + length(raw, host)) });
        for (index, (name, free)) in named(free).enumerate() {
            let amount = amount_of(&seat.amounts, &name);
            assert!(amount.0 <= free);
            sums[index] += amount.0;
            assert!(!raw.is_exclusive || amount == amount_of(&host.capacity, &name));
        }
    }
    for (index, sum) in sums.into_iter().enumerate() {
        let needed = needed(raw, index);
        assert!(if raw.is_exclusive { sum >= needed } else { sum == needed });
    }
}

fn host() -> impl Strategy<Value = RawHost> {
    let uses = prop::collection::vec((0_i64..50, 1_i64..15, [0_u64..5, 0_u64..3]), 0..5);
    (0_usize..4, prop_oneof![Just(1000), 500_u32..4000], [1_u64..9, 0_u64..6], uses)
}

fn raw_request() -> impl Strategy<Value = RawRequest> {
    let amounts = |most: u64| [prop::option::of(0..most), prop::option::of(0..most)];
    (
        (1_usize..4, 1_i64..25, any::<bool>()),
        (amounts(4), prop_oneof![Just([None, None]), amounts(16)]),
        (prop::option::of(10_i64..70), prop::option::weighted(0.3, 500_u32..2500)),
        (prop::bool::weighted(0.3), prop::option::weighted(0.4, 1_u32..4)),
    )
        .prop_map(
            |((seats, length, is_work), (per_host, total), (deadline, speed_min), (is_exclusive, sites_max))| {
                RawRequest { seats, length, is_work, per_host, total, deadline, speed_min, is_exclusive, sites_max }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn every_objective_is_the_least_of_all_plans(
        raw_hosts in prop::collection::vec(host(), 0..7), raw in raw_request(),
        earliest in 0_i64..10, reach in 0_i64..45, seed in 0_u64..4,
    ) {
        let grid = Grid::new(&raw_hosts);
        for kind in KINDS {
            let request = request(&raw, kind);
            let job = Job::of(&request, (Time(earliest), Time(earliest + reach)));
            let best = best(&grid, &raw, kind, (earliest, earliest + reach));
            match plan(&job, &grid.candidates(request.demand()), Effort::Balanced, seed, &mut ()) {
                PlanOutcome::Allocated(plan) => {
                    check_seats(&grid, &raw, plan.start, &plan.seats);
                    let lengths: Vec<i64> =
                        plan.seats.iter().map(|seat| seat.window.duration().0.cast_signed()).collect();
                    prop_assert_eq!(plan.objective.value, value(kind, plan.start.0, &lengths), "{}", kind);
                    let (least, first, most) = best.expect("there is a plan");
                    prop_assert_eq!((plan.objective.value, plan.start.0), (least, first), "{}", kind);
                    let real = factor_of(&grid, &raw, &plan);
                    prop_assert!((plan.efficiency - real).abs() <= 1e-12 * real.max(1.0), "{kind}");
                    prop_assert!(plan.efficiency_bound >= most * (1.0 - 1e-12), "{kind}: {plan:?}, best {most}");
                    prop_assert_eq!(plan.objective.bound, Some(plan.objective.value), "{}", kind);
                    prop_assert!(plan.start_proven);
                }
                PlanOutcome::Rejected(rejection) => {
                    prop_assert_eq!(None, best, "{}", kind);
                    prop_assert!(rejection.start_proven);
                }
            }
        }
    }

    #[test]
    fn a_search_that_is_cut_claims_no_more_than_it_knows(
        raw_hosts in prop::collection::vec(host(), 3..7), raw in raw_request(), reach in 0_i64..45, seed in 0_u64..4,
    ) {
        let grid = Grid::new(&raw_hosts);
        let limits =
            Limits { l1: 0, multiplier_steps: 1, feasibility_nodes: 0, feasibility_nodes_max: 0, ..Limits::of(Effort::Fast) };
        for kind in KINDS {
            let request = request(&raw, kind);
            let job = Job::of(&request, (Time(0), Time(reach)));
            let best = best(&grid, &raw, kind, (0, reach));
            match plan_within(&job, &grid.candidates(request.demand()), &limits, seed, &mut ()) {
                PlanOutcome::Allocated(plan) => {
                    check_seats(&grid, &raw, plan.start, &plan.seats);
                    let lengths: Vec<i64> =
                        plan.seats.iter().map(|seat| seat.window.duration().0.cast_signed()).collect();
                    prop_assert_eq!(plan.objective.value, value(kind, plan.start.0, &lengths), "{}", kind);
                    let (least, first, _) = best.expect("there is a plan");
                    prop_assert!(plan.objective.bound.is_some_and(|bound| bound <= least), "{kind}: {plan:?}");
                    let is_best = (plan.objective.value, plan.start.0) == (least, first);
                    prop_assert!(is_best || !plan.start_proven, "{kind}: {plan:?}");
                }
                PlanOutcome::Rejected(rejection) => prop_assert!(best.is_none() || !rejection.start_proven, "{kind}"),
            }
        }
    }
}

/// The factor of a plan's hosts as they are at its start.
fn factor_of(grid: &Grid, raw: &RawRequest, plan: &Plan) -> f64 {
    let amounts = plan.seats.iter().map(|seat| {
        let (_, host, schedule) = grid.hosts.iter().find(|(_, host, _)| host.id == *seat.host()).unwrap();
        (capacities(host), free_on(raw, plan.start.0, host, schedule).unwrap())
    });
    factor(raw, &amounts.collect::<Vec<_>>())
}

#[test]
fn the_most_resources_that_may_be_named_fit_into_every_plan() {
    let names = (0..crate::request::MAX_NAMES).map(|number| (format!("r{number}"), 0.into())).collect();
    let names = serde_json::Value::Object(names);
    let host = |speed: u32| Host {
        id: HostId::new(&format!("h{speed}")).unwrap(),
        capacity: Amounts::new(),
        attributes: Default::default(),
        speed: Speed::try_from(speed).unwrap(),
    };
    let hosts = [1_000, 2_000, 3_000].map(|speed| (0, host(speed), Schedule::default()));
    let grid = Grid { sites: vec![SiteId::new("s").unwrap()], hosts: hosts.to_vec() };
    for kind in KINDS {
        let document =
            serde_json::json!({ "hosts": 2, "work": 60, "total": names, "exclusive": true, "objective": kind });
        let request: Request = serde_json::from_value(document).unwrap();
        let job = Job::of(&request, (Time(0), Time(10)));
        let outcome = plan(&job, &grid.candidates(request.demand()), Effort::Balanced, 1, &mut ());
        assert_eq!(outcome.plan().map(|plan| plan.seats.len()), Some(2), "{kind}");
    }
}

#[test]
fn seats_that_are_kept_count_for_the_limit_of_sites_once() {
    let host = |site| (site, 1000, [4, 0], Vec::new());
    let grid = Grid::new(&[host(0), host(1), host(2)]);
    let raw = RawRequest {
        seats: 3,
        length: 10,
        is_work: false,
        per_host: [Some(1), None],
        total: [None, None],
        deadline: None,
        speed_min: None,
        is_exclusive: false,
        sites_max: Some(2),
    };
    let request = request(&raw, "start");
    let kept_sites = BTreeSet::from([grid.sites[1].clone()]);
    let taken = BTreeSet::from([(grid.sites[1].clone(), HostId::new("h1").unwrap())]);
    let rest = |seats| request.demand().rest(seats, &std::iter::empty::<&Amounts>(), &taken).unwrap();
    let plan_of = |demand: &Demand| {
        let job = Job { demand, kept_sites: &kept_sites, ..Job::of(&request, (Time(0), Time(0))) };
        plan(&job, &grid.candidates(demand), Effort::Balanced, 1, &mut ())
    };
    assert!(plan_of(&rest(1)).plan().is_some(), "one more site may be taken");
    let sites: BTreeSet<SiteId> =
        plan_of(&rest(2)).plan().unwrap().seats.iter().map(|seat| seat.site.clone()).collect();
    assert!(sites.contains(&grid.sites[1]), "the kept site has a free host: {sites:?}");
}
