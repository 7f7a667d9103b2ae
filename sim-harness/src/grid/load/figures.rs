//! What a load at a given rate did, to its users and to the nodes.
//!
//! Invariant: everything is measured over the same time, from the first request that was due to the end of the last one.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    answer::{Outcome, milliseconds},
    users::Placed,
};
use crate::grid::nodes::cluster::Cluster;
use crate::stats::{Percentiles, percentiles};

/// Counters of the nodes that are shown, as they are named in `GET /v1/status`.
const TRAFFIC: [&str; 8] = [
    "gossip_received",
    "gossip_published",
    "dht_gets",
    "dht_puts",
    "asks_out",
    "schedules_fetched",
    "gaps",
    "changes_dropped",
];

/// Figures of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadFigures {
    /// Requests a second that were asked for.
    pub asked_per_second: f64,
    /// Requests that came.
    pub requests: usize,
    /// Those of them that were reserved.
    pub reserved: usize,
    /// Those that ended otherwise than reserved or rejected.
    pub failed: usize,
    /// Attempts that a site refused.
    pub conflicts: u64,
    /// From the due moment to the confirmation of the reserved ones.
    pub latency_ms: Option<Percentiles>,
    /// Processor time of all nodes, as a multiple of one processor; none where the system does not show it.
    pub nodes_cpu: Option<f64>,
    /// Processor time of all nodes for one request.
    pub cpu_ms_per_request: Option<f64>,
    /// What a node counted in a second, on average.
    pub node_per_second: BTreeMap<String, f64>,
    /// The load second by second, for plots.
    #[serde(skip)]
    pub seconds: Vec<Second>,
}

/// The requests that were due in one second of a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Second {
    /// How many came.
    pub requests: usize,
    /// Latencies of the reserved ones.
    pub latency_ms: Option<Percentiles>,
}

impl LoadFigures {
    /// Whether the grid kept up: every request was answered, and the 99th percentile is below `limit`.
    pub fn has_kept_up(&self, limit: Duration) -> bool {
        self.failed == 0 && self.latency_ms.is_some_and(|latency| latency.p99 < milliseconds(limit))
    }

    /// For people.
    pub fn words(&self) -> String {
        let latency = self.latency_ms.map_or_else(
            || "none".to_owned(),
            |latency| format!("{:.0} / {:.0} / {:.0} ms", latency.p50, latency.p99, latency.max),
        );
        let cpu = self
            .nodes_cpu
            .zip(self.cpu_ms_per_request)
            .map_or_else(String::new, |(share, each)| format!("; processors: {share:.2}, {each:.0} ms a request"));
        format!(
            "at {:.1} a second: {} of {} reserved, {} failed, {} conflicts; p50 / p99 / max {latency}{cpu}",
            self.asked_per_second, self.reserved, self.requests, self.failed, self.conflicts
        )
    }
}

/// The nodes as they were when a load began.
pub struct Before {
    at: Instant,
    processor_time: Option<Duration>,
    counters: BTreeMap<String, u64>,
}

impl Before {
    /// Looks at the nodes now.
    pub fn look(cluster: &Cluster) -> Before {
        let counters = counters(cluster, |name| TRAFFIC.contains(&name));
        Before { at: Instant::now(), processor_time: cluster.processor_time(), counters }
    }

    /// What has happened since.
    pub fn figures(&self, cluster: &Cluster, asked_per_second: f64, placed: &[Placed]) -> LoadFigures {
        let seconds = self.at.elapsed().as_secs_f64();
        let latencies: Vec<f64> = placed.iter().filter_map(|one| one.answer.latency_ms()).collect();
        let answered = placed.iter().filter(|one| one.answer.outcome() != Outcome::Failed).count();
        let used = self.processor_time.zip(cluster.processor_time());
        // A node that crashed meanwhile counts from nothing again.
        let used = used.map(|(before, after)| after.saturating_sub(before));
        let node_seconds = seconds * cluster.nodes.len() as f64;
        let grown = |(name, count): (String, u64)| {
            let grown = count.saturating_sub(self.counters.get(&name).copied().unwrap_or_default());
            (name, grown as f64 / node_seconds)
        };
        LoadFigures {
            asked_per_second,
            requests: placed.len(),
            reserved: latencies.len(),
            failed: placed.len() - answered,
            conflicts: placed.iter().filter_map(|one| one.answer.view()).map(|view| view.conflicts).sum(),
            latency_ms: percentiles(&latencies),
            nodes_cpu: used.map(|used| used.as_secs_f64() / seconds),
            cpu_ms_per_request: used.map(|used| milliseconds(used) / placed.len().max(1) as f64),
            node_per_second: counters(cluster, |name| TRAFFIC.contains(&name)).into_iter().map(grown).collect(),
            seconds: by_second(placed),
        }
    }
}

/// The load second by second, from the first request on.
fn by_second(placed: &[Placed]) -> Vec<Second> {
    let Some(first) = placed.iter().map(|one| one.due).min() else { return Vec::new() };
    let mut seconds: Vec<(usize, Vec<f64>)> = Vec::new();
    for one in placed {
        // A load lasts a day at most.
        let second = usize::try_from((one.due - first).as_secs()).unwrap_or(usize::MAX);
        if seconds.len() <= second {
            seconds.resize_with(second + 1, Default::default);
        }
        seconds[second].0 += 1;
        seconds[second].1.extend(one.answer.latency_ms());
    }
    let second = |(requests, latencies): (usize, Vec<f64>)| Second { requests, latency_ms: percentiles(&latencies) };
    seconds.into_iter().map(second).collect()
}

/// Counters of the nodes, summed, of those names that are `wanted`. A node that does not answer just now is left out.
pub fn counters(cluster: &Cluster, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for status in cluster.nodes.iter().filter_map(|node| node.client().status().ok()) {
        for (name, count) in status.counters.into_iter().filter(|(name, _)| wanted(name)) {
            *sums.entry(name).or_default() += count;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_keeps_up_when_all_are_answered_and_soon() {
        let figures = LoadFigures {
            asked_per_second: 50.0,
            requests: 100,
            reserved: 98,
            failed: 0,
            conflicts: 3,
            latency_ms: Some(Percentiles { p50: 30.0, p99: 249.0, max: 900.0 }),
            nodes_cpu: Some(1.5),
            cpu_ms_per_request: Some(30.0),
            node_per_second: BTreeMap::new(),
            seconds: Vec::new(),
        };
        let limit = Duration::from_millis(250);
        assert!(figures.has_kept_up(limit));
        assert!(!LoadFigures { failed: 1, ..figures.clone() }.has_kept_up(limit));
        assert!(!LoadFigures { latency_ms: None, ..figures.clone() }.has_kept_up(limit));
        assert!(!figures.has_kept_up(Duration::from_millis(249)));
        assert_eq!(
            figures.words(),
            "at 50.0 a second: 98 of 100 reserved, 0 failed, 3 conflicts; p50 / p99 / max 30 / 249 / 900 ms; processors: \
             1.50, 30 ms a request"
        );
    }
}
