//! The result as people and programs read it: a table, one JSON object, one line a job.
//!
//! Invariant: a file is seen at its place only when it is whole.

use std::{io, path::Path};

use serde::Serialize;

use super::{
    engine::Run,
    growth::Point,
    metrics::{Experience, Metrics, Spread},
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
    /// `true` or `estimates`.
    pub runtimes: &'static str,
    /// `kill` or `extend`.
    pub overrun: &'static str,
    /// Seconds that a job holds its hosts after its end.
    pub teardown_s: i64,
    /// The seed.
    pub seed: u64,
}

/// How long the replay took on this machine, without reading the trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Speed {
    /// Seconds of real time.
    pub replay_seconds: f64,
    /// Jobs in one of them.
    pub jobs_per_second: f64,
}

/// What the command cost.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Of replaying the whole trace.
    #[serde(flatten)]
    pub speed: Speed,
    /// The most memory that the process has had so far, in MiB, where the system tells it.
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
        runtimes = setting.runtimes,
        overrun = setting.overrun,
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

/// Writes one line a job, in the order of submission.
///
/// # Errors
/// When that is not possible.
pub fn write_jobs(path: &Path, trace: &Trace, runs: &[Run], clusters: &[String]) -> io::Result<()> {
    write_whole(path, |file| {
        writeln!(
            file,
            "id,line,submit_s,start_s,end_s,cluster,hosts,processors,wait_s,response_s,slowdown,bounded_slowdown,killed"
        )?;
        for (job, run) in trace.jobs.iter().zip(runs) {
            let seen = Experience::of(job, run);
            writeln!(
                file,
                "{},{},{},{},{},{},{},{},{},{},{:.4},{:.4},{}",
                job.id,
                job.line,
                job.submit_s,
                run.start.second(),
                run.end.second(),
                clusters[run.cluster.at()],
                job.shape.hosts,
                job.shape.processors(),
                seen.wait_s,
                seen.response_s,
                seen.slowdown(),
                seen.bounded_slowdown(),
                u8::from(job.is_killed),
            )?;
        }
        Ok(())
    })
}
