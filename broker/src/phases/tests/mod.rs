//! Small grids, and what a search through every start and every set of their hosts finds.
//!
//! Invariant: what a request means is written out here once more; nothing comes from the phases.

mod alike;
mod answers;
mod aside;
mod coarse;
mod linked;
mod molded;
mod objectives;
mod offered;
mod priced;
mod windows;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    amount::Amount,
    host::Speed,
    ids::HostId,
    plan::Seat,
    resources::{Amounts, ResourceName, amount_of},
    time::{Span, Window},
};

const NAMES: [&str; 3] = ["cpu", "memory", "mhz"];
/// Amounts of all resources.
type Each = [u64; 3];

/// A host: its site, speed, capacities, and uses as (start, length, amounts).
pub type RawHost = (usize, u32, Each, Vec<(i64, i64, Each)>);

/// A request: seats, work or duration, amounts, and limits.
#[derive(Debug, Clone, Default)]
pub struct RawRequest {
    pub seats: usize,
    pub length: i64,
    pub is_work: bool,
    pub per_host: [Option<u64>; 3],
    pub total: [Option<u64>; 3],
    pub deadline: Option<i64>,
    pub speed_min: Option<u32>,
    pub is_exclusive: bool,
    pub sites_max: Option<u32>,
}

pub struct Grid {
    sites: Vec<SiteId>,
    pub hosts: Vec<(usize, Host, Schedule)>,
}

fn named<T>(values: [T; 3]) -> impl Iterator<Item = (ResourceName, T)> {
    NAMES.iter().map(|name| ResourceName::new(name).unwrap()).zip(values)
}

impl Grid {
    pub fn new(raw: &[RawHost]) -> Grid {
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
                tariff: Default::default(),
            };
            (*site, host, schedule)
        };
        let sites = (0..4).map(|site| SiteId::new(&format!("s{site}")).unwrap()).collect();
        Grid { sites, hosts: raw.iter().enumerate().map(host).collect() }
    }

    pub fn all(&self) -> Vec<Candidate<'_>> {
        let all = self.hosts.iter();
        all.map(|(site, host, schedule)| Candidate { site: &self.sites[*site], host, schedule }).collect()
    }

    /// Those that could serve the demand if they were empty.
    fn candidates(&self, demand: &Demand) -> Vec<Candidate<'_>> {
        let mut all = self.all();
        all.retain(|candidate| demand.host_needs().are_met_by(candidate.site, candidate.host));
        all
    }

    fn host(&self, id: &HostId) -> (&Host, &Schedule) {
        let (_, host, schedule) = self.hosts.iter().find(|(_, host, _)| host.id == *id).unwrap();
        (host, schedule)
    }
}

pub fn request(raw: &RawRequest, kind: &str) -> Request {
    serde_json::from_value(document(raw, kind)).unwrap()
}

