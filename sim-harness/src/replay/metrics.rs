//! The field's metrics of a replay, exact: every job counts, nothing is sampled.
//!
//! With the submission `a`, the start `s` and the end `e` of a job, in seconds: wait `s - a`, response `e - a`, slowdown
//! `max(1, (e - a) / max(1, e - s))`, bounded slowdown the same with 10 instead of 1.

use serde::Serialize;

use super::{
    cluster::ClusterSpec,
    engine::Run,
    job::Job,
    trace::{Findings, Trace},
};
use crate::stats::Sample;

/// One metric over all jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the jobs have no more.
    pub median: f64,
    /// 95 of 100 jobs have no more.
    pub p95: f64,
    /// 99 of 100 jobs have no more.
    pub p99: f64,
}

/// The result of a replay.
#[derive(Debug, Clone, Serialize)]
pub struct Metrics {
    /// Jobs that ran.
    pub jobs: usize,
    /// Those of them that their limit ended.
    pub killed: usize,
    /// Jobs larger than any cluster.
    pub rejected: u64,
    /// From the first submission to the last end, in seconds.
    pub makespan_s: f64,
    /// Share of all processors that jobs held during the makespan, 0 to 1.
    pub utilisation: f64,
    /// Start after submission, in seconds.
    pub wait_s: Summary,
    /// End after submission, in seconds.
    pub response_s: Summary,
    /// Response by time on the hosts.
    pub slowdown: Summary,
    /// The same, with very short jobs counted as ten seconds.
    pub bounded_slowdown: Summary,
    /// What was found in the trace.
    pub findings: Findings,
}

/// The times of one job, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From submission to start.
    pub wait_s: i64,
    /// From submission to end.
    pub response_s: i64,
    /// On its hosts.
    pub held_s: i64,
}

impl Times {
    /// Of one job.
    pub fn of(job: &Job, run: &Run) -> Times {
        let (submit_s, start_s, end_s) = (job.known.submit_s, run.start.second(), run.end.second());
        Times { wait_s: start_s - submit_s, response_s: end_s - submit_s, held_s: end_s - start_s }
    }

    /// The response by the time on the hosts.
    pub fn slowdown(&self) -> f64 {
        (self.response_s as f64 / self.held_s.max(1) as f64).max(1.0)
    }

    /// The slowdown, with jobs below ten seconds counted as ten.
    pub fn bounded_slowdown(&self) -> f64 {
        (self.response_s as f64 / self.held_s.max(10) as f64).max(1.0)
    }
}

/// Processors of all clusters.
pub fn processors_of(clusters: &[ClusterSpec]) -> u64 {
    clusters.iter().map(ClusterSpec::processors).sum()
}

/// The second in which the last job ends.
pub fn last_end_s(runs: &[Run]) -> i64 {
    runs.iter().map(|run| run.end.second()).max().unwrap_or_default()
}

/// Computes the metrics of a replay of at least one job.
pub fn measure(trace: &Trace, runs: &[Run], clusters: &[ClusterSpec]) -> Metrics {
    let jobs = &trace.jobs;
    let times: Vec<Times> = jobs.iter().zip(runs).map(|(job, run)| Times::of(job, run)).collect();
    let over = |value: fn(&Times) -> f64| {
        let sample: Sample = times.iter().map(value).collect();
        let [p95, p99] = [95, 99].map(|percent| sample.percentile(percent));
        Summary { mean: sample.mean(), median: sample.median(), p95, p99 }
    };
    let makespan_s = last_end_s(runs) as f64;
    let held = jobs.iter().zip(&times).map(|(job, times)| job.known.shape.processors() as f64 * times.held_s as f64);
    Metrics {
        jobs: runs.len(),
        killed: jobs.iter().filter(|job| job.is_killed).count(),
        rejected: trace.findings.rejected.count,
        makespan_s,
        utilisation: held.sum::<f64>() / (makespan_s * processors_of(clusters) as f64),
        wait_s: over(|times| times.wait_s as f64),
        response_s: over(|times| times.response_s as f64),
        slowdown: over(Times::slowdown),
        bounded_slowdown: over(Times::bounded_slowdown),
        findings: trace.findings.clone(),
    }
}
