//! Why the ledger cannot be opened, read or written.

use std::{io, path::Path};

use broker::ids::SiteId;

use super::{read::ReadError, sector};

/// The numbers by which Linux says that the machine or the process has too many files open (errno.h).
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether something has failed because the disk, or the share of it that the user may have, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A ledger that cannot be opened, read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{0} is in use: another node runs with this data directory; stop it or use another --data-dir")]
    InUse(String),
    /// Made by another version.
    #[error(
        "{file}: the ledger has layout {found}, this program reads layout {}; use the program that wrote it",
        sector::LAYOUT
    )]
    Layout { file: String, found: u32 },
    /// A file is not what was written.
    #[error("the ledger is damaged: {file}: {detail}; nothing was changed, and `kolo doctor` says what can be done")]
    Damaged {
        /// The file or directory.
        file: String,
        detail: String,
    },
    /// The ledger is that of another site.
    #[error(
        "{file}: the ledger is that of site {found}, but identity.key is that of site {expected}; put that site's key back from \
         its backup, or begin anew with another --data-dir"
    )]
    OtherSite {
        file: String,
        /// Whose ledger it is.
        found: SiteId,
        /// Whose key is beside it.
        expected: SiteId,
    },
    /// A value is what was written, but not what this program knows.
    #[error(
        "the ledger holds a value among the {table} that this program does not know, as a later version may write: {detail}"
    )]
    Undecodable { table: &'static str, detail: String },
    /// A value or group is larger than any may be.
    #[error("{bytes} bytes are too many to be written at once")]
    TooLarge { bytes: usize },
    /// The disk, or the share of it that the node's user may have, is full.
    #[error("{file}: no room is left on the disk of the ledger; make some, or see what kolo doctor --free can")]
    Full { file: String },
    #[error("{file}: the ledger cannot be read or written: {detail}")]
    Disk { file: String, detail: String },
    /// The process, or the machine, has as many files open as it may; the disk is as it was.
    #[error("{file}: too many files are open; raise the limit (ulimit -n, LimitNOFILE)")]
    TooManyOpen { file: String },
    /// A write failed before, and nothing is written since.
    #[error("the writer of the ledger has stopped")]
    Stopped,
}

impl StoreError {
    pub(super) fn damaged(path: &Path, detail: impl Into<String>) -> StoreError {
        StoreError::Damaged { file: path.display().to_string(), detail: detail.into() }
    }

    pub(super) fn disk(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let file = path.display().to_string();
        move |error| match error.raw_os_error() {
            Some(EMFILE | ENFILE) => StoreError::TooManyOpen { file },
            _ if is_full(&error) => StoreError::Full { file },
            _ => StoreError::Disk { file, detail: error.to_string() },
        }
    }

    pub(super) fn read(path: &Path) -> impl FnOnce(ReadError) -> StoreError {
        let (path, file) = (path.to_owned(), path.display().to_string());
        move |error| match error {
            ReadError::Io(error) => StoreError::disk(&path)(error),
            ReadError::Layout(found) => StoreError::Layout { file, found },
            ReadError::Damaged { .. } => StoreError::Damaged { file, detail: error.to_string() },
        }
    }
}
