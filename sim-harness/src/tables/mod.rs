//! `kolo-sim tables`: the source's tables 3.2 to 3.4 on a trace, planned by Kolo's core and by the textbook version in
//! the same run.
//!
//! Invariant: nothing is printed but what was measured in this run; bad input names the file and line.

pub mod args;
mod measure;
mod report;
mod summary;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use broker::{
    offline::LineError,
    phases::{Settings, SettingsError},
    snapshot::{GridSnapshot, SnapshotError},
};
use serde::Serialize;

use self::{
    args::{OutputArg, TablesArgs},
    measure::{Case, Method},
    summary::{Comparison, Row},
};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The snapshot is malformed.
    #[error("{path}: {source}", path = .path.display())]
    Grid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SnapshotError,
    },
    /// A request line is malformed.
    #[error("{path}: {source}", path = .path.display())]
    Request {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: LineError,
    },
    /// A line of proven starts is malformed.
    #[error("{path}: line {line}: {message}", path = .path.display())]
    Exact {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The planner's settings contradict themselves.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Standard output is gone, or a value cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub struct Tables {
    /// One row for every N, collective requests.
    pub collective: Vec<Row>,
    /// One row for every N, simple requests.
    pub simple: Option<Vec<Row>>,
    /// The same requests in both kinds.
    pub comparison: Option<Comparison>,
}

/// Plans both sets and prints the tables.
///
/// # Errors
/// [`TablesError`] names the file and what is wrong with it.
pub fn run(args: &TablesArgs) -> Result<(), TablesError> {
    let snapshot = GridSnapshot::read(&measure::read(&args.grid)?)
        .map_err(|source| TablesError::Grid { path: args.grid.clone(), source })?;
    let settings = Settings { effort: args.effort.into(), ..Settings::default() };
    let method = Method { settings, seed: args.seed, repeats: args.repeats, with_textbook: !args.no_textbook };
    let plan = |requests: &Path, exact: Option<&Path>| {
        measure::measure(&snapshot, requests, &measure::read_exact(exact)?, method)
    };
    let collective = plan(&args.collective, args.exact.as_deref())?;
    write_plans(args.plans.as_deref(), &collective)?;
    let simple = match &args.simple {
        Some(path) => Some(plan(path, args.exact_simple.as_deref())?),
        None => None,
    };
    if let Some(simple) = &simple {
        write_plans(args.plans_simple.as_deref(), simple)?;
    }
    let tables = Tables {
        collective: summary::rows(&collective),
        comparison: simple.as_ref().map(|simple| summary::compare(&collective, simple)),
        simple: simple.as_deref().map(summary::rows),
    };
    let text = match args.output {
        OutputArg::Table => report::text(&tables),
        OutputArg::Json => serde_json::to_string(&tables).map_err(io::Error::from)? + "\n",
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn write_plans(path: Option<&Path>, cases: &[Case]) -> Result<(), TablesError> {
    let Some(path) = path else { return Ok(()) };
    let mut text = String::new();
    for case in cases {
        text += &serde_json::to_string(&case.kolo).map_err(io::Error::from)?;
        text.push('\n');
    }
    fs::write(path, text).map_err(|source| TablesError::File { path: path.to_owned(), source })
}
