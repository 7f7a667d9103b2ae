//! Why a configuration is not in force.
//!
//! Invariant: every message names the file and the key, or the flag.

use kolo_text::document::DocumentError;
use kolo_trust::TrustFileError;

/// Why a configuration is not in force.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read, or its text is wrong.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A value is wrong, or contradicts another.
    #[error("{place}: {message}")]
    Value {
        /// File and key, or the flag.
        place: String,
        /// What is wrong and what was expected.
        message: String,
    },
    /// A file of the data directory that says which grid the node belongs to, and under which name, is wrong.
    #[error(transparent)]
    Grid(#[from] TrustFileError),
    /// The machine could not be looked at.
    #[error("cannot detect this machine: {0}; list it under [[hosts]] instead")]
    Machine(String),
    /// No home to keep data in.
    #[error("no data directory: neither XDG_DATA_HOME nor HOME is set; name one with --data-dir")]
    NoDataDir,
    /// Bootstrap addresses without a grid.
    #[error(
        "{place}: bootstrap addresses are given, but no grid: say which with --grid ID; the other node prints it in its \
         join line when it starts"
    )]
    BootstrapWithoutGrid {
        /// Where the addresses come from.
        place: String,
    },
}
