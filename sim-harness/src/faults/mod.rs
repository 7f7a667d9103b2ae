//! `kolo-sim faults`: the real ledgers, negotiations and views of a grid against a modelled network, disk and clock,
//! wholly from one seed, with everything going wrong that may; and checkers that would see a broken promise.
//!
//! A run has two phases: one with the faults that the seed has drawn, and one in which everything is healed and must
//! settle within a bound of virtual time.
//!
//! [`scripted`] plays scenario files in the same world, with only the faults that a file names.
//!
//! Invariant: a seed gives the same run on every machine. The only clock that is read measures the simulator itself.

mod aimed;
pub mod args;
mod attacker;
mod batch_plans;
mod batches;
mod canary;
mod checks;
mod choice;
mod classes;
mod clock;
mod clock_setting;
mod clocks;
mod credentials;
mod demands;
mod descriptors;
mod disk_filling;
mod disks;
mod drains;
mod event;
mod figures;
mod grid;
mod handed_in;
mod hearing;
mod history;
mod hoarding;
mod hoards;
mod lapses;
mod lies;
mod life;
mod links;
mod lookup;
mod losses;
mod lying;
mod message;
mod money;
mod mutations;
mod names;
mod network;
mod node;
mod options;
mod owners;
mod queueing;
mod queues;
mod room;
mod rules;
mod ruling;
mod runner;
mod scales;
pub mod scripted;
mod shapes;
mod shares;
mod slacks;
mod starving;
#[cfg(test)]
mod tests;
mod together;
mod trial;
mod troubles;
mod truth;
mod user_actions;
mod users;
mod views;
mod world;
mod writing;

use std::{panic, process::ExitCode, time::Instant};

use clap::ValueEnum;
use serde::Serialize;
use sim_kit::{print::print, progress::Progress};

use self::{args::FaultsArgs, canary::Canary, figures::Figures};

/// The result as programs read it.
#[derive(Serialize)]
struct Document<'a> {
    from: u64,
    #[serde(flatten)]
    figures: &'a Figures,
    canary: Option<String>,
    violated_seed: Option<u64>,
    violation: Option<&'a str>,
    seconds: f64,
    seeds_per_second: f64,
}

/// Runs the command.
///
/// # Errors
/// When the result cannot be printed.
pub fn run(args: &FaultsArgs) -> anyhow::Result<ExitCode> {
    if args.list_canaries {
        for canary in Canary::value_variants() {
            print(&(canary.name() + "\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // A panic of the core is caught, reported with its seed, and replayed; its own message would tear the progress bar.
    panic::set_hook(Box::new(|_| {}));
    let from = args.first_seed();
    let last = from + (args.seeds - 1);
    eprintln!("seeds {from} to {last} (--from {from} --seeds {})", args.seeds);
    let started = Instant::now();
    let progress = Progress::new("seeds", args.seeds);
    let result = runner::run_seeds(from, args.seeds, args.canary, |done| progress.at(done));
    progress.end();
    let seconds = started.elapsed().as_secs_f64();
    let (violated_seed, violation) = result.found.unzip();
    if let Some(seed) = violated_seed.or(args.history.then_some(last)) {
        eprint!("{}", runner::run_seed(seed, args.canary, true).history);
    }
    if let (Some(seed), Some(violation)) = (violated_seed, &violation) {
        eprintln!("seed {seed}: violated: {violation}");
        eprintln!("replay: {}", runner::replay_command(seed, args.canary));
    }
    let document = Document {
        from,
        figures: &result.figures,
        canary: args.canary.map(Canary::name),
        violated_seed,
        violation: violation.as_ref().map(|violation| violation.what.as_str()),
        seconds,
        seeds_per_second: result.figures.seeds as f64 / seconds.max(1e-9),
    };
    args.output.print(|| result.figures.table(from, seconds), &document)?;
    Ok(if violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
