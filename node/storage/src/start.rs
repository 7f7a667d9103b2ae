//! Opens the ledger: reads everything, checks everything, and goes on in a new generation.
//!
//! Every start writes a new snapshot. So what was found counts as acknowledged from then on only because it is on disk now, not
//! because the system's memory still had it after a sync that failed.
//!
//! Invariant: nothing is changed before all was read and understood.

use std::{
    fs::{DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use broker::ids::SiteId;

use super::{
    change::Remembered,
    change::StoreSettings,
    entry::{self, Entry, State},
    error::StoreError,
    files::{self, Loaded},
    read::Tail,
    room,
    sector::{self, Home, Role, SECTOR_BYTES},
    writer::{Generation, JOURNAL_SECTORS_MIN, Prepared, Writer},
};

/// Writes a snapshot of `state` and the empty journal that goes on from it.
pub fn write_generation(
    dir: &Path,
    ledger: u64,
    generation: u64,
    state: &State,
    journal_bytes: u64,
) -> Result<Generation, StoreError> {
    let home = |role| Home { ledger, generation, role };
    // The journal first: a snapshot without its journal would look like one whose journal was lost.
    let create = || Prepared::create(dir, home(Role::Journal), journal_bytes, JOURNAL_SECTORS_MIN);
    let journal = match create() {
        // What the room for the snapshot has beyond that is enough for a journal.
        Err(StoreError::Full { .. }) => {
            room::cut(dir, Role::Snapshot, snapshot_bytes(state)?)?;
            create()?
        }
        made => made?,
    };
    let snapshot_sectors = files::write_snapshot(dir, home(Role::Snapshot), state)?;
    Ok(Generation { journal, snapshot_sectors })
}

/// Bytes of the snapshot of a state.
fn snapshot_bytes(state: &State) -> Result<u64, StoreError> {
    let mut group = Vec::new();
    // The header, and what says that it ends.
    let mut sectors = 2;
    for (key, value) in state {
        group.clear();
        entry::push_entry(&Entry::Put(key.clone(), value.clone()), &mut group)?;
        sectors += sector::sectors_of(group.len());
    }
    Ok(sectors * SECTOR_BYTES as u64)
}

const LOCK_FILE: &str = "lock";
/// Whether a ledger is or was in `dir`, be it a damaged one.
pub fn was_begun(dir: &Path) -> bool {
    // A directory that cannot be looked at may be there.
    dir.try_exists().unwrap_or(true)
}

/// Opens the ledger for writing.
pub fn start(dir: &Path, unix_ms: u64, settings: StoreSettings) -> Result<(Writer, Remembered), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(StoreError::disk(dir))?;
    let lock = lock(dir)?;
    let nothing = || Loaded { ledger: unix_ms, generation: 0, state: State::new(), groups: 0, tail: Tail::default() };
    let mut loaded = files::load(dir)?.unwrap_or_else(nothing);
    if loaded.tail.is_torn {
        tracing::info!("the last write to the ledger was cut off before it was acknowledged; it is dropped");
    }
    let before_ms = settings.history_before_ms(unix_ms);
    loaded.state.retain(|key, value| !entry::is_old_history(key, value, before_ms));
    // Also larger when the clock was set back between two starts.
    let incarnation = unix_ms.max(entry::incarnation(&loaded.state)?.saturating_add(1));
    entry::set_incarnation(&mut loaded.state, incarnation)?;
    if let Some(present) = &settings.site {
        check_site(dir, &loaded.state, present)?;
        entry::set_site(&mut loaded.state, present)?;
    }
    let remembered = entry::remembered(&loaded.state)?;

    files::recycle_unneeded(dir, loaded.generation)?;
    let generation = loaded.generation + 1;
    let begun = write_generation(dir, loaded.ledger, generation, &loaded.state, settings.journal_bytes_first)?;
    files::recycle_before(dir, generation)?;
    files::remove_unfinished(dir)?;
    Ok((Writer::new(dir.to_owned(), begun, settings, lock)?, remembered))
}

fn check_site(dir: &Path, state: &State, present: &SiteId) -> Result<(), StoreError> {
    match entry::site(state)? {
        Some(found) if found != *present => {
            Err(StoreError::OtherSite { file: dir.display().to_string(), found, expected: present.clone() })
        }
        _ => Ok(()),
    }
}

/// Keeps other processes away as long as the file is open.
pub fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(StoreError::disk(&path))?;
    lock_file(&file, &path)?;
    Ok(file)
}

/// The lock for a process that changes nothing of the ledger, and leaves no file of its own; none when no node ever ran here. No node
/// starts as long as the file is open.
///
/// # Errors
/// [`StoreError::InUse`] when a node runs here, and those of the disk.
pub fn lock_to_look(dir: &Path) -> Result<Option<File>, StoreError> {
    let path = dir.join(LOCK_FILE);
    match File::open(&path) {
        Ok(file) => lock_file(&file, &path).map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::disk(&path)(error)),
    }
}

fn lock_file(file: &File, path: &Path) -> Result<(), StoreError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::InUse(path.display().to_string()),
        TryLockError::Error(error) => StoreError::disk(path)(error),
    })
}
