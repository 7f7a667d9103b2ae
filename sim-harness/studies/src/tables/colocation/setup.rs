//! The source's scenarios, and batches as they are drawn.
//!
//! Source: section 4.5.2 of the thesis on co-location. What it leaves open: a job's smallest factor comes from its largest demand, the largest one (at
//! most a whole host) from a ratio whose mean is 3.5; the demand that adds up to 24 hours of all hosts is that for what a job needs most
//! of. Invariant: a seed, a scenario and a number give the same batch.

use anyhow::Context;
use broker::{
    offline::{Asked, OfflinePlanner},
    phases::Settings,
    snapshot::GridSnapshot,
};
use rand::RngExt;
use rand_xoshiro::{
    SplitMix64, Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use serde::Serialize;
use serde_json::json;

/// What a host has of each resource.
const HOST: u32 = 1000;
/// Lengths of jobs, in seconds: 4.5 hours, 2.5 more or less.
const LENGTHS: std::ops::RangeInclusive<u64> = 7_200..=25_200;
/// What all jobs need together, in seconds of all hosts.
const DAY: u64 = 86_400;
/// The smallest and the largest demand that a job can be scaled down to, as parts of a host.
const LEAST: (f64, f64) = (0.15, 0.8);

/// What the batches of a scenario have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Scenario {
    pub(super) hosts: usize,
    /// Jobs that need as much of each resource, in per cent.
    pub(super) balanced_percent: u32,
    /// Whether jobs have several seats.
    pub(super) is_parallel: bool,
}

/// A batch and the hosts that it is for.
pub(super) struct Batch {
    pub(super) planner: OfflinePlanner,
    pub(super) requests: Vec<Asked>,
}

/// All scenarios.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for hosts in [5, 15, 30, 100] {
        for is_parallel in [false, true] {
            for balanced_percent in [0, 33, 66, 100] {
                scenarios.push(Scenario { hosts, balanced_percent, is_parallel });
            }
        }
    }
    scenarios
}

fn random(seed: u64, scenario: Scenario, number: u64) -> Xoshiro256PlusPlus {
    let of_scenario = (scenario.hosts as u64) << 8 | u64::from(scenario.balanced_percent) << 1;
    let mut seeds = SplitMix64::seed_from_u64(seed ^ (of_scenario | u64::from(scenario.is_parallel)) << 32 ^ number);
    Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64())
}

/// The smallest and the largest factor of a job, in thousandths, by what it needs most of.
fn factors(most: u32, random: &mut impl Rng) -> (u32, u32) {
    let most = f64::from(most) / f64::from(HOST);
    let smallest = random.random_range(LEAST.0..=LEAST.1.min(most));
    // The mean of 1.25 to 5, drawn so, is 3.5; many can grow to a whole host, and no further.
    let ratio = 5.0 - 3.75 * random.random_range(0.0_f64..=1.0).powf(1.5);
    let largest = (smallest * ratio).clamp(most, 1.0);
    ((smallest / most * 1000.0).ceil() as u32, (largest / most * 1000.0).floor() as u32)
}

/// Draws a batch.
///
/// # Errors
/// None that a draw in range could have.
pub(super) fn batch(seed: u64, scenario: Scenario, number: u64) -> anyhow::Result<Batch> {
    let mut random = random(seed, scenario, number);
    let amounts = |[cpu, memory, io]: [u32; 3]| json!({ "cpu": cpu, "memory": memory, "io": io });
    let host = |at: usize| json!({ "id": format!("h{at:03}"), "site": "s", "resources": amounts([HOST; 3]) });
    let hosts: Vec<_> = (0..scenario.hosts).map(host).collect();
    let grid = GridSnapshot::read(&json!({ "format": "kolo-grid/2", "hosts": hosts }).to_string())?;
    let planner = OfflinePlanner::new(grid, Settings::default(), 1, false);
    let seats_max = if scenario.is_parallel { (scenario.hosts * 3).div_ceil(10) } else { 1 };
    let (mut requests, mut needed) = (Vec::new(), 0);
    while needed < DAY * u64::from(HOST) * scenario.hosts as u64 {
        let [first, second, third] = [(); 3].map(|()| random.random_range(1..=5) * HOST / 5);
        let is_balanced = random.random_range(0..100) < scenario.balanced_percent;
        let demands = if is_balanced { [first; 3] } else { [first, second, third] };
        let most = demands.into_iter().max().unwrap_or(HOST);
        let (seats, length) = (random.random_range(1..=seats_max), random.random_range(LENGTHS));
        let id = format!("j{:04}", requests.len());
        let line = json!({
            "id": id, "hosts": seats, "duration": length, "per_host": amounts(demands), "earliest": 0, "latest": 10_000_000,
            "scale": factors(most, &mut random),
        });
        requests.push(planner.read_line(requests.len() + 1, &line.to_string()).context(id)?);
        needed += length * seats as u64 * u64::from(most);
    }
    Ok(Batch { planner, requests })
}
