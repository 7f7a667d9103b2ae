//! `kolo-sim scenario`: a list of steps from a file, played in the simulator or on real processes.
//!
//! One format and two worlds: [`crate::faults::scripted`] plays a file in virtual time, wholly from one seed, with the
//! checkers of the fault simulator looking at every step; [`crate::grid::scripted`] plays it on `kolo` processes, and holds
//! what users were told against all ledgers in the end. Invariant: a file means the same in both; nothing in it names one.
//!
//! Reading order: `step` (what a scenario says), `table` and `file` (how it is written), `play` (how it is played).

mod file;
pub mod play;
pub mod step;
mod table;
#[cfg(test)]
mod tests;

use std::{fs, io, path::PathBuf, process::ExitCode};

use serde::Serialize;

use self::{
    play::{Outcomes, Played},
    step::ScenarioFile,
    table::Wrong,
};
use crate::{
    faults::scripted as simulator,
    grid::{error::GridError, scripted as processes},
    print::{OutputForm, print},
};

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

/// Why a scenario was not played to an end.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is too large.
    #[error("{path}: expected at most {FILE_BYTES_MAX} bytes, got {bytes}", path = .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file is not a scenario.
    #[error("{path}:{wrong}", path = .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        wrong: Wrong,
    },
    /// Real nodes could not be run.
    #[error(transparent)]
    Grid(#[from] GridError),
}

impl ScenarioError {
    fn exit_code(&self) -> u8 {
        match self {
            ScenarioError::Grid(error) => error.exit_code(),
            _ => crate::error::BAD_USAGE,
        }
    }
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

/// Runs the command. The exit code is 0 when everything came true, 1 when not, 64 for a bad file or flag.
pub fn run(args: &ScenarioArgs) -> ExitCode {
    match execute(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Reads the scenario in a file.
///
/// # Errors
/// [`ScenarioError`] with file and line.
fn read(path: &std::path::Path, seed: Option<u64>) -> Result<ScenarioFile, ScenarioError> {
    let failed = |source| ScenarioError::Read { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(ScenarioError::TooLarge { path: path.to_owned(), bytes });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    file::read(&text, seed).map_err(|wrong| ScenarioError::Wrong { path: path.to_owned(), wrong })
}

/// Prints a line; what came of the file is told by the exit code as well.
fn say(line: &str) {
    if let Err(error) = print(&format!("{line}\n")) {
        eprintln!("standard output: {error}");
    }
}

/// Whether everything came true.
fn execute(args: &ScenarioArgs) -> Result<bool, ScenarioError> {
    let file = read(&args.file, args.seed)?;
    let tell = |played: &Played| {
        if args.output == OutputForm::Table {
            let Played { line, step, at_ms, took_ms } = played;
            say(&format!("{:>9.3} s  line {line:<4} {step} ({took_ms} ms)", *at_ms as f64 / 1000.0));
        }
    };
    let (outcomes, kept) = match args.on {
        On::Simulator => simulator::play(&file, &tell)?,
        On::Processes => processes::play(&file, args.kolo.clone(), &tell)?,
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
        OutputForm::Table if outcomes.is_good() => say("all of it came true"),
        OutputForm::Table => {}
        OutputForm::Json => {
            let (scenario, held, steps) = (name.to_string(), outcomes.is_good(), file.steps.len());
            let document = Document { scenario, on: args.on, seed: file.grid.seed, held, steps, outcomes: &outcomes };
            say(&serde_json::to_string(&document).expect("texts, numbers and lists of them are JSON"));
        }
    }
    Ok(outcomes.is_good())
}
