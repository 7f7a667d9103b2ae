//! The result as people and programs read it: a table, one JSON object, one line a job.
//!
//! Invariant: a file is seen at its place only when it is whole.

use std::{io, path::Path};

use clap::{ValueEnum, builder::PossibleValue};
use serde::Serialize;
use sim_kit::{
    print::counted,
    report::{Table, write_whole},
};

use super::{
    args::Rules,
    cluster::ClusterSpec,
    deadlines::Factor,
    engine::Run,
    growth::{Point, Speed},
    metrics::{Metrics, Summary, times},
    trace::{Findings, Trace},
};

/// The result of the command.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// The trace's path as given, or how many jobs were made up.
    pub trace: String,
    /// The machines file's path as given.
    pub machines: String,
    /// The policy's name.
    pub policy: String,
    /// How the trace's records became jobs.
    #[serde(flatten)]
    pub rules: Rules,
    /// The seed.
    pub seed: u64,
    /// Factors of deadlines.
    pub slack: Vec<Factor>,
    /// Plans that a search of `qos-plan` looks at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<u32>,
    /// The time of replaying the whole trace.
    #[serde(flatten)]
    pub speed: Speed,
    /// The most memory that the process has had so far, in MiB, where the system reports it.
    pub memory_mib_max: Option<f64>,
    /// The time of replaying the trace's beginnings and the whole, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Point>,
}

/// The metrics as a table.
pub fn table(outcome: &Outcome) -> String {
    let Metrics { jobs, killed, rejected, in_time, weighted_response_s, makespan_s, utilisation, .. } = outcome.metrics;
    let name = |value: Option<PossibleValue>| value.map_or_else(String::new, |value| value.get_name().to_owned());
    format!(
        "{policy} on {trace}, run times {runtimes}, overrun {overrun}\n\
         {jobs}, {killed} killed at their limit, {rejected} rejected\n\
         {in_time} in time (deadlines: limits times {slack}, seed {seed}), weighted response {weighted_response_s:.0} s\n\
         makespan {makespan_s} s, utilisation {percent:.2} %\n\n{spreads}\n\n\
         {seconds:.3} s, {rate:.0} jobs a second{memory}\n{growth}",
        jobs = counted(jobs as u64, "job"),
        policy = outcome.policy,
        trace = outcome.trace,
        runtimes = name(outcome.rules.runtimes.to_possible_value()),
        overrun = name(outcome.rules.overrun.to_possible_value()),
        slack = outcome.slack.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        seed = outcome.seed,
        percent = 100.0 * utilisation,
        spreads = spreads(&outcome.metrics).text(),
        seconds = outcome.speed.replay_seconds,
        rate = outcome.speed.jobs_per_second,
        memory = outcome.memory_mib_max.map_or_else(String::new, |mib| format!(", at most {mib:.0} MiB of memory")),
        growth = match &outcome.growth[..] {
            [] => String::new(),
            points => format!("\n{}\n", growth(points).text()),
        },
    )
}

/// How the time grows with the number of jobs.
pub fn growth(points: &[Point]) -> Table {
    let mut table = Table::new(["jobs", "s", "jobs a second"]);
    for Point { jobs, speed: Speed { replay_seconds, jobs_per_second } } in points {
        table.row(jobs.to_string(), [format!("{replay_seconds:.3}"), format!("{jobs_per_second:.0}")]);
    }
    table
}

/// The metrics by name.
pub fn spreads(metrics: &Metrics) -> Table {
    let mut table = Table::new(["", "mean", "median", "p95", "p99"]);
    for (name, Summary { mean, median, p95, p99 }) in [
        ("wait, s", metrics.wait_s),
        ("response, s", metrics.response_s),
        ("slowdown", metrics.slowdown),
        ("bounded slowdown", metrics.bounded_slowdown),
    ] {
        table.row(name, [mean, median, p95, p99].map(|value| format!("{value:.1}")));
    }
    table
}

/// What was found in the trace, one line a kind; empty when there was nothing.
pub fn findings(findings: &Findings) -> String {
    let mut text = String::new();
    for (name, fate, noted) in findings.kinds().into_iter().filter(|(.., noted)| noted.count > 0) {
        text += &format!("{}{fate}:\n", counted(noted.count, name));
        for (line, what) in &noted.first {
            text += &format!("  line {line}: {what}\n");
        }
        if noted.count > noted.first.len() as u64 {
            text += &format!("  and {} more\n", noted.count - noted.first.len() as u64);
        }
    }
    text
}

/// Writes one line a job as comma-separated values, in the order of submission.
///
/// # Errors
/// When that is not possible.
pub fn write_jobs(path: &Path, trace: &Trace, runs: &[Run], clusters: &[ClusterSpec]) -> io::Result<()> {
    write_whole(path, |file| {
        let mut rows = csv::Writer::from_writer(file);
        times(trace, runs, clusters).try_for_each(|job| rows.serialize(job))?;
        rows.flush()
    })
}
