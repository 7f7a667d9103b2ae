//! What can go wrong with the tables. Every text names the file, and the line where there is one.

use std::{io, path::PathBuf};

use broker::{offline::LineError, phases::SettingsError, request::RequestError, snapshot::SnapshotError};

use crate::placement::ChoiceError;

/// See the module.
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
    /// A line does not say what is expected of it.
    #[error("{path}: line {line}: {message}", path = .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// A file holds no request.
    #[error("{path}: expected at least one request", path = .0.display())]
    NoRequests(PathBuf),
    /// Requests cannot be drawn on this grid.
    #[error("requests for this grid: {0}")]
    Draw(#[from] RequestError),
    /// The planner's settings contradict themselves.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A policy gave an answer that is none.
    #[error("policy {policy}, request {id}: {source}")]
    Policy {
        /// Its name.
        policy: String,
        /// The request.
        id: String,
        /// What is wrong with the answer.
        source: ChoiceError,
    },
    /// Standard output is gone, or a value cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}
