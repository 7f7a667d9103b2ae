//! The field's metrics of a replay, exact: every job counts, nothing is sampled.
//!
//! With the submission `a`, the start `s` and the end `e` of a job, in seconds: wait `s - a`, response `e - a`, slowdown
//! `max(1, (e - a) / max(1, e - s))`, bounded slowdown the same with 10 instead of 1. A percentile is the smallest value
//! that so many per cent of the jobs do not exceed; the median of an even number of jobs is the mean of the middle two.

use serde::Serialize;

use super::{
    cluster::ClusterSpec,
    engine::Run,
    job::Job,
    trace::{Findings, Trace},
};

/// The bound of the bounded slowdown, in seconds.
const BOUND_S: i64 = 10;

/// One metric over all jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the jobs have no more.
    pub median: f64,
    /// 95 of 100 jobs have no more.
    pub p95: f64,
    /// 99 of 100 jobs have no more.
    pub p99: f64,
}

impl Spread {
    /// Of at least one value.
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let rank = |percent: usize| values[(count * percent).div_ceil(100).max(1) - 1];
        Spread {
            mean: values.iter().sum::<f64>() / count as f64,
            median: f64::midpoint(values[(count - 1) / 2], values[count / 2]),
            p95: rank(95),
            p99: rank(99),
        }
    }
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
    pub wait_s: Spread,
    /// End after submission, in seconds.
    pub response_s: Spread,
    /// Response by time on the hosts.
    pub slowdown: Spread,
    /// The same, with very short jobs counted as ten seconds.
    pub bounded_slowdown: Spread,
    /// What was found in the trace.
    pub findings: Findings,
}

/// What one job experienced.
#[derive(Debug, Clone, Copy)]
pub struct Experience {
    /// Seconds from submission to start.
    pub wait_s: i64,
    /// Seconds from submission to end.
    pub response_s: i64,
    /// Seconds on its hosts.
    pub held_s: i64,
}

impl Experience {
    /// Of one job.
    pub fn of(job: &Job, run: &Run) -> Experience {
        let (start_s, end_s) = (run.start.second(), run.end.second());
        Experience {
            wait_s: start_s - job.known.submit_s,
            response_s: end_s - job.known.submit_s,
            held_s: end_s - start_s,
        }
    }

    /// The slowdown.
    pub fn slowdown(&self) -> f64 {
        self.slowdown_bounded_by(1)
    }

    /// The slowdown, bounded by ten seconds.
    pub fn bounded_slowdown(&self) -> f64 {
        self.slowdown_bounded_by(BOUND_S)
    }

    fn slowdown_bounded_by(&self, least_s: i64) -> f64 {
        (self.response_s as f64 / self.held_s.max(least_s) as f64).max(1.0)
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
    let over = |value: fn(&Experience) -> f64| {
        Spread::of(jobs.iter().zip(runs).map(|(job, run)| value(&Experience::of(job, run))))
    };
    let makespan_s = last_end_s(runs) as f64;
    let used = |(job, run): (&Job, &Run)| job.known.shape.processors() as f64 * Experience::of(job, run).held_s as f64;
    let held: f64 = jobs.iter().zip(runs).map(used).sum();
    Metrics {
        jobs: runs.len(),
        killed: jobs.iter().filter(|job| job.is_killed).count(),
        rejected: trace.findings.rejected.count,
        makespan_s,
        utilisation: held / (makespan_s * processors_of(clusters) as f64),
        wait_s: over(|experience| experience.wait_s as f64),
        response_s: over(|experience| experience.response_s as f64),
        slowdown: over(Experience::slowdown),
        bounded_slowdown: over(Experience::bounded_slowdown),
        findings: trace.findings.clone(),
    }
}
