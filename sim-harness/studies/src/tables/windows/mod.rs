//! `kolo-study tables --study windows`: the experiments of the dissertation on windows of slots (chapter 4).
//!
//! Invariant: as of all tables; the figures of an experiment depend on the seed and its number alone.

mod criteria;
mod page;
mod present;
mod price;
mod scheme;
mod setup;
mod slicing;
mod source;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Context;
use sim_kit::{progress::Progress, report::check_places};

use self::present::Windows;
use super::args::TablesArgs;

/// Runs the study and prints its tables.
///
/// # Errors
/// When the page or the result cannot be written.
pub(super) fn run(args: &TablesArgs, experiments: u64) -> anyhow::Result<ExitCode> {
    check_places(args.html.iter())?;
    let windows = make(args.seed, experiments)?;
    if let Some(path) = &args.html {
        page::page(&windows).write(path).with_context(|| sim_kit::error::BadUsage::new(path.display()))?;
    }
    args.output.print(|| present::text(&windows), &windows).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn make(seed: u64, experiments: u64) -> anyhow::Result<Windows> {
    let progress = Progress::new("cycles", experiments);
    let windows = Windows {
        seed,
        experiments,
        setup: setup::figures(),
        criteria: criteria::criteria(seed, experiments, &progress)?,
        levels: slicing::levels(seed, experiments, &progress)?,
        prices: price::prices(seed, experiments, &progress)?,
    };
    progress.end();
    Ok(windows)
}
