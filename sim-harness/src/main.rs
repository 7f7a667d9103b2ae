//! `kolo-sim`: real local grids, and simulated ones under faults and at scale.
//!
//! Invariant: bad usage ends with exit code 64, whichever subcommand it is about.

mod engine;
mod faults;
mod grid;
mod hostile;
mod scale;
mod scenario;
mod shift;
mod stall;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sim_kit::program;

const PROGRAM: &str = "kolo-sim";

/// Grids of Kolo nodes, real and simulated.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
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
    Scale(scale::options::ScaleArgs),
    Scenario(scenario::ScenarioArgs),
    Stall(stall::StallArgs),
}

fn main() -> ExitCode {
    let cli: Cli = match program::command_line(PROGRAM) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let (name, result) = match cli.command {
        Command::Attacker(args) => ("attacker", grid::faults::attacker::run(&args)),
        Command::Faults(args) => ("faults", faults::run(&args)),
        Command::Grid(args) => ("grid", grid::run(&args)),
        Command::Scale(args) => ("scale", scale::run(&args)),
        Command::Scenario(args) => ("scenario", scenario::run(&args)),
        Command::Stall(args) => ("stall", stall::run(&args)),
    };
    program::exit_code(PROGRAM, name, result)
}
