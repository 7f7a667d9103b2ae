//! What is wrong with a file of keys or credentials.

use std::{io, path::PathBuf};

use broker::trust::TrustError;

/// What is wrong with a file of keys or credentials.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// It cannot be read or written.
    #[error("{path}: cannot {action}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Others can read a secret.
    #[error("{path}: mode {mode:03o} lets others read the key; expected 600 (chmod 600 it, or make a new one)", path = .path.display())]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds something else.
    #[error("{path}: {detail}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected.
        detail: String,
    },
    /// It is there already.
    #[error("{path} exists already and is not replaced", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What was to be signed or read makes no sense.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}
