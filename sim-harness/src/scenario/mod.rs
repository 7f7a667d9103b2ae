//! `kolo-sim scenario`: a list of steps from a file, played in the simulator or on real processes.
//!
//! One format and two worlds: [`crate::faults::scripted`] plays a file in virtual time, wholly from one seed, with the
//! checkers of the fault simulator looking at every step; [`processes`] plays it on `kolo` processes, and holds
//! what was acknowledged to users against all ledgers in the end. Invariant: a file means the same in both; nothing in it names one.
//!
//! Reading order: `step` (what a scenario says), `file` (how it is written), `play` (how it is played).

mod file;
pub mod play;
mod processes;
pub mod step;
#[cfg(test)]
mod tests;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use serde::Serialize;
use sim_kit::{
    error::BadUsage,
    print::{OutputForm, print},
};

use self::{
    play::{Outcomes, Played},
    step::ScenarioFile,
};
use crate::faults::scripted as simulator;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Play a scenario file: steps such as start, submit, cut, kill, heal, and what is expected to come true within a time.
#[derive(Debug, clap::Args)]
pub struct ScenarioArgs {
    /// The scenario, in TOML.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The world to play it in.
    #[arg(long, value_enum, default_value = "simulator")]
    on: On,
    /// Everything random comes from this number instead of the file's, except what real processes do.
    #[arg(long)]
    seed: Option<u64>,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value = "table")]
    output: OutputForm,
    /// The `kolo` binary, with --on processes [default: the one beside this binary].
    #[arg(long, value_name = "PATH")]
    kolo: Option<PathBuf>,
}

/// A world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// Virtual time, a modelled network and disk, everything from one seed.
    Simulator,
    /// Real nodes on this machine.
    Processes,
}

#[derive(Serialize)]
struct Document<'a> {
    scenario: String,
    on: On,
    seed: u64,
    held: bool,
    steps: usize,
    #[serde(flatten)]
    outcomes: &'a Outcomes,
}

/// Runs the command. The exit code is 0 when everything came true, otherwise 1.
pub fn run(args: &ScenarioArgs) -> anyhow::Result<ExitCode> {
    let file = read(&args.file, args.seed)?;
    let progress = |played: &Played| {
        if args.output == OutputForm::Table {
            let Played { line, step, at_ms, took_ms } = played;
            show(&format!("{:>9.3} s  line {line:<4} {step} ({took_ms} ms)", *at_ms as f64 / 1000.0));
        }
    };
    let (outcomes, kept) = match args.on {
        On::Simulator => simulator::play(&file, &progress)?,
        On::Processes => processes::play(&file, args.kolo.as_deref(), &progress)?,
    };
    let name = args.file.display();
    if let Some(failed) = &outcomes.failed {
        let line = failed.line.map_or_else(String::new, |line| format!(":{line}"));
        eprintln!("{name}{line}: {}: {}", failed.step, failed.seen);
    }
    for violation in &outcomes.violations {
        eprintln!("{name}: violated: {violation}");
    }
    if let Some(kept) = kept {
        eprintln!("what happened is in {}", kept.display());
    }
    match args.output {
        OutputForm::Table if outcomes.is_good() => show("all of it came true"),
        OutputForm::Table => {}
        OutputForm::Json => {
            let (scenario, held, steps) = (name.to_string(), outcomes.is_good(), file.steps.len());
            let document = Document { scenario, on: args.on, seed: file.grid.seed, held, steps, outcomes: &outcomes };
            show(&serde_json::to_string(&document)?);
        }
    }
    Ok(if outcomes.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the scenario in a file; errors name file and line.
fn read(path: &std::path::Path, seed: Option<u64>) -> anyhow::Result<ScenarioFile> {
    let name = || BadUsage::new(path.display());
    let bytes = fs::metadata(path).with_context(name)?.len();
    if bytes > FILE_BYTES_MAX {
        bail!(BadUsage::new(format!("{}: expected at most {FILE_BYTES_MAX} bytes, got {bytes}", path.display())));
    }
    let text = fs::read_to_string(path).with_context(name)?;
    file::read(&text, seed).map_err(|wrong| BadUsage::new(format!("{}:{wrong}", path.display())).into())
}

/// Prints a line; the exit code says what came of the file as well.
fn show(line: &str) {
    if let Err(error) = print(&format!("{line}\n")) {
        eprintln!("standard output: {error}");
    }
}
