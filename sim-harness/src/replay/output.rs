//! The result as people and programs read it: a table, one JSON object, one line a job.
//!
//! Invariant: a file is written under a temporary name beside its place and renamed when it is whole, so nothing
//! half-written is ever seen there.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;

use super::{
    engine::Run,
    error::ReplayError,
    metrics::{Experience, Metrics, Spread},
    trace::{Findings, Trace},
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
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Speed {
    /// Seconds of real time.
    pub replay_seconds: f64,
    /// Jobs in one of them.
    pub jobs_per_second: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    metrics: &'a Metrics,
    #[serde(flatten)]
    setting: &'a Setting,
    #[serde(flatten)]
    speed: Speed,
}

/// The metrics as a table, with what was found in the trace.
pub fn table(metrics: &Metrics, setting: &Setting, speed: Speed) -> String {
    let Metrics { jobs, killed, rejected, makespan_s, utilisation, .. } = metrics;
    let mut spreads = Table::new();
    spreads.load_style(NOTHING).set_header(["", "mean", "median", "p95", "p99"]);
    for (name, Spread { mean, median, p95, p99 }) in rows(metrics) {
        let cell = |value: f64| format!("{value:.1}");
        spreads.add_row([name.to_owned(), cell(mean), cell(median), cell(p95), cell(p99)]);
    }
    for column in 1..=4 {
        if let Some(column) = spreads.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!(
        "{policy} on {trace}, run times {runtimes}, overrun {overrun}\n\
         {jobs} jobs, {killed} killed at their limit, {rejected} rejected\n\
         makespan {makespan_s} s, utilisation {percent:.2} %\n\n{spreads}\n\n\
         {seconds:.3} s, {rate:.0} jobs a second\n",
        policy = setting.policy,
        trace = setting.trace,
        runtimes = setting.runtimes,
        overrun = setting.overrun,
        percent = 100.0 * utilisation,
        seconds = speed.replay_seconds,
        rate = speed.jobs_per_second,
    )
}

/// The metrics by name.
pub fn rows(metrics: &Metrics) -> [(&'static str, Spread); 4] {
    [
        ("wait, s", metrics.wait_s),
        ("response, s", metrics.response_s),
        ("slowdown", metrics.slowdown),
        ("bounded slowdown", metrics.bounded_slowdown),
    ]
}

/// What was found in the trace, one line a kind; empty when there was nothing.
pub fn findings(findings: &Findings) -> String {
    let mut text = String::new();
    for (name, noted) in findings.kinds().into_iter().filter(|(_, noted)| noted.count > 0) {
        text += &format!("{} {name}:\n", noted.count);
        for (line, what) in &noted.first {
            text += &format!("  line {line}: {what}\n");
        }
        if noted.count > noted.first.len() as u64 {
            text += &format!("  and {} more\n", noted.count - noted.first.len() as u64);
        }
    }
    text
}

/// The result as one line of JSON.
///
/// # Errors
/// Never for these values; the writer's type allows it.
pub fn json(metrics: &Metrics, setting: &Setting, speed: Speed) -> Result<String, io::Error> {
    serde_json::to_string(&Document { metrics, setting, speed }).map_err(io::Error::from)
}

/// Writes one line a job, in the order of submission.
///
/// # Errors
/// [`ReplayError::File`] when that is not possible.
pub fn write_jobs(path: &Path, trace: &Trace, runs: &[Run], clusters: &[String]) -> Result<(), ReplayError> {
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

/// Writes a file as a whole: nothing is seen at `path` before everything is written.
///
/// # Errors
/// [`ReplayError::File`] when that is not possible.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), ReplayError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let attempt = || -> io::Result<()> {
        // Readable for others as far as the user's mask allows; temporary files are not by themselves.
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder)?;
        let mut buffered = BufWriter::new(file.as_file_mut());
        write(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    attempt().map_err(|source| ReplayError::File { path: path.to_owned(), source })
}
