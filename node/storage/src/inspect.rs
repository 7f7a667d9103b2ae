//! Looks at the ledger without changing it, for `kolo doctor`.
//!
//! Invariant: files are only read, and none is made; what a start would do is found by the same code that a start uses.

use std::path::Path;

use broker::ids::SiteId;
use serde::Serialize;

use super::{entry, error::StoreError, files, read::Tail, start};

/// What a start would find.
#[derive(Debug)]
pub enum Inspection {
    /// No node has run here.
    Empty,
    /// A node runs here now.
    InUse,
    /// A ledger that opens.
    Good(Summary),
    /// A ledger that does not open.
    Bad(StoreError),
}

/// What a good ledger holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub reservations: usize,
    pub requests: usize,
    /// Whose it is, if that was written down.
    pub site: Option<SiteId>,
    /// Groups of changes behind the snapshot.
    pub groups: u64,
    /// The last write was cut off before it was acknowledged.
    pub is_torn: bool,
}

/// Looks at the ledger in `dir`.
pub fn inspect(dir: &Path) -> Inspection {
    look(dir).unwrap_or_else(|error| match error {
        StoreError::InUse(_) => Inspection::InUse,
        error => Inspection::Bad(error),
    })
}

fn look(dir: &Path) -> Result<Inspection, StoreError> {
    if !dir.try_exists().map_err(StoreError::disk(dir))? {
        return Ok(Inspection::Empty);
    }
    let _lock = start::lock_to_look(dir)?;
    look_unlocked(dir)
}

/// Inspects a ledger without its lock, where no node can have that.
pub fn look_unlocked(dir: &Path) -> Result<Inspection, StoreError> {
    match files::load(dir)? {
        None => Ok(Inspection::Empty),
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
