//! Looks at the ledger without changing it, for `kolo doctor`.
//!
//! Invariant: files are only read, and none is made; what a start would do is found by the same code that a start uses.

use std::path::{Path, PathBuf};

use broker::ids::SiteId;

use super::{StoreError, entry, files, read::Tail, start};

/// What a start would find.
#[derive(Debug)]
pub enum Inspection {
    /// No node has run here.
    Empty,
    /// A node runs here now.
    InUse,
    /// A ledger of layout 1, which the next start takes over.
    Layout1,
    /// A ledger that opens.
    Good(Summary),
    /// A ledger that does not open.
    Bad(StoreError),
}

/// What a good ledger holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Reservations.
    pub reservations: usize,
    /// Requests.
    pub requests: usize,
    /// Whose it is, if that was written down.
    pub site: Option<SiteId>,
    /// Groups of changes behind the snapshot.
    pub groups: u64,
    /// The last write was cut off before anybody was told of it.
    pub is_torn: bool,
}

/// Looks at the ledger whose layout-1 file would be at `path`.
#[must_use]
pub fn inspect(path: &Path) -> Inspection {
    look(path).unwrap_or_else(|error| match error {
        StoreError::InUse(_) => Inspection::InUse,
        error => Inspection::Bad(error),
    })
}

fn look(path: &Path) -> Result<Inspection, StoreError> {
    let dir: PathBuf = start::directory_of(path);
    let old = start::old_of(path)?;
    if !dir.is_dir() {
        return match old {
            start::Old::Absent => Ok(Inspection::Empty),
            start::Old::Ledger => Ok(Inspection::Layout1),
            start::Old::Note => Err(StoreError::damaged(&dir, "the ledger was here and is gone")),
        };
    }
    let _lock = start::lock_to_look(&dir)?;
    if old == start::Old::Ledger {
        return Ok(Inspection::Layout1);
    }
    match files::load(&dir)? {
        None if old == start::Old::Absent => Ok(Inspection::Empty),
        None => Err(StoreError::damaged(&dir, "the ledger was here and is gone")),
        Some(loaded) => {
            let remembered = entry::remembered(&loaded.state)?;
            let Tail { is_torn, .. } = loaded.tail;
            Ok(Inspection::Good(Summary {
                reservations: remembered.reservations.len(),
                requests: remembered.requests.len(),
                site: entry::site(&loaded.state)?,
                groups: loaded.groups,
                is_torn,
            }))
        }
    }
}
