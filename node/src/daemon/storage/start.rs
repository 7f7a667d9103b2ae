//! Opens the ledger: reads everything, checks everything, and goes on in a new generation.
//!
//! Every start writes a new snapshot. So what was found counts as told from then on only because it is on disk now, not
//! because the system's memory still had it after a sync that failed.
//!
//! Invariant: nothing is changed before all was read and understood. Where the file of layout 1 was, a note remains: an
//! older program refuses it instead of starting with an empty ledger, and a directory that has gone is noticed.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use broker::ids::SiteId;

use super::{
    Remembered, StoreError, StoreSettings, entry,
    entry::State,
    files::{self, Generations, Loaded},
    layout1,
    read::Tail,
    sector::{Home, Role},
    writer::{Prepared, Writer},
};

/// Writes a snapshot of `state` and the empty journal that goes on from it; both are on disk when this returns.
///
/// # Errors
/// [`StoreError`].
pub fn write_generation(
    dir: &Path,
    ledger: u64,
    generation: u64,
    state: &State,
    journal_bytes: u64,
) -> Result<Prepared, StoreError> {
    let home = |role| Home { ledger, generation, role };
    // The journal first: a snapshot without its journal would look like one whose journal was lost.
    let journal = Prepared::create(dir, home(Role::Journal), journal_bytes)?;
    files::write_snapshot(dir, home(Role::Snapshot), state)?;
    Ok(journal)
}

const LOCK_FILE: &str = "lock";
const NOTE: &str = "The ledger is in the directory beside this file. Keep this file: it stops older programs from \
                    starting with an empty ledger.\n";

impl StoreSettings {
    /// History that ended before this moment is dropped.
    pub(super) fn history_before_ms(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_sub(u64::try_from(self.history_keep.as_millis()).unwrap_or(u64::MAX))
    }
}

/// What is found at the path of layout 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Old {
    /// Nothing.
    Absent,
    /// A ledger of layout 1.
    Ledger,
    /// The note.
    Note,
}

/// The ledger's directory for the path of layout 1.
#[must_use]
pub fn directory_of(path: &Path) -> PathBuf {
    path.with_extension("")
}

/// Whether a ledger is or was at the path of layout 1 or beside it, be it a damaged one.
#[must_use]
pub fn was_begun(path: &Path) -> bool {
    // What cannot be looked at may be there.
    [path, &directory_of(path)].iter().any(|path| path.try_exists().unwrap_or(true))
}

/// Looks at the path of layout 1.
///
/// # Errors
/// [`StoreError`] when it is neither of the three.
pub fn old_of(path: &Path) -> Result<Old, StoreError> {
    let mut beginning = Vec::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Old::Absent),
        Err(error) => return Err(StoreError::disk(path)(error)),
    };
    file.take(NOTE.len() as u64 + 1).read_to_end(&mut beginning).map_err(StoreError::disk(path))?;
    if beginning.starts_with(layout1::MAGIC) {
        Ok(Old::Ledger)
    } else if beginning == NOTE.as_bytes() {
        Ok(Old::Note)
    } else {
        Err(StoreError::damaged(path, "it is neither a ledger of layout 1 nor the note that stands in its place"))
    }
}

/// Opens the ledger for writing.
///
/// # Errors
/// As for [`super::Store::open`].
pub fn start(path: &Path, unix_ms: u64, settings: StoreSettings) -> Result<(Writer, Remembered), StoreError> {
    let dir = directory_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(StoreError::disk(&dir))?;
    let lock = lock(&dir)?;
    let old = old_of(path)?;
    let found = match old {
        Old::Ledger => Some(take_over(path, &dir, unix_ms)?),
        Old::Absent | Old::Note => files::load(&dir)?,
    };
    let nothing = || Loaded { ledger: unix_ms, generation: 0, state: State::new(), groups: 0, tail: Tail::default() };
    let mut loaded = match found {
        None if old == Old::Note => return Err(StoreError::damaged(&dir, "the ledger was here and is gone")),
        found => found.unwrap_or_else(nothing),
    };
    if loaded.tail.is_torn {
        tracing::info!("the last write to the ledger was cut off before anybody was told of it; it is dropped");
    }
    let before_ms = settings.history_before_ms(unix_ms);
    loaded.state.retain(|key, value| !entry::is_old_history(key, value, before_ms));
    // Also larger when the clock was set back between two starts.
    let incarnation = unix_ms.max(entry::incarnation(&loaded.state)?.saturating_add(1));
    entry::set_incarnation(&mut loaded.state, incarnation)?;
    if let Some(present) = &settings.site {
        check_site(&dir, &loaded.state, present)?;
        entry::set_site(&mut loaded.state, present)?;
    }
    let remembered = entry::remembered(&loaded.state)?;

    let generation = loaded.generation + 1;
    let journal = write_generation(&dir, loaded.ledger, generation, &loaded.state, settings.journal_bytes_first)?;
    files::remove_before(&dir, generation)?;
    files::remove_unfinished(&dir)?;
    if old != Old::Note {
        write_note(path)?;
    }
    Ok((Writer::new(dir, journal, settings, lock)?, remembered))
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
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(StoreError::disk(&path))?;
    lock_file(&file, &path)?;
    Ok(file)
}

/// The lock for a process that only looks, and leaves no file of its own; none when no node ever ran here.
///
/// # Errors
/// [`StoreError::InUse`].
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

fn write_note(path: &Path) -> Result<(), StoreError> {
    let mut file = File::create(files::unfinished(path)).map_err(StoreError::disk(path))?;
    file.write_all(NOTE.as_bytes()).map_err(StoreError::disk(path))?;
    files::put_in_place(&file, path)
}

/// Reads a ledger of layout 1 by way of a copy, which stays beside the new files.
fn take_over(path: &Path, dir: &Path, unix_ms: u64) -> Result<Loaded, StoreError> {
    let two = || StoreError::TwoLedgers { old: path.display().to_string(), new: dir.display().to_string() };
    let found = Generations::of(dir)?;
    // An earlier attempt may have ended before the note was written; nothing was told from what it left.
    let is_leftover = found.snapshots.iter().chain(&found.journals).all(|generation| *generation <= 1)
        && files::load(dir)?.is_none_or(|loaded| loaded.groups == 0);
    if !is_leftover {
        return Err(two());
    }
    files::remove_before(dir, 2)?;
    let original = File::open(path).map_err(StoreError::disk(path))?;
    lock_file(&original, path)?;
    let copy = dir.join("layout-1.redb");
    fs::copy(path, &copy).map_err(StoreError::disk(&copy))?;
    let state = layout1::read(&copy)?;
    tracing::info!(kept = %copy.display(), "the ledger was taken over from layout 1");
    Ok(Loaded { ledger: unix_ms, generation: 0, state, groups: 0, tail: Tail::default() })
}
