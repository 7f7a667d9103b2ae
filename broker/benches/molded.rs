//! What a moldable request costs the planner: by objective, on the hosts of a snapshot.
//!
//! The named baseline is the same request without `scale`. `cargo bench -p broker --bench molded -- GRID.json REQUESTS.jsonl` prints one table
//! of sums over requests of the medians of runs, with the ratio of the two in the same run, and the largest ratio of one request.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

mod timing;

use std::{fs, time::Duration};

use broker::{
    offline::OfflinePlanner,
    phases::{PhaseStopwatch, Settings},
    snapshot::GridSnapshot,
};
use serde_json::{Value, json};

use timing::{is_bench, median, timed};

const OBJECTIVES: [&str; 5] = ["start", "finish", "runtime", "host_time", "cost"];
const SCALE: [u32; 2] = [500, 2000];
/// One request in so many is measured.
const EVERY: usize = 27;
const RUNS: usize = 3;

/// The median of some runs in milliseconds, and the plan.
fn measured(planner: &mut OfflinePlanner, request: &Value) -> (f64, Value) {
    let text = request.to_string();
    let mut plan = Value::Null;
    let times = (0..RUNS).map(|_| {
        let (line, ms) = timed(|| planner.plan_line(1, &text, &mut PhaseStopwatch::new(|| Duration::ZERO)));
        plan = serde_json::to_value(line.expect("a request of the snapshot")).expect("a line");
        ms
    });
    (median(times.collect()), plan)
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (true, [grid, requests]) = (is_bench(), &files[..]) else { return };
    let read = |file: &String| fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let snapshot = GridSnapshot::read(&read(grid)).expect("a snapshot");
    let mut planner = OfflinePlanner::new(snapshot, Settings::default(), 1, false);
    let lines = read(requests);
    println!(
        "{:<10} {:>8} {:>10} {:>10} {:>6} {:>8} {:>7}",
        "objective", "requests", "fixed ms", "scaled ms", "x", "worst x", "proven"
    );
    for objective in OBJECTIVES {
        let (mut fixed, mut scaled, mut worst, mut proven, mut count) = (0.0, 0.0, 0.0_f64, 0, 0);
        for line in lines.lines().step_by(EVERY) {
            let mut request: Value = serde_json::from_str(line).expect("a request");
            request.as_object_mut().expect("an object").remove("candidates");
            request["objective"] = json!(objective);
            let (plain, _) = measured(&mut planner, &request);
            request["scale"] = json!(SCALE);
            let (molded, plan) = measured(&mut planner, &request);
            let objective = &plan["objective"];
            proven += usize::from(objective["bound"] == objective["value"]);
            (fixed, scaled, worst, count) = (fixed + plain, scaled + molded, worst.max(molded / plain), count + 1);
        }
        println!(
            "{objective:<10} {count:>8} {fixed:>10.1} {scaled:>10.1} {:>6.1} {worst:>8.1} {proven:>7}",
            scaled / fixed
        );
    }
}