fn document(raw: &RawRequest, kind: &str) -> serde_json::Value {
    let amounts = |amounts: [Option<u64>; 3]| {
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
    document
}

impl RawRequest {
    pub fn is_asked(&self, resource: usize) -> bool {
        self.per_host[resource].is_some() || self.total[resource].is_some()
    }
}

/// The length of a seat.
fn length(raw: &RawRequest, host: &Host) -> i64 {
    let speed = i64::from(host.speed.thousandths());
    if raw.is_work { (raw.length * 1000 + speed - 1) / speed } else { raw.length }
}

/// What a host has free at a start for its whole seat; none when it cannot take one.
pub fn free_on(raw: &RawRequest, start: i64, host: &Host, schedule: &Schedule) -> Option<Each> {
    free_for(raw, start, length(raw, host), host, schedule)
}

/// The same for a seat of this length.
fn free_for(raw: &RawRequest, start: i64, length: i64, host: &Host, schedule: &Schedule) -> Option<Each> {
    let window = Window { start: Time(start), end: Time(start + length) };
    let is_late = raw.deadline.is_some_and(|deadline| start + length > deadline);
    let is_slow = raw.speed_min.is_some_and(|least| host.speed.thousandths() < least);
    let is_closed =
        |closed: &crate::schedule::Occupancy| (start..start + length).any(|at| closed.used_at(Time(at)).0 > 0);
    let is_too_long = schedule.excluding(Span(length.unsigned_abs())).is_some();
    if is_too_long || schedule.closed().is_some_and(is_closed) {
        return None;
    }
    let mut free = [0; 3];
    for (index, name) in NAMES.iter().enumerate() {
        let name = ResourceName::new(name).unwrap();
        let used = schedule.peak(&name, window).0;
        let least = match (raw.per_host[index], raw.total[index]) {
            (Some(least), _) => least,
            (None, Some(total)) => u64::from(total >= raw.seats as u64),
            (None, None) => 0,
        };
        free[index] = amount_of(&host.capacity, &name).0.saturating_sub(used);
        let is_short = raw.is_asked(index) && amount_of(&host.capacity, &name).0 < used + least;
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
fn factor(raw: &RawRequest, set: &[(Each, Each)]) -> f64 {
    let part = |index: usize| {
        let capacity: u64 = set.iter().map(|(capacity, _)| capacity[index]).sum();
        let used: u64 = set.iter().map(|(capacity, free)| capacity[index] - free[index]).sum();
        (needed(raw, index) + used) as f64 / capacity.max(1) as f64
    };
    (0..3).filter(|index| raw.is_asked(*index)).map(part).product()
}

fn capacities(host: &Host) -> Each {
    NAMES.map(|name| amount_of(&host.capacity, &ResourceName::new(name).unwrap()).0)
}

/// The least value of any set at any start, the first start that has it, and the best factor there.
fn best(grid: &Grid, raw: &RawRequest, kind: &str, (first, last): (i64, i64)) -> Option<(i64, i64, f64)> {
    let mut best: Option<(i64, i64, f64)> = None;
    for start in first..=last {
        // Of the earliest start there is no second.
        if kind == "start" && best.is_some() {
            break;
        }
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
            if (0..3).all(reaches) && raw.sites_max.is_none_or(|most| sites.len() <= most as usize) {
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
    let sites: BTreeSet<&SiteId> = seats.iter().map(|seat| &seat.site).collect();
    assert!(seats.is_sorted_by(|a, b| (&a.site, a.host()) < (&b.site, b.host())), "distinct and in order");
    assert!(raw.sites_max.is_none_or(|most| sites.len() <= most as usize));
    let mut sums = [0; 3];
    for seat in seats {
        let (host, schedule) = grid.host(seat.host());
        let free = free_on(raw, start.0, host, schedule).expect("the host is available");
        assert_eq!(seat.window, Window { start, end: Time(start.0 + length(raw, host)) });
        for (index, (name, free)) in named(free).enumerate() {
            let amount = amount_of(&seat.amounts, &name);
            assert!(amount.0 <= free && amount.0 >= raw.per_host[index].unwrap_or(0));
            sums[index] += amount.0;
            assert!(!raw.is_exclusive || amount == amount_of(&host.capacity, &name));
        }
    }
    for (index, sum) in sums.into_iter().enumerate() {
        let needed = needed(raw, index);
        assert!(if raw.is_exclusive { sum >= needed } else { sum == needed });
    }
}

/// The factor of a plan's hosts as they are at its start.
fn factor_of(grid: &Grid, raw: &RawRequest, plan: &Plan) -> f64 {
    let amounts = plan.seats.iter().map(|seat| {
        let (host, schedule) = grid.host(seat.host());
        (capacities(host), free_on(raw, plan.start.0, host, schedule).unwrap())
    });
    factor(raw, &amounts.collect::<Vec<_>>())
}

pub fn host() -> impl Strategy<Value = RawHost> {
    let uses = prop::collection::vec((0_i64..50, 1_i64..15, [0_u64..5, 0_u64..3, 0_u64..3]), 0..5);
    (0_usize..4, prop_oneof![Just(1000), 500_u32..4000], [1_u64..9, 0_u64..6, 0_u64..6], uses)
}

fn raw_request() -> impl Strategy<Value = RawRequest> {
    let amounts = |most: u64| [(); 3].map(|()| prop::option::of(0..most));
    (
        (1_usize..4, 1_i64..25, any::<bool>()),
        (amounts(4), prop_oneof![Just([None; 3]), amounts(16)]),
        (prop::option::of(10_i64..70), prop::option::weighted(0.3, 500_u32..2500)),
        (prop::bool::weighted(0.3), prop::option::weighted(0.4, 1_u32..4)),
    )
        .prop_map(
            |((seats, length, is_work), (per_host, total), (deadline, speed_min), (is_exclusive, sites_max))| {
                RawRequest { seats, length, is_work, per_host, total, deadline, speed_min, is_exclusive, sites_max }
            },
        )
}

/// A request for a time on hosts of any speed and site.
pub fn plain_request() -> impl Strategy<Value = RawRequest> {
    raw_request().prop_map(|RawRequest { seats, length, per_host, total, .. }| RawRequest {
        seats,
        length,
        per_host,
        total,
        ..RawRequest::default()
    })
}
