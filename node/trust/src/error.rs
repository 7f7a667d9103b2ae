//! What is wrong with a file of keys or credentials.

use std::{io, path::PathBuf};

use broker::trust::TrustError;

/// What is wrong with a file of keys or credentials.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// It cannot be read or written.
    #[error("{path}: cannot {action}: {source}", path = .path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    /// Others can read a secret.
    #[error("{path}: mode {mode:03o} lets others read the secret in it; expected 600 (chmod 600 it)", path = .path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    /// It holds something else.
    #[error("{path}: {detail}", path = .path.display())]
    Malformed { path: PathBuf, detail: String },
    /// It is there already.
    #[error("{path} exists already and is not replaced", path = .path.display())]
    Exists { path: PathBuf },
    /// What was to be signed or read makes no sense.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The SSH agent does not do what a key of it is needed for.
    #[error("the SSH agent (SSH_AUTH_SOCK) {0}")]
    Agent(String),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}
