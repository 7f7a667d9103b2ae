//! The planner on small grids: a plan must be what was asked and fit, and what it calls proven must be true of all
//! host sets, tried one by one.

use std::collections::BTreeMap;

use fuzz_support::{Input, Seed, Target};
use serde_json::json;

use super::words;
use crate::{
    amount::Amount,
    host::Host,
    ids::SiteId,
    phases::{self, Candidate},
    plan::{Allocation, PlanOutcome},
    request::{Effort, Request},
    resources::{Amounts, ResourceName, amount_of},
    schedule::Schedule,
    time::{Time, Window},
};

/// Plans on small grids.
pub const PLANNER: Target = Target { name: "planner", run, seeds };

const NAMES: [&str; 3] = ["cpu", "memory", "mhz"];
const HOSTS_MAX: u8 = 7;
/// Steps begin before this time, so that nothing changes after it.
const LAST_CHANGE: u8 = 40;

struct Grid {
    site: SiteId,
    hosts: Vec<(Host, Schedule)>,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let scale = if input.flag() { 1 } else { (1 << 44) + 12_345 };
    let request = request(&mut input, scale);
    let earliest = Time(i64::from(input.below(LAST_CHANGE)));
    let latest = Time(earliest.0 + i64::from(input.below(LAST_CHANGE)));
    let effort = input.one_of(&[Effort::Fast, Effort::Balanced]);
    let seed = u64::from(input.byte());
    let grid = grid(&mut input, scale);
    let Some(request) = request else { return };
    let all: Vec<Candidate<'_>> =
        grid.hosts.iter().map(|(host, schedule)| Candidate { site: &grid.site, host, schedule }).collect();
    let Ok(eligible) = phases::find::eligible(&request, &all) else { return };
    let candidates: Vec<Candidate<'_>> = eligible.iter().map(|index| all[*index]).collect();
    let plan = || phases::plan(&request, earliest, latest, &candidates, effort, seed, &mut ());
    let outcome = plan();
    assert_eq!(plan(), outcome, "the same arguments give the same answer");
    match &outcome {
        PlanOutcome::Allocated(allocation) => {
            assert!(earliest <= allocation.start && allocation.start <= latest, "{allocation:?}");
            check_allocation(&grid, &request, allocation);
            if allocation.start_proven {
                no_start_in(&candidates, &request, earliest.0..allocation.start.0);
            }
        }
        PlanOutcome::Rejected(rejection) if rejection.start_proven => {
            no_start_in(&candidates, &request, earliest.0..latest.0 + 1);
        }
        PlanOutcome::Rejected(_) => {}
    }
}

fn request(input: &mut Input<'_>, scale: u64) -> Option<Request> {
    let mut pick = |range: u8| {
        let mut amounts = Amounts::new();
        for name in NAMES {
            if input.flag() {
                amounts.insert(words::resource(name), Amount(u64::from(input.below(range)) * scale));
            }
        }
        amounts
    };
    let (per_host, total) = (pick(6), pick(40));
    let (hosts, duration) = (1 + input.below(4), 1 + input.below(20));
    let document = json!({ "hosts": hosts, "duration": duration, "per_host": per_host, "total": total });
    serde_json::from_value(document).ok()
}

fn grid(input: &mut Input<'_>, scale: u64) -> Grid {
    let count = 1 + input.below(HOSTS_MAX);
    let mut hosts = Vec::new();
    for index in 0..count {
        let (mut capacity, mut steps) = (Amounts::new(), BTreeMap::new());
        for name in NAMES {
            // A little beside the scale, so that sums do not all come out even.
            let amount = u64::from(input.below(14)) * scale + u64::from(input.flag());
            capacity.insert(words::resource(name), Amount(amount));
            let mut used = BTreeMap::new();
            for _ in 0..input.below(5) {
                used.insert(Time(i64::from(input.below(LAST_CHANGE))), Amount(u64::from(input.below(12)) * scale));
            }
            steps.insert(words::resource(name), used.into_iter().collect());
        }
        let schedule = Schedule::from_steps(&steps).expect("ascending steps within bounds");
        hosts.push((words::host(&format!("h{index}"), capacity), schedule));
    }
    Grid { site: words::site("s"), hosts }
}

