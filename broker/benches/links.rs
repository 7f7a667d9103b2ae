//! What traffic between hosts costs the planner: 100 of 600 hosts, over 40 sites whose links are used in part.
//!
//! The named baseline is the same request without traffic. `cargo bench -p broker --bench links` prints one table of medians with the
//! ratio of the two in the same run, and the mean of what the plans are worth and by how much the worst may miss the best, in per cent.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

mod timing;

use broker::{
    amount::Amount,
    offline::OfflinePlanner,
    phases::Settings,
    plan::PlanOutcome,
    request::{Request, RequestDocument},
    snapshot::GridSnapshot,
    traffic::Traffic,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use timing::{is_bench, median, timed};

const SITES: usize = 40;
const HOSTS_AT_SITE: usize = 15;
const HOSTS_ASKED: u32 = 100;
const SPEEDS: [u32; 4] = [750, 1000, 1500, 2000];
const SEEDS: u64 = 5;
const RUNS: usize = 9;

/// Steps of `[time, used]` over a day, up to `most`.
fn steps(random: &mut Xoshiro256PlusPlus, count: usize, most: u64) -> serde_json::Value {
    let step = |at: usize| serde_json::json!([at * 86_400 / count, random.random_range(0..=most)]);
    (0..count).map(step).collect()
}

fn grid(seed: u64) -> GridSnapshot {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let site = |at: usize, random: &mut Xoshiro256PlusPlus| {
        let mbps = random.random_range(500..=2_000);
        serde_json::json!({ "id": format!("s{at:02}"), "uplink": { "mbps": mbps, "occupancy": steps(random, 48, mbps) } })
    };
    let sites: Vec<_> = (0..SITES).map(|at| site(at, &mut random)).collect();
    let host = |at: usize| {
        let speed = SPEEDS[random.random_range(0..SPEEDS.len())];
        let used = steps(&mut random, 96, 3_900);
        serde_json::json!({
            "id": format!("h{at:03}"), "site": format!("s{:02}", at / HOSTS_AT_SITE), "speed": speed,
            "resources": { "cpu": 4000 }, "occupancy": { "cpu": used }, "prices": { "cpu": speed },
        })
    };
    let hosts: Vec<_> = (0..SITES * HOSTS_AT_SITE).map(host).collect();
    let text = serde_json::json!({ "format": "kolo-grid/2", "sites": sites, "hosts": hosts }).to_string();
    GridSnapshot::read(&text).expect("a grid")
}

/// An hour of work; `total` is what the hosts have together.
fn request(objective: &str, total: Option<u64>, traffic: Option<u64>) -> Request {
    let text = format!(
        r#"{{"hosts":{HOSTS_ASKED},"work":3600,"earliest":0,"latest":82800,"per_host":{{"cpu":500}},"objective":"{objective}"}}"#
    );
    let mut document: RequestDocument = serde_json::from_str(&text).expect("a request");
    document.total = total.into_iter().map(|total| ("cpu".parse().expect("a name"), Amount(total))).collect();
    document.traffic = traffic.map(|mbps| Traffic { mbps: Amount(mbps), compute: 700 });
    Request::try_from(document).expect("a request")
}

fn main() {
    if !is_bench() {
        return;
    }
    let planners: Vec<OfflinePlanner> =
        (0..SEEDS).map(|seed| OfflinePlanner::new(grid(seed), Settings::default(), seed, false)).collect();
    println!(
        "{:>10} {:>6} {:>6} {:>9} {:>11} {:>7} {:>7} {:>12} {:>6}",
        "objective", "total", "Mbit/s", "ms", "without, ms", "ratio", "proven", "value", "gap, %"
    );
    for objective in ["start", "finish", "runtime", "cost"] {
        for (total, mbps) in [(None, 5), (None, 50), (Some(120_000), 5), (Some(120_000), 50)] {
            let (with, without) = (request(objective, total, Some(mbps)), request(objective, total, None));
            let (mut times, mut plain, mut proven) = (Vec::new(), Vec::new(), 0);
            let (mut values, mut gap) = (Vec::new(), 0.0_f64);
            for planner in &planners {
                let outcome = planner.plan(&with, &mut ());
                proven += usize::from(match &outcome {
                    PlanOutcome::Allocated(plan) => plan.objective.bound == Some(plan.objective.value),
                    PlanOutcome::Rejected(rejection) => rejection.start_proven,
                });
                if let PlanOutcome::Allocated(plan) = outcome {
                    let (value, bound) = (plan.objective.value as f64, plan.objective.bound.unwrap_or(0) as f64);
                    gap = gap.max(100.0 * (value - bound) / value.max(1.0));
                    values.push(value);
                }
                for _ in 0..RUNS {
                    times.push(timed(|| planner.plan(&with, &mut ())).1);
                    plain.push(timed(|| planner.plan(&without, &mut ())).1);
                }
            }
            let (ms, without) = (median(times), median(plain));
            let (total, ratio) = (total.unwrap_or(0), ms / without);
            let value = values.iter().sum::<f64>() / values.len().max(1) as f64;
            println!(
                "{objective:>10} {total:>6} {mbps:>6} {ms:>9.3} {without:>11.3} {ratio:>7.2} {proven:>3} / {SEEDS} {value:>12.1} {gap:>6.3}"
            );
        }
    }
}
