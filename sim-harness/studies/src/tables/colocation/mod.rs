//! `kolo-study tables --study colocation`: batches of moldable jobs on equal hosts, paired as in the source and improved by search.
//!
//! Invariant: as of all tables; the batches depend on the seed, the scenario and their number alone.

mod experiments;
mod present;
mod sets;
mod setup;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Context;
use sim_kit::{error::BadUsage, progress::Progress, report::check_places};

use self::present::Colocation;
use super::args::TablesArgs;

/// Batches whose time is measured: of so many hosts.
const TIMED_HOSTS: [usize; 4] = [15, 30, 100, 600];

/// Runs the study and prints its tables.
///
/// # Errors
/// When the page or the result cannot be written.
pub(super) fn run(args: &TablesArgs, batches: u64) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.sets {
        let groups = sets::groups(folder)?;
        args.output.print(|| sets::text(&groups), &groups).context("standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    check_places(args.html.iter())?;
    let progress = Progress::new("batches", experiments::drawn(batches));
    let study = Colocation {
        seed: args.seed,
        batches,
        scenarios: experiments::by_scenario(args.seed, batches, &setup::scenarios(), &progress)?,
        thresholds: experiments::by_threshold(args.seed, batches, &progress)?,
        times: experiments::times(args.seed, &TIMED_HOSTS)?,
    };
    progress.end();
    if let Some(path) = &args.html {
        present::page(&study).write(path).with_context(|| BadUsage::new(path.display()))?;
    }
    args.output.print(|| present::text(&study), &study).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
