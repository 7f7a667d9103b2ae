//! The result as people and programs read it: a table, one JSON object, one line a job.
//!
//! Invariant: a file is seen at its place only when it is whole.

use std::{io, path::Path};

use serde::Serialize;

use super::{
    cluster::ClusterSpec,
    engine::Run,
    growth::{Point, Speed},
    metrics::{Experience, Metrics, Spread},
    rules::{Rules, name_of},
    trace::{Findings, Trace},
};
use crate::{
    print::counted,
    report::{Table, write_whole},
};

/// What was replayed, and how fast.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// The trace's path as given.
    pub trace: String,
    /// The machines file's path as given.
    pub machines: String,
    /// The policy.
    pub policy: String,
    /// How its records became jobs.
    #[serde(flatten)]
    pub rules: Rules,
    /// The seed.
    pub seed: u64,
}

/// What the command cost.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Of replaying the whole trace.
    #[serde(flatten)]
    pub speed: Speed,
    /// The most memory that the process has had so far, in MiB, where the system reports it.
    pub memory_mib_max: Option<f64>,
    /// Of replaying its beginnings, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Point>,
}

/// The result as programs read it.
#[derive(Serialize)]
pub struct Document<'a> {
    /// The metrics.
    #[serde(flatten)]
    pub metrics: &'a Metrics,
    /// What was replayed.
    #[serde(flatten)]
    pub setting: &'a Setting,
    /// What it cost.
    #[serde(flatten)]
    pub cost: &'a Cost,
}

/// The metrics as a table, with what was found in the trace.
pub fn table(metrics: &Metrics, setting: &Setting, cost: &Cost) -> String {
    let Metrics { jobs, killed, rejected, makespan_s, utilisation, .. } = metrics;
    format!(
        "{policy} on {trace}, run times {runtimes}, overrun {overrun}\n\
         {jobs}, {killed} killed at their limit, {rejected} rejected\n\
         makespan {makespan_s} s, utilisation {percent:.2} %\n\n{spreads}\n\n\
         {seconds:.3} s, {rate:.0} jobs a second{memory}\n{growth}",
        jobs = counted(*jobs as u64, "job"),
        policy = setting.policy,
        trace = setting.trace,
        runtimes = name_of(&setting.rules.runtimes),
        overrun = name_of(&setting.rules.overrun),
        percent = 100.0 * utilisation,
        spreads = spreads(metrics).text(),
        seconds = cost.speed.replay_seconds,
        rate = cost.speed.jobs_per_second,
        memory = cost.memory_mib_max.map_or_else(String::new, |mib| format!(", at most {mib:.0} MiB of memory")),
        growth = if cost.growth.is_empty() { String::new() } else { format!("\n{}\n", growth(&cost.growth).text()) },
    )
}

/// How the time grows with the number of jobs.
pub fn growth(points: &[Point]) -> Table {
    let mut table = Table::new(["jobs", "s", "jobs a second"]);
    for Point { jobs, speed } in points {
        table.push([jobs.to_string(), format!("{:.3}", speed.replay_seconds), format!("{:.0}", speed.jobs_per_second)]);
    }
    table
}

/// The metrics by name.
pub fn spreads(metrics: &Metrics) -> Table {
    let mut table = Table::new(["", "mean", "median", "p95", "p99"]);
    for (name, Spread { mean, median, p95, p99 }) in [
        ("wait, s", metrics.wait_s),
        ("response, s", metrics.response_s),
        ("slowdown", metrics.slowdown),
        ("bounded slowdown", metrics.bounded_slowdown),
    ] {
        let cell = |value: f64| format!("{value:.1}");
        table.push([name.to_owned(), cell(mean), cell(median), cell(p95), cell(p99)]);
    }
    table
}

/// What was found in the trace, one line a kind; empty when there was nothing.
pub fn findings(findings: &Findings) -> String {
    let mut text = String::new();
    for (what, said, noted) in findings.kinds().into_iter().filter(|(.., noted)| noted.count > 0) {
        text += &format!("{}{said}:\n", counted(noted.count, what));
        for (line, what) in &noted.first {
            text += &format!("  line {line}: {what}\n");
        }
        if noted.count > noted.first.len() as u64 {
            text += &format!("  and {} more\n", noted.count - noted.first.len() as u64);
        }
    }
    text
}

/// One line of the file of jobs.
#[derive(Serialize)]
struct Row<'a> {
    id: i64,
    line: u32,
    submit_s: i64,
    start_s: i64,
    end_s: i64,
    cluster: &'a str,
    hosts: u32,
    processors: u64,
    wait_s: i64,
    response_s: i64,
    slowdown: String,
    bounded_slowdown: String,
    killed: u8,
}

/// Writes one line a job as comma-separated values, in the order of submission.
///
/// # Errors
/// When that is not possible.
pub fn write_jobs(path: &Path, trace: &Trace, runs: &[Run], clusters: &[ClusterSpec]) -> io::Result<()> {
    write_whole(path, |file| {
        let mut rows = csv::Writer::from_writer(file);
        for (job, run) in trace.jobs.iter().zip(runs) {
            let (known, seen) = (&job.known, Experience::of(job, run));
            rows.serialize(Row {
                id: job.id,
                line: job.line,
                submit_s: known.submit_s,
                start_s: run.start.second(),
                end_s: run.end.second(),
                cluster: &clusters[run.cluster.at()].name,
                hosts: known.shape.hosts,
                processors: known.shape.processors(),
                wait_s: seen.wait_s,
                response_s: seen.response_s,
                slowdown: format!("{:.4}", seen.slowdown()),
                bounded_slowdown: format!("{:.4}", seen.bounded_slowdown()),
                killed: u8::from(job.is_killed),
            })?;
        }
        rows.flush()
    })
}
