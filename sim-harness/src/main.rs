//! `kolo-sim`: real local grids, generated workloads and experiments.
//!
//! Invariant: bad usage ends with exit code 64, whichever subcommand it is about.

mod clusters;
mod duration;
mod engine;
mod error;
mod faults;
mod generate;
mod grid;
mod hostile;
mod placement;
mod print;
mod progress;
mod replay;
mod report;
mod scale;
mod scenario;
mod shift;
mod stall;
mod stats;
mod tables;
mod usage;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use error::BAD_USAGE;

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
    Attacker(grid::faults::attacker::AttackerArgs),
    Faults(faults::args::FaultsArgs),
    Grid(Box<grid::args::GridArgs>),
    Replay(replay::args::ReplayArgs),
    Scale(scale::options::ScaleArgs),
    Scenario(scenario::ScenarioArgs),
    Stall(stall::StallArgs),
    Tables(tables::args::TablesArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            // Nothing is left to be done when even the complaint cannot be written.
            let _ = error.print();
            return ExitCode::from(BAD_USAGE);
        }
        Err(help) => return shown(help.print().and_then(|()| io::stdout().flush())),
    };
    let (name, result) = match cli.command {
        Command::Attacker(args) => ("attacker", grid::faults::attacker::run(&args)),
        Command::Faults(args) => ("faults", faults::run(&args)),
        Command::Grid(args) => ("grid", grid::run(&args)),
        Command::Replay(args) => ("replay", replay::run(&args)),
        Command::Scale(args) => ("scale", scale::run(&args)),
        Command::Scenario(args) => ("scenario", scenario::run(&args)),
        Command::Stall(args) => ("stall", stall::run(&args)),
        Command::Tables(args) => ("tables", tables::run(&args)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("kolo-sim {name}: {error:#}");
        error::exit_code(&error)
    })
}

/// The exit code when help was to be shown.
fn shown(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("kolo-sim: standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
