//! What 250 alternatives of one request cost on 400 hosts: windows that do not collide, each the best by the objective on what is left.
//!
//! Source: the dissertation on windows of slots, chapter 4 (over 3 s in Java at 2.93 GHz). The baselines are the strategy `scan`, which is the
//! source's algorithm and pays for a whole plan at every slot, and the same algorithm at its leanest: bare numbers, slots cut in
//! place, no budget. `cargo bench -p studies --bench alternatives` prints medians with the ratios in the same run.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

#[path = "../src/placement/scan.rs"]
mod scan;
#[path = "../../../broker/benches/timing/mod.rs"]
mod timing;

use broker::{
    phases::{Candidate, Job, Windows},
    request::{Effort, Request},
    snapshot::GridSnapshot,
    strategy::Strategy,
    time::Time,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use scan::SlotScan;
use timing::{is_bench, median, timed};

const HOSTS: usize = 400;
const ALTERNATIVES: usize = 250;
const SEATS: usize = 5;
/// Units of 60 seconds; the units of work are at speed 1.
const CYCLE: i64 = 600;
const WORK: i64 = 350;
const UNIT_S: i64 = 60;
const SEEDS: u64 = 3;

/// A host in bare numbers: speed and price in thousandths, and when its owner's jobs begin and end, in seconds.
struct Bare {
    speed: i64,
    price: i64,
    busy: Vec<(i64, i64)>,
}

/// Hosts of speeds 2 to 10 with the market's prices, three local jobs of 60 units on each.
fn domain(seed: u64) -> Vec<Bare> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let host = |_| {
        let speed = random.random_range(2_000..=10_000);
        let mut busy = |place: i64| {
            let start = place * 200 + random.random_range(0..=140);
            (start * UNIT_S, (start + 60) * UNIT_S)
        };
        let busy = vec![busy(0), busy(1), busy(2)];
        Bare { speed, price: speed * random.random_range(60..=140) * 60 / 100, busy }
    };
    (0..HOSTS).map(host).collect()
}

fn snapshot(domain: &[Bare]) -> GridSnapshot {
    let host = |(at, Bare { speed, price, busy }): (usize, &Bare)| {
        let steps: Vec<String> = busy.iter().map(|(from, to)| format!("[{from},1000],[{to},0]")).collect();
        format!(
            r#"{{"id":"h{at:03}","site":"s","resources":{{"cpu":1000}},"speed":{speed},"prices":{{"cpu":{price}}},"occupancy":{{"cpu":[{}]}}}}"#,
            steps.join(",")
        )
    };
    let hosts: Vec<String> = domain.iter().enumerate().map(host).collect();
    GridSnapshot::read(&format!(r#"{{"format":"kolo-grid/2","hosts":[{}]}}"#, hosts.join(","))).expect("a grid")
}

fn candidates(grid: &GridSnapshot) -> Vec<Candidate<'_>> {
    grid.hosts
        .iter()
        .map(|entry| Candidate { site: &entry.site, host: &entry.host, schedule: &entry.schedule })
        .collect()
}

fn job(request: &Request) -> Job<'_> {
    Job::of(request, (Time(0), Time(CYCLE * UNIT_S)))
}

/// The values of the alternatives.
fn found(request: &Request, grid: &GridSnapshot) -> Vec<i64> {
    let candidates = candidates(grid);
    let mut windows = Windows::new(&job(request), &candidates, Effort::Balanced, 1).expect("a fixed request");
    let mut values = Vec::new();
    while values.len() < ALTERNATIVES {
        let outcome = windows.find(&mut ());
        let Some(plan) = outcome.plan() else { break };
        windows.take(plan);
        values.push(plan.objective.value);
    }
    values
}

/// The same as a strategy finds them, each anew.
fn searched(mut strategy: SlotScan, request: &Request, mut grid: GridSnapshot) -> Vec<i64> {
    let mut values = Vec::new();
    while values.len() < ALTERNATIVES {
        let outcome = strategy.plan(&job(request), &candidates(&grid), Effort::Balanced, 1, &mut ());
        let Some(plan) = outcome.plan() else { break };
        values.push(plan.objective.value);
        for seat in &plan.seats {
            let entry = grid.hosts.iter_mut().find(|entry| entry.host.id == *seat.host()).expect("a host of the grid");
            entry.schedule.add(seat.window, &seat.amounts);
        }
    }
    values
}

