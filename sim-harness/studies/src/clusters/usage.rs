//! How full clusters and links are over time, as means over equal pieces.
//!
//! Invariant: the means are exact; a piece's mean times its length, summed over the pieces, is the total over all runs.

use super::world::{Cluster, Ended, Job};

/// See the module.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Usage {
    /// Length of a piece, in seconds.
    pub(crate) piece_s: f64,
    /// By cluster and piece: its hosts in use, of all.
    pub(crate) hosts: Vec<Vec<f64>>,
    /// By cluster and piece: what jobs would send over its link, of what it bears.
    pub(crate) links: Vec<Vec<f64>>,
    /// Mean number of waiting jobs, by piece.
    pub(crate) waiting: Vec<f64>,
}

impl Usage {
    /// From the first arrival to the last end. Of a job that lost a host only the last run counts, and before it the job waits.
    pub(crate) fn of(clusters: &[Cluster], jobs: &[Job], ended: &[Ended], pieces: usize) -> Usage {
        let first = jobs.first().map_or(0.0, |job| job.arrival);
        let last = ended.iter().map(|ended| ended.end - first).fold(0.0, f64::max);
        let piece_s = (last / pieces as f64).max(f64::MIN_POSITIVE);
        let empty = vec![vec![0.0; pieces]; clusters.len()];
        let mut usage = Usage { piece_s, hosts: empty.clone(), links: empty, waiting: vec![0.0; pieces] };
        for run in ended {
            let job = &jobs[run.job];
            let place = |second: f64| ((second - first) / piece_s).clamp(0.0, pieces as f64);
            let [arrival, start, end] = [job.arrival, run.start, run.end].map(place);
            add(&mut usage.waiting, arrival, start, 1.0);
            for (at, cluster) in clusters.iter().enumerate() {
                let tasks = run.counts[at];
                add(&mut usage.hosts[at], start, end, f64::from(tasks) / f64::from(cluster.hosts));
                add(&mut usage.links[at], start, end, job.load(tasks) / cluster.link);
            }
        }
        usage
    }
}

/// Adds a value that holds between two places, counted in pieces.
pub(crate) fn add(means: &mut [f64], from: f64, to: f64, value: f64) {
    for (piece, mean) in means.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
        *mean += value * (to.min((piece + 1) as f64) - from.max(piece as f64));
    }
}
