//! What can go wrong with a replay. Every text names the file, and the line where there is one.

use std::{io, path::PathBuf};

use super::engine::EngineError;
use crate::report::PlaceError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line makes the whole file unusable.
    #[error("{path}: line {line}: {message}", path = .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The file as a whole is unusable.
    #[error("{path}: {message}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The policy is broken.
    #[error("policy {policy}: {source}")]
    Engine {
        /// Its name.
        policy: String,
        /// What it did.
        source: EngineError,
    },
    /// Standard output is gone, or a value cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl ReplayError {
    /// Whether the arguments or the files are to blame, not this program.
    pub fn is_bad_usage(&self) -> bool {
        matches!(self, ReplayError::File { .. } | ReplayError::Line { .. } | ReplayError::Content { .. })
    }
}

impl From<PlaceError> for ReplayError {
    fn from(PlaceError { path, source }: PlaceError) -> ReplayError {
        ReplayError::File { path, source }
    }
}
