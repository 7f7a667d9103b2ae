//! `kolo-study tables --study late-binding`: the five experiments of the source of late binding, with Kolo's witness beside its mechanisms.
//!
//! Invariant: as of all tables; the worlds depend on the seed and their number alone.

mod experiments;
mod policies;
mod present;
#[cfg(test)]
mod tests;
mod world;

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, ensure};
use broker::time::Span;
use sim_kit::{error::BadUsage, progress::Progress, report::check_places};

use self::{
    experiments::Worlds,
    present::{Experiment, LateBinding},
};
use super::args::TablesArgs;
use crate::replay::record::Record;

/// Hosts of hpc2n, and the processors of each.
const TRACE_HOSTS: usize = 120;
const TRACE_PROCESSORS: u64 = 2;

/// Runs the study and prints its tables.
///
/// # Errors
/// When the trace cannot be read, or the page or the result not written.
pub(super) fn run(args: &TablesArgs, worlds: u64) -> anyhow::Result<ExitCode> {
    check_places(args.html.iter())?;
    let jobs = args.trace.as_deref().map(jobs).transpose()?;
    let progress = Progress::new("worlds", worlds);
    let of = Worlds { seed: args.seed, count: worlds, progress: &progress };
    let experiment = |title, changes, source, points| Experiment { title, changes, source, points };
    let mut experiments = vec![
        experiment(
            "Hosts (2 units between requests, flexibility .1)",
            "hosts",
            "The source: static admits up to 1.33 x as many (25 hosts), all alike at 100; there it loses 4.46 x (random) and 3.9 x (least \
             cost) the work of dynamic.",
            of.by_hosts()?,
        ),
        experiment(
            "Time between requests (10 hosts, flexibility .1)",
            "units",
            "The source: static admits at most 1.2 x as many (6 units); there it loses 2.84 x (random) and 2.76 x (least cost) the work.",
            of.by_interval()?,
        ),
        experiment(
            "Flexibility (10 hosts, 2 units, what static and dynamic both admit)",
            "flexibility",
            "The source, from .1 to .9: preemptions fall by 66.7 % (dynamic), 34.8 and 39.1 % (static); lost work by 59.4, 32.8 and 33.7 %.",
            of.by_flexibility()?,
        ),
        experiment(
            "One host fails (10 hosts, 2 units, flexibility .1)",
            "part of the run",
            "The source: failed reservations of dynamic are 47.3 to 68.4 % below static (random).",
            of.by_failure()?,
        ),
    ];
    if let Some(jobs) = jobs {
        experiments.push(experiment(
            "Jobs of a trace, every tenth a reservation",
            "seconds between reservations",
            "The source (another trace): at 300 s static (random) admits 27 % more and loses 136 % more work than dynamic.",
            of.by_interval_of_trace(TRACE_HOSTS, &jobs)?,
        ));
    }
    progress.end();
    let study = LateBinding { seed: args.seed, worlds, experiments };
    if let Some(path) = &args.html {
        present::page(&study).write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    args.output.print(|| present::text(&study), &study).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// How long each job of a trace holds one host: its run time by its processors, over those of a host.
fn jobs(path: &Path) -> anyhow::Result<Vec<Span>> {
    let text = fs::read_to_string(path).with_context(|| BadUsage::new(path.display()))?;
    let mut jobs = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with(';'))
    {
        let record = Record::read(line.as_bytes())
            .map_err(|error| BadUsage::new(format_args!("{}: line {number}: {error:#}", path.display())))?;
        if let (Ok(run_s @ 1..), Ok(processors @ 1..)) = (u64::try_from(record.run_s), u64::try_from(record.processors))
        {
            jobs.push(Span((run_s * processors).div_ceil(TRACE_PROCESSORS)));
        }
    }
    let least = 10 * TRACE_HOSTS;
    ensure!(jobs.len() >= least, BadUsage::new(format_args!("{}: expected {least} jobs that ran", path.display())));
    Ok(jobs)
}