fn check_allocation(grid: &Grid, request: &Request, allocation: &Allocation) {
    let window = Window::starting(allocation.start, request.duration());
    let grants = &allocation.grants;
    assert_eq!(grants.len(), request.hosts());
    assert!(grants.is_sorted_by(|a, b| a.host < b.host), "distinct and in order");
    assert!(allocation.efficiency.is_finite() && allocation.efficiency_bound.is_finite(), "{allocation:?}");
    assert!(allocation.efficiency <= allocation.efficiency_bound, "{allocation:?}");
    for name in request.resources() {
        let mut sum = 0;
        for grant in grants {
            let found = grid.hosts.iter().find(|(host, _)| host.id == grant.host);
            let (host, schedule) = found.expect("a host of the grid");
            let amount = amount_of(&grant.amounts, &name).0;
            assert!(amount >= amount_of(request.per_host(), &name).0, "{name}: below the minimum");
            let capacity = amount_of(&host.capacity, &name).0;
            assert!(amount == 0 || amount + schedule.peak(&name, window).0 <= capacity, "{name}: above what is free");
            sum += amount;
        }
        assert_eq!(sum, request.needed_in_sum(&name).0, "{name}");
    }
}

/// What every host must give, as the documentation has it: what was asked, else one unit when the total has one a host.
fn minimum(request: &Request, name: &ResourceName) -> u64 {
    let implied = u64::from(amount_of(request.total(), name).0 >= request.hosts() as u64);
    request.per_host().get(name).map_or(implied, |asked| asked.0)
}

/// Tries every set of N hosts at every start.
fn no_start_in(candidates: &[Candidate<'_>], request: &Request, starts: std::ops::Range<i64>) {
    let resources: Vec<(ResourceName, u64, u64)> = request
        .resources()
        .into_iter()
        .map(|name| {
            let (minimum, needed) = (minimum(request, &name), request.needed_in_sum(&name).0);
            (name, minimum, needed)
        })
        .collect();
    for start in starts {
        let window = Window::starting(Time(start), request.duration());
        // Below zero where an owner has over-committed a host.
        let free: Vec<Vec<i128>> = candidates
            .iter()
            .map(|candidate| {
                let free = |name| {
                    let used = candidate.schedule.peak(name, window).0;
                    i128::from(amount_of(&candidate.host.capacity, name).0) - i128::from(used)
                };
                resources.iter().map(|(name, ..)| free(name)).collect()
            })
            .collect();
        for set in 0_u32..1 << candidates.len() {
            if set.count_ones() as usize != request.hosts() {
                continue;
            }
            let chosen = || (0..candidates.len()).filter(|at| set >> at & 1 == 1);
            let is_feasible = resources.iter().enumerate().all(|(index, (_, minimum, needed))| {
                chosen().all(|at| free[at][index] >= i128::from(*minimum))
                    && chosen().map(|at| free[at][index]).sum::<i128>() >= i128::from(*needed)
            });
            assert!(!is_feasible, "proven that no start before is possible, but at {start} set {set:b} is");
        }
    }
}

fn seeds() -> Vec<Seed> {
    let request = [1, 1, 2, 1, 1, 0, 1, 9, 1, 7, 0, 2, 5];
    let window = [0, 30, 1, 7];
    let host = [10, 1, 2, 3, 4, 20, 9, 8, 0, 1, 10, 8, 12, 1, 0];
    vec![
        ("three", [&request[..], &window, &[2], &host, &host, &host].concat()),
        ("six", [&request[..], &window, &[5], &host.repeat(6)].concat()),
        ("large", [&[0], &request[1..], &window, &[5], &host.repeat(6)].concat()),
    ]
}