/// A time in which a host is free.
#[derive(Clone, Copy)]
struct Slot {
    first: i64,
    end: i64,
    length: i64,
    /// What the objective takes the least of: a length or a cost.
    key: i64,
}

/// The same by the source's scan at its leanest; the value is what it minimises: the largest of the keys, with the start or alone, or
/// their sum.
fn lean(domain: &[Bare], objective: &str) -> Vec<i64> {
    let mut slots = Vec::new();
    for Bare { speed, price, busy } in domain {
        let length = (WORK * UNIT_S * 1000 + speed - 1) / speed;
        let key = if objective == "cost" { (length * price + 3599) / 3600 } else { length };
        let starts = [0].into_iter().chain(busy.iter().map(|(_, end)| *end));
        let ends = busy.iter().map(|(start, _)| *start).chain([CYCLE * UNIT_S]);
        let slot = |(first, end)| Slot { first, end, length, key };
        slots.extend(starts.zip(ends).map(slot).filter(|slot| slot.end - slot.first >= length));
    }
    let mut values = Vec::new();
    while values.len() < ALTERNATIVES {
        slots.sort_unstable_by_key(|slot: &Slot| slot.first);
        let mut open: Vec<usize> = Vec::new();
        let mut best: Option<(i64, i64, Vec<usize>)> = None;
        for at in 0..slots.len() {
            let start = slots[at].first;
            open.retain(|other| slots[*other].end - slots[*other].length >= start);
            open.push(at);
            if open.len() < SEATS {
                continue;
            }
            open.select_nth_unstable_by_key(SEATS - 1, |slot| slots[*slot].key);
            let keys = open[..SEATS].iter().map(|slot| slots[*slot].key);
            let value = match objective {
                "start" => start,
                "runtime" => keys.max().unwrap_or(0),
                "finish" => start + keys.max().unwrap_or(0),
                _ => keys.sum(),
            };
            if best.as_ref().is_none_or(|(least, ..)| value < *least) {
                best = Some((value, start, open[..SEATS].to_vec()));
            }
            if objective == "start" {
                break;
            }
        }
        let Some((value, start, chosen)) = best else { break };
        values.push(value);
        for at in chosen {
            let slot = slots[at];
            slots[at].end = start;
            slots.push(Slot { first: start + slot.length, ..slot });
        }
        slots.retain(|slot| slot.end - slot.first >= slot.length);
    }
    values
}

fn main() {
    if !is_bench() {
        return;
    }
    println!(
        "{ALTERNATIVES} alternatives of {SEATS} hosts on {HOSTS}; median milliseconds of {SEEDS} domains, and ratios to Kolo's"
    );
    println!("{:<10} {:>8} {:>10} {:>8} {:>10} {:>8}", "objective", "Kolo", "scan", "ratio", "lean scan", "ratio");
    for objective in ["start", "runtime", "finish", "host_time", "cost"] {
        let text = format!(
            r#"{{"hosts":{SEATS},"work":{},"deadline":{},"per_host":{{"cpu":1000}},"objective":"{objective}"}}"#,
            WORK * UNIT_S,
            CYCLE * UNIT_S
        );
        let request: Request = serde_json::from_str(&text).expect("a well-formed request");
        let [mut kolo, mut scanned, mut bare] = [const { Vec::new() }; 3];
        for seed in 0..SEEDS {
            let domain = domain(seed);
            let grid = snapshot(&domain);
            let (ours, ours_ms) = timed(|| found(&request, &grid));
            let (theirs, theirs_ms) = timed(|| searched(SlotScan { shifts: false }, &request, grid));
            let (leanest, lean_ms) = timed(|| lean(&domain, objective));
            assert_eq!([ours.len(), theirs.len(), leanest.len()], [ALTERNATIVES; 3], "{objective}");
            // Without a budget and at constant prices the scan is exact: the first alternative is the same.
            assert_eq!([ours[0], theirs[0]], [leanest[0]; 2], "{objective}");
            kolo.push(ours_ms);
            scanned.push(theirs_ms);
            bare.push(lean_ms);
        }
        let [kolo, scan, bare] = [kolo, scanned, bare].map(median);
        println!("{objective:<10} {kolo:>8.1} {scan:>10.1} {:>8.1} {bare:>10.1} {:>8.1}", scan / kolo, bare / kolo);
    }
}
