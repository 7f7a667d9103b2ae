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
mod canary;
mod checks;
mod clock;
mod credentials;
mod discovery;
mod effects;
mod figures;
mod history;
mod life;
mod losses;
mod message;
mod mutations;
mod names;
mod network;
mod node;
mod options;
mod report;
mod runner;
pub mod scripted;
mod seed;
mod takeover;
#[cfg(test)]
mod tests;
mod truth;
mod users;
mod violation;
mod world;

use std::{panic, process::ExitCode, time::Instant};

use self::{args::FaultsArgs, canary::Canary};
use crate::{
    print::{OutputForm, print},
    progress::Progress,
};

/// Runs the command.
pub fn run(args: &FaultsArgs) -> ExitCode {
    if args.list_canaries {
        return say(&Canary::ALL.map(Canary::name).join("\n"));
    }
    // A panic of the core is caught, reported with its seed, and replayed; its own message would tear the progress bar.
    panic::set_hook(Box::new(|_| {}));
    let from = args.first_seed();
    eprintln!("seeds {from} to {} (--from {from} --seeds {})", from + (args.seeds - 1), args.seeds);
    let started = Instant::now();
    let progress = Progress::new("seeds", args.seeds);
    let result = runner::run_seeds(from, args.seeds, args.canary, &|done| progress.at(done));
    progress.end();
    let seconds = started.elapsed().as_secs_f64();
    let shown = match &result.found {
        Some((seed, _)) => Some(*seed),
        None if args.history => Some(from + (args.seeds - 1)),
        None => None,
    };
    if let Some(seed) = shown {
        eprint!("{}", runner::run_seed(seed, args.canary, true).history);
    }
    if let Some((seed, violation)) = &result.found {
        let request = violation.request.as_ref().map_or_else(String::new, |id| format!(" ({id})"));
        eprintln!("seed {seed}: violated: {}{request}: {}", violation.invariant, violation.what);
        eprintln!("replay: {}", report::replay_command(*seed, args.canary));
    }
    let printed = match args.output {
        OutputForm::Table => say(&report::table(from, &result.figures, seconds)),
        OutputForm::Json => match report::json(from, &result, args.canary, seconds) {
            Ok(line) => say(&line),
            Err(error) => complain(&error),
        },
    };
    if result.found.is_some() { ExitCode::FAILURE } else { printed }
}

/// Prints the result.
fn say(text: &str) -> ExitCode {
    match print(&format!("{text}\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error),
    }
}

fn complain(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("kolo-sim faults: {error}");
    ExitCode::FAILURE
}
