//! What a load does while it goes on: counted by the users, shown by the progress display.
//!
//! Invariant: every request that was begun is open until it has ended as exactly one of reserved, rejected and failed; and
//! of the latencies only those of the last [`RECENT`] are kept.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sim_kit::{progress::Progress, stats::percentiles};

use super::answer::{Answer, Counts};
use crate::grid::nodes::{cluster::Cluster, wait::locked};

/// Over which latencies are shown.
const RECENT: Duration = Duration::from_secs(5);
/// Most of them; above it the oldest make room.
const RECENT_MAX: usize = 16_384;
/// Between two looks for the end of a load.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The counts of a load.
#[derive(Debug, Default)]
pub struct Pulse(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    begun: usize,
    ended: Counts,
    /// When a reservation was acknowledged, and after how many milliseconds.
    recent: VecDeque<(Instant, f64)>,
}

impl Pulse {
    /// A request is due now.
    pub fn request_begins(&self) {
        locked(&self.0).begun += 1;
    }

    /// A request has its answer.
    pub fn request_ends(&self, answer: &Answer) {
        let mut counted = locked(&self.0);
        counted.ended.add(answer);
        if let Some(latency_ms) = answer.latency_ms() {
            if counted.recent.len() >= RECENT_MAX {
                counted.recent.pop_front();
            }
            counted.recent.push_back((Instant::now(), latency_ms));
        }
    }

    /// In two short lines, at `now`.
    fn words(&self, now: Instant) -> [String; 2] {
        let mut counted = locked(&self.0);
        while counted.recent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > RECENT) {
            counted.recent.pop_front();
        }
        let latencies: Vec<f64> = counted.recent.iter().map(|(_, latency)| *latency).collect();
        let latency = percentiles(&latencies).map_or_else(
            || "none reserved".to_owned(),
            |found| format!("p50 {:.0} ms, p99 {:.0} ms", found.p50, found.p99),
        );
        let (begun, Counts { requests, reserved, rejected, failed, conflicts, .. }) = (counted.begun, &counted.ended);
        let ended = format!("{reserved} reserved, {rejected} rejected, {failed} failed");
        [
            format!("{begun} requests: {ended}, {} open; {conflicts} conflicts", begun.saturating_sub(*requests)),
            format!("last {} s: {latency}", RECENT.as_secs()),
        ]
    }
}

/// Shows the counts until `over`.
pub fn show(pulse: &Pulse, cluster: &Cluster, progress: &Progress, over: &AtomicBool) {
    let begun = Instant::now();
    let mut next = begun;
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next = Instant::now() + progress.live_every();
            let nodes = cluster.nodes();
            let up = nodes.iter().filter(|node| node.process.is_running()).count();
            let time = format!("{} s: {up} of {} nodes", begun.elapsed().as_secs(), nodes.len());
            let [requests, latency] = pulse.words(Instant::now());
            progress.live(&[time, requests, latency]);
        }
        thread::sleep(LOOK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    #[test]
    fn every_request_is_open_until_it_ends_and_old_latencies_are_forgotten() {
        let pulse = Pulse::default();
        (0..5).for_each(|_| pulse.request_begins());
        for (state, latency_ms) in [("confirmed", 20), ("confirmed", 40), ("rejected", 900)] {
            pulse.request_ends(&answer(state, &json!(null), latency_ms));
        }
        pulse.request_ends(&Answer { end: Err("gone".to_owned()), ..answer("failed", &json!(null), 1) });
        let expected =
            "5 requests: 2 reserved, 1 rejected, 1 failed, 1 open; 3 conflicts; last 5 s: p50 30 ms, p99 40 ms";
        assert_eq!(pulse.words(Instant::now()).join("; "), expected);
        assert_eq!(pulse.words(Instant::now() + RECENT * 2)[1], "last 5 s: none reserved");
    }
}
