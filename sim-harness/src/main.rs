//! `kolo-sim`: real local grids, generated workloads and experiments.
//!
//! Invariant: bad usage ends with exit code 64, whichever subcommand it is about.

mod generate;
mod grid;

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
    Grid(grid::args::GridArgs),
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
        Command::Grid(args) => grid::run(&args),
    }
}
