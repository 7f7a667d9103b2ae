//! What a load at a given rate did, to its users and to the nodes.
//!
//! Invariant: everything is measured over the same time, from the first request that was due to the end of the last one.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::answer::{Answer, Counts, milliseconds};
use crate::grid::nodes::cluster::Cluster;

/// Figures of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LoadFigures {
    /// Requests a second that were asked for.
    pub asked_per_second: f64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Processor time of all nodes, as a multiple of one processor; none where the system does not show it.
    pub nodes_cpu: Option<f64>,
    /// Processor time of all nodes for one request.
    pub cpu_ms_per_request: Option<f64>,
    /// The requests that were due in each second from the first one on, for plots.
    #[serde(skip)]
    pub seconds: Vec<Counts>,
}

impl LoadFigures {
    /// What has happened since the nodes were as `before`.
    pub fn new(before: &Used, cluster: &Cluster, asked_per_second: f64, answers: &[Answer]) -> LoadFigures {
        let used = Used::look(cluster).since(before);
        let first = answers.iter().map(|answer| answer.due).min();
        let mut seconds: Vec<Vec<&Answer>> = Vec::new();
        for answer in answers {
            // A load lasts a day at most.
            let second = first.map_or(0, |first| (answer.due - first).as_secs() as usize);
            seconds.resize_with(seconds.len().max(second + 1), Vec::new);
            seconds[second].push(answer);
        }
        LoadFigures {
            asked_per_second,
            counts: Counts::of(answers),
            nodes_cpu: used.processors(),
            cpu_ms_per_request: used.processor_time.map(|time| milliseconds(time) / answers.len().max(1) as f64),
            seconds: seconds.into_iter().map(Counts::of).collect(),
        }
    }

    /// Whether the grid kept up: every request was answered, and the 99th percentile is below `limit`.
    pub fn has_kept_up(&self, limit: Duration) -> bool {
        self.counts.failed == 0 && self.counts.latency_ms.is_some_and(|latency| latency.p99 < milliseconds(limit))
    }
}

/// What all nodes together have used.
pub struct Used {
    at: Instant,
    /// Since an earlier look.
    pub lasted: Duration,
    pub processor_time: Option<Duration>,
}

impl Used {
    /// Until now.
    pub fn look(cluster: &Cluster) -> Used {
        Used { at: Instant::now(), lasted: Duration::ZERO, processor_time: cluster.processor_time() }
    }

    /// What has come since `before`. A node that crashed meanwhile counts from nothing again.
    #[must_use]
    pub fn since(&self, before: &Used) -> Used {
        let used = self.processor_time.zip(before.processor_time);
        let processor_time = used.map(|(after, before)| after.saturating_sub(before));
        Used { lasted: self.at - before.at, processor_time, ..*self }
    }

    /// Processor time as a multiple of one processor.
    pub fn processors(&self) -> Option<f64> {
        self.processor_time.map(|time| time.as_secs_f64() / self.lasted.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_kit::stats::Percentiles;

    #[test]
    fn a_grid_keeps_up_when_all_are_answered_and_soon() {
        let latency_ms = Some(Percentiles { p50: 30.0, p99: 249.0, max: 900.0 });
        let kept_up = |failed, latency_ms, limit_ms| {
            let counts = Counts { failed, latency_ms, ..Counts::default() };
            LoadFigures { counts, ..LoadFigures::default() }.has_kept_up(Duration::from_millis(limit_ms))
        };
        assert!(kept_up(0, latency_ms, 250));
        assert!(!kept_up(1, latency_ms, 250) && !kept_up(0, None, 250) && !kept_up(0, latency_ms, 249));
    }
}
