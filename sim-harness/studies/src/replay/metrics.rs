//! The field's metrics of a replay, exact: every job counts, nothing is sampled.
//!
//! With the submission `a`, the start `s` and the end `e` of a job, in seconds: wait `s - a`, response `e - a`, slowdown
//! `max(1, (e - a) / max(1, e - s))`, bounded slowdown the same with 10 instead of 1.

use serde::{Serialize, Serializer};
use sim_kit::stats::Sample;

use super::{
    cluster::ClusterSpec,
    engine::Run,
    trace::{Findings, Trace},
};

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
    /// Jobs that ended by their deadline.
    pub in_time: usize,
    /// Mean response in which a job counts as much as its processors times its time on them, in seconds.
    pub weighted_response_s: f64,
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

/// One job and its times in seconds: a line of the file of jobs.
#[derive(Debug, Serialize)]
pub struct JobTimes<'a> {
    id: i64,
    line: u32,
    submit_s: i64,
    start_s: i64,
    end_s: i64,
    cluster: &'a str,
    hosts: u32,
    processors: u64,
    pub(super) wait_s: i64,
    pub(super) response_s: i64,
    #[serde(serialize_with = "four_decimals")]
    pub(super) slowdown: f64,
    #[serde(serialize_with = "four_decimals")]
    pub(super) bounded_slowdown: f64,
    killed: u8,
    in_time: u8,
}

/// The times of all jobs, in the order of submission.
pub fn times<'a>(
    trace: &'a Trace,
    runs: &'a [Run],
    clusters: &'a [ClusterSpec],
) -> impl Iterator<Item = JobTimes<'a>> + Clone {
    trace.jobs.iter().zip(runs).map(move |(job, run)| {
        let (submit_s, start_s, end_s) = (job.known.submit_s, run.start.second(), run.end.second());
        let slowdown = |least_s: i64| ((end_s - submit_s) as f64 / (end_s - start_s).max(least_s) as f64).max(1.0);
        JobTimes {
            id: job.id,
            line: job.line,
            submit_s,
            start_s,
            end_s,
            cluster: &clusters[run.cluster.at()].name,
            hosts: job.known.shape.hosts,
            processors: job.known.shape.processors(),
            wait_s: start_s - submit_s,
            response_s: end_s - submit_s,
            slowdown: slowdown(1),
            bounded_slowdown: slowdown(10),
            killed: u8::from(job.is_killed),
            in_time: u8::from(end_s <= job.known.deadline_s),
        }
    })
}

fn four_decimals<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:.4}"))
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
    let times = times(trace, runs, clusters);
    let over = |value: fn(JobTimes<'_>) -> f64| {
        let sample: Sample = times.clone().map(value).collect();
        let [p95, p99] = [95, 99].map(|percent| sample.percentile(percent));
        Summary { mean: sample.mean(), median: sample.median(), p95, p99 }
    };
    let makespan_s = last_end_s(runs) as f64;
    let held: f64 = times.clone().map(|job| job.processors as f64 * (job.end_s - job.start_s) as f64).sum();
    let weighted = times
        .clone()
        .map(|job| (job.processors * (job.end_s - job.start_s).cast_unsigned()) as f64 * job.response_s as f64);
    Metrics {
        jobs: runs.len(),
        in_time: times.clone().map(|job| usize::from(job.in_time)).sum(),
        weighted_response_s: weighted.sum::<f64>() / held.max(1.0),
        killed: times.clone().map(|job| usize::from(job.killed)).sum(),
        rejected: trace.findings.rejected.count,
        makespan_s,
        utilisation: held / (makespan_s * processors_of(clusters) as f64),
        wait_s: over(|job| job.wait_s as f64),
        response_s: over(|job| job.response_s as f64),
        slowdown: over(|job| job.slowdown),
        bounded_slowdown: over(|job| job.bounded_slowdown),
        findings: trace.findings.clone(),
    }
}
