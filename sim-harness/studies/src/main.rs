//! `kolo-study`: what repeats the experiments of the documents that Kolo is made from.
//!
//! Invariant: over the public functions of `broker`; no node and no network. Bad usage ends with exit code 64.

mod clusters;
mod placement;
mod replay;
mod tables;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sim_kit::program;

const PROGRAM: &str = "kolo-study";

/// The documents' experiments, and workload traces, under Kolo's policies and others.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::args::ReplayArgs),
    Tables(tables::args::TablesArgs),
}

fn main() -> ExitCode {
    let cli: Cli = match program::command_line(PROGRAM) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let (name, result) = match cli.command {
        Command::Replay(args) => ("replay", replay::run(&args)),
        Command::Tables(args) => ("tables", tables::run(&args)),
    };
    program::exit_code(PROGRAM, name, result)
}
