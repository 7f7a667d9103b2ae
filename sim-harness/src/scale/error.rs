//! Why a simulation does not begin.
//!
//! Invariant: a text names the flag or the file that it is about; every error here is bad usage.

use std::{io, path::PathBuf};

use broker::request::RequestError;
use discovery::SetUpError;

use crate::grid::error::UsageError;

/// The command line or the file named on it is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// A flag that the real grid has as well.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Requests come too seldom or too often.
    #[error("--rate: expected 0.1 to 7200 requests an hour for each site, got {0}")]
    Rate(f64),
    /// The result of the real grid cannot be read.
    #[error("--compare {path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The result of the real grid is none.
    #[error("--compare {path}: the last line is not the result of `kolo-sim grid --output json`: {source}", path = .path.display())]
    NotAResult {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The result of the real grid is larger than what can be simulated.
    #[error("--compare {path}: {key}: expected {least} to {most}, got {got}", path = .path.display())]
    Beyond {
        /// The file.
        path: PathBuf,
        /// Which figure of it.
        key: &'static str,
        /// The smallest that is accepted.
        least: usize,
        /// The largest that is accepted.
        most: usize,
        /// What is there.
        got: usize,
    },
    /// The report cannot be written.
    #[error("--html {path}: {source}", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No request can be drawn for these hosts.
    #[error("--hosts-per-request: {0}")]
    Requests(#[from] RequestError),
    /// No node could start with the configuration that is simulated.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
}
