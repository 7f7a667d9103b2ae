//! What a load does while it goes on: counted by the users, shown by the progress display.
//!
//! Invariant: every request that was begun is open until it has ended as exactly one of reserved, rejected and failed; and
//! of the latencies only those of the last [`RECENT`] are kept.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::answer::{Answer, Outcome};
use crate::stats::percentiles;
use crate::{grid::nodes::cluster::Cluster, progress::Progress};

/// Over which latencies are shown.
const RECENT: Duration = Duration::from_secs(5);
/// Most of them; above it the oldest make room.
const RECENT_MAX: usize = 16_384;
/// Between two looks for the end of a load.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The counts of a load.
#[derive(Debug)]
pub struct Pulse {
    begun: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    reserved: u64,
    rejected: u64,
    failed: u64,
    conflicts: u64,
    recent: VecDeque<(Instant, f64)>,
}

impl Pulse {
    /// Nothing has happened yet.
    pub fn new() -> Pulse {
        Pulse { begun: Instant::now(), counts: Mutex::default() }
    }

    /// A request is due now.
    pub fn request_begins(&self) {
        self.counts().begun += 1;
    }

    /// A request has its answer.
    pub fn request_ends(&self, answer: &Answer) {
        let mut counts = self.counts();
        match answer.outcome() {
            Outcome::Reserved => counts.reserved += 1,
            Outcome::Rejected => counts.rejected += 1,
            Outcome::Failed => counts.failed += 1,
        }
        counts.conflicts += answer.view().map_or(0, |view| view.conflicts);
        if let Some(latency_ms) = answer.latency_ms() {
            if counts.recent.len() >= RECENT_MAX {
                counts.recent.pop_front();
            }
            counts.recent.push_back((Instant::now(), latency_ms));
        }
    }

    /// In three short lines, at `now`, with `up` of `nodes` nodes running.
    fn words(&self, now: Instant, up: usize, nodes: usize) -> [String; 3] {
        let mut counts = self.counts();
        while counts.recent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > RECENT) {
            counts.recent.pop_front();
        }
        let latencies: Vec<f64> = counts.recent.iter().map(|(_, latency)| *latency).collect();
        let latency = percentiles(&latencies).map_or_else(
            || "none reserved".to_owned(),
            |found| format!("p50 {:.0} ms, p99 {:.0} ms", found.p50, found.p99),
        );
        let Counts { begun, reserved, rejected, failed, conflicts, .. } = *counts;
        let open = begun.saturating_sub(reserved + rejected + failed);
        [
            format!("{} s: {up} of {nodes} nodes", now.saturating_duration_since(self.begun).as_secs()),
            format!(
                "{begun} requests: {reserved} reserved, {rejected} rejected, {failed} failed, {open} open; {conflicts} \
                 conflicts"
            ),
            format!("last {} s: {latency}", RECENT.as_secs()),
        ]
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Each change is complete before anything could panic.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows the counts until `over`.
pub fn show(pulse: &Pulse, cluster: &Cluster, progress: &Progress, over: &AtomicBool) {
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next = Instant::now() + progress.live_every();
            let up = cluster.running();
            progress.live(&pulse.words(Instant::now(), up, cluster.nodes.len()));
        }
        thread::sleep(LOOK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::{End, tests::answer};

    #[test]
    fn every_request_is_open_until_it_ends_and_old_latencies_are_forgotten() {
        let pulse = Pulse::new();
        (0..5).for_each(|_| pulse.request_begins());
        pulse.request_ends(&answer("confirmed", &json!(null), 20));
        pulse.request_ends(&answer("confirmed", &json!(null), 40));
        pulse.request_ends(&answer("rejected", &json!(null), 900));
        pulse.request_ends(&Answer { end: End::Lost("gone".to_owned()), ..answer("failed", &json!(null), 1) });
        let words = pulse.words(Instant::now(), 3, 4).join("; ");
        assert!(
            words.ends_with(
                ": 3 of 4 nodes; 5 requests: 2 reserved, 1 rejected, 1 failed, 1 open; 3 conflicts; last 5 s: p50 30 ms, \
                 p99 40 ms"
            ),
            "{words}"
        );
        let [_, _, later] = pulse.words(Instant::now() + RECENT * 2, 4, 4);
        assert_eq!(later, "last 5 s: none reserved");
    }
}
