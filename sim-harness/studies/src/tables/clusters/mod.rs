//! `kolo-study tables --study clusters`: the experiments of the dissertation on multi-clusters (chapters 2 and 3).
//!
//! Invariant: as of all tables; the workloads depend on the seed and their number alone.

mod example;
mod experiments;
mod present;
mod setup;
#[cfg(test)]
mod tests;
mod trace;

use std::process::ExitCode;

use anyhow::Context;
use sim_kit::{progress::Progress, report::check_places};

use self::present::Clusters;
use super::args::TablesArgs;

/// Runs the study and prints its tables.
///
/// # Errors
/// When the page or the result cannot be written.
pub(super) fn run(args: &TablesArgs, workloads: u64) -> anyhow::Result<ExitCode> {
    check_places(args.html.iter())?;
    let progress = Progress::new("workloads", workloads);
    let clusters = Clusters {
        seed: args.seed,
        workloads,
        assignment: experiments::assignment(args.seed, workloads, &progress)?,
        selection: experiments::selection(args.seed, workloads, &progress)?,
        example: example::lines(),
        batches: experiments::batches(args.seed, workloads, &progress)?,
        trace: args.trace.as_deref().map(|path| trace::study(path, args.seed)).transpose()?,
    };
    progress.end();
    if let Some(path) = &args.html {
        present::page(&clusters).write(path).with_context(|| sim_kit::error::BadUsage::new(path.display()))?;
    }
    args.output.print(|| present::text(&clusters), &clusters).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
