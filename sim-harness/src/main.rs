//! `kolo-sim`: real local grids, generated workloads and experiments.
//!
//! Invariant: bad usage ends with exit code 64, whichever subcommand it is about.

mod compare;
mod engine;
mod faults;
mod generate;
mod grid;
mod placement;
mod print;
mod progress;
mod replay;
mod report;
mod scale;
mod scenario;
mod tables;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit code of bad usage.
const BAD_USAGE: u8 = 64;

/// Grids, workloads and experiments for Kolo.
#[derive(Parser)]
#[command(name = "kolo-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One hostile peer; `grid --hostile` starts it.
    #[command(hide = true)]
    Attacker(grid::attacker::AttackerArgs),
    Compare(compare::CompareArgs),
    Faults(faults::args::FaultsArgs),
    Grid(Box<grid::args::GridArgs>),
    Replay(replay::args::ReplayArgs),
    Scale(scale::args::ScaleArgs),
    Scenario(scenario::ScenarioArgs),
    Tables(tables::args::TablesArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // When the terminal is gone there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(BAD_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Attacker(args) => grid::attacker::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Grid(args) => grid::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Scenario(args) => scenario::run(&args),
        Command::Tables(args) => match tables::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("kolo-sim tables: {error}");
                ExitCode::from(BAD_USAGE)
            }
        },
    }
}
