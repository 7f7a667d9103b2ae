//! The files of the ledger's directory.
//!
//! `snapshot.G` is the state before the first group of `journal.G`; journals of later generations follow without a gap.
//! A journal that is followed by a used one ends with a closing entry, so that a journal that is missing at the end is
//! noticed. One empty journal may be ready for later.
//!
//! Invariant: a file gets its name when it is whole and on disk. Files are removed only when a later snapshot
//! holds all that is in them.

use std::{
    fs::{self, File},
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
};

use super::{
    entry::{self, Entry, Key, State},
    error::StoreError,
    read::{GroupReader, Tail},
    room,
    sector::{self, Header, Home, Role, SECTOR_BYTES},
    snapshot::{SnapshotReader, SnapshotWriter},
};

/// What is on disk.
#[derive(Debug)]
pub struct Loaded {
    /// The ledger's own number.
    pub ledger: u64,
    /// Number of the journal in use.
    pub generation: u64,
    /// What the files add up to.
    pub state: State,
    /// Groups in journals.
    pub groups: u64,
    /// How the last journal ended.
    pub tail: Tail,
}

fn snapshot_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("snapshot.{generation}"))
}

/// Where the journal of a generation is.
pub fn journal_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("journal.{generation}"))
}

/// Where the file of a generation is.
pub fn path_of(dir: &Path, generation: u64, role: Role) -> PathBuf {
    match role {
        Role::Journal => journal_path(dir, generation),
        Role::Snapshot => snapshot_path(dir, generation),
    }
}

/// The name that a file has until it is whole.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Gives the unfinished `file` its name; content and name are on disk when this returns.
pub fn put_in_place(file: &File, path: &Path) -> Result<(), StoreError> {
    let place = || {
        file.sync_all()?;
        fs::rename(unfinished(path), path)?;
        sync_directory(parent_of(path))
    };
    place().map_err(StoreError::disk(path))
}

/// The directory that `path` is in.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in `dir` durable.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Generations of the files of each kind, ascending.
#[derive(Debug, Default)]
pub struct Generations {
    pub snapshots: Vec<u64>,
    pub journals: Vec<u64>,
}

impl Generations {
    /// Looks into the directory.
    pub fn of(dir: &Path) -> Result<Generations, StoreError> {
        let mut found = Generations::default();
        for entry in fs::read_dir(dir).map_err(StoreError::disk(dir))? {
            let name = entry.map_err(StoreError::disk(dir))?.file_name();
            let Some((kind, generation)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Ok(generation) = generation.parse() else { continue };
            match kind {
                "snapshot" => found.snapshots.push(generation),
                "journal" => found.journals.push(generation),
                _ => {}
            }
        }
        found.snapshots.sort_unstable();
        found.journals.sort_unstable();
        Ok(found)
    }
}

/// Opens a file of groups that says it belongs where `is_home` wants it.
pub fn open_groups(path: &Path, is_home: impl Fn(Home) -> bool) -> Result<GroupReader<BufReader<File>>, StoreError> {
    let file = File::open(path).map_err(StoreError::disk(path))?;
    let groups = GroupReader::open(BufReader::with_capacity(64 << 10, file)).map_err(StoreError::read(path))?;
    if is_home(groups.home()) {
        Ok(groups)
    } else {
        Err(StoreError::damaged(path, "it belongs to another ledger or has another's name"))
    }
}

/// What one journal held, beside its changes.
struct JournalEnd {
    is_closed: bool,
    groups: u64,
    tail: Tail,
}

/// Feeds every change of a journal to `change`.
fn read_journal(
    dir: &Path,
    home: Home,
    mut change: impl FnMut(Key, Option<Vec<u8>>),
) -> Result<JournalEnd, StoreError> {
    let path = journal_path(dir, home.generation);
    let mut reader = open_groups(&path, |found| found == home)?;
    let mut is_closed = false;
    while let Some(group) = reader.next_group().map_err(StoreError::read(&path))? {
        let damaged = || StoreError::damaged(&path, "a group holds something unknown");
        for entry in entry::entries(&group).ok_or_else(damaged)? {
            match entry {
                _ if is_closed => return Err(StoreError::damaged(&path, "it goes on behind its end")),
                Entry::Put(key, value) => change(key, Some(value)),
                Entry::Remove(key) => change(key, None),
                Entry::Close => is_closed = true,
                Entry::End(_) => return Err(damaged()),
            }
        }
    }
    Ok(JournalEnd { is_closed, groups: reader.groups(), tail: reader.tail().unwrap_or_default() })
}

/// Reads everything; none when nothing in this directory was ever acknowledged.
///
/// # Errors
/// [`StoreError`] when something is missing or is not what was written.
pub fn load(dir: &Path) -> Result<Option<Loaded>, StoreError> {
    let found = Generations::of(dir)?;
    let Some(base) = found.snapshots.last().copied() else {
        return match found.journals.as_slice() {
            // The first start ended before its snapshot was in place, and nothing was acknowledged.
            [] | [1] => Ok(None),
            _ => Err(StoreError::damaged(dir, "there are journals, but the snapshot is missing")),
        };
    };
    let path = snapshot_path(dir, base);
    let is_home = |home: Home| home.role == Role::Snapshot && home.generation == base;
    let mut snapshot = SnapshotReader::open(&path, is_home)?;
    let ledger = snapshot.home().ledger;
    let mut state = State::new();
    while let Some((key, value)) = snapshot.next_value()? {
        state.insert(key, value);
    }
    let mut loaded = Loaded { ledger, generation: base, state, groups: 0, tail: Tail::default() };
    let mut is_open = false;
    for (generation, expected) in found.journals.iter().filter(|generation| **generation >= base).zip(base..) {
        let path = journal_path(dir, expected);
        if *generation != expected {
            return Err(StoreError::damaged(&path, "it is missing"));
        }
        let home = Home { ledger, generation: expected, role: Role::Journal };
        let end = read_journal(dir, home, |key, value| match value {
            Some(value) => drop(loaded.state.insert(key, value)),
            None => drop(loaded.state.remove(&key)),
        })?;
        if is_open && (end.groups > 0 || end.tail != Tail::default()) {
            return Err(StoreError::damaged(&path, "it is in use, but the journal before it was not closed"));
        }
        if !is_open {
            loaded.tail = end.tail;
            loaded.generation = expected;
        }
        is_open = is_open || !end.is_closed;
        loaded.groups += end.groups;
    }
    if is_open { Ok(Some(loaded)) } else { Err(StoreError::damaged(dir, "the last journal is missing")) }
}

/// Makes an empty journal of `sectors` sectors, in the room for it; it is on disk when this returns.
pub fn create_journal(dir: &Path, home: Home, sectors: u64) -> Result<File, StoreError> {
    let path = journal_path(dir, home.generation);
    let fill = || {
        let mut file = room::taken_for(dir, Role::Journal, &unfinished(&path))?;
        file.write_all(&sector::header(Header { home, sectors }))?;
        // Zeros are written, not only reserved: the first write into a reserved place would make the file system
        // change its own tables, which costs the next sync more.
        let zeros = [0; 128 * SECTOR_BYTES];
        let mut left = (sectors - 1) * SECTOR_BYTES as u64;
        while left > 0 {
            let count = left.min(zeros.len() as u64);
            file.write_all(&zeros[..usize::try_from(count).unwrap_or(zeros.len())])?;
            left -= count;
        }
        file.set_len(sectors * SECTOR_BYTES as u64)?;
        Ok(file)
    };
    let file = fill().map_err(StoreError::disk(&path))?;
    put_in_place(&file, &path)?;
    Ok(file)
}

/// Writes the snapshot of a whole state; the sectors of it.
pub fn write_snapshot(dir: &Path, home: Home, state: &State) -> Result<u64, StoreError> {
    let mut writer = SnapshotWriter::create(&snapshot_path(dir, home.generation), home)?;
    for (key, value) in state {
        writer.put(key.clone(), value.clone())?;
    }
    writer.finish()
}

/// Makes the snapshot behind a closed journal from that journal and the snapshot before it, without what `is_dropped`
/// says, then makes room of the two; the sectors of the snapshot.
///
/// # Errors
/// [`StoreError`]; both are still there then.
pub fn compact(
    dir: &Path,
    ledger: u64,
    generation: u64,
    is_dropped: impl Fn(&Key, &[u8]) -> bool,
) -> Result<u64, StoreError> {
    let home = |role, generation| Home { ledger, generation, role };
    let mut changes = std::collections::BTreeMap::new();
    read_journal(dir, home(Role::Journal, generation), |key, value| drop(changes.insert(key, value)))?;
    let before = home(Role::Snapshot, generation);
    let mut old = SnapshotReader::open(&snapshot_path(dir, generation), |found| found == before)?;
    let after = home(Role::Snapshot, generation + 1);
    let mut writer = SnapshotWriter::create(&snapshot_path(dir, generation + 1), after)?;
    let mut changes = changes.into_iter().peekable();
    let mut put = |key: Key, value: Vec<u8>| {
        if is_dropped(&key, &value) { Ok(()) } else { writer.put(key, value) }
    };
    while let Some((key, value)) = old.next_value()? {
        while let Some((changed, new)) = changes.next_if(|(changed, _)| *changed < key) {
            if let Some(new) = new {
                put(changed, new)?;
            }
        }
        match changes.next_if(|(changed, _)| *changed == key) {
            Some((_, Some(new))) => put(key, new)?,
            Some((_, None)) => {}
            None => put(key, value)?,
        }
    }
    for (key, value) in changes {
        if let Some(value) = value {
            put(key, value)?;
        }
    }
    let sectors = writer.finish()?;
    recycle_before(dir, generation + 1)?;
    Ok(sectors)
}

/// Removes what a crash has left of files that never got their names.
pub fn remove_unfinished(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::disk(dir))? {
        let path = entry.map_err(StoreError::disk(dir))?.path();
        if path.extension().is_some_and(|ending| ending == "new") {
            fs::remove_file(&path).map_err(StoreError::disk(&path))?;
        }
    }
    Ok(())
}

/// Makes room for the next generation of the files of earlier ones.
pub fn recycle_before(dir: &Path, generation: u64) -> Result<(), StoreError> {
    let found = Generations::of(dir)?;
    let snapshots = found.snapshots.iter().map(|found| (*found, Role::Snapshot));
    let journals = found.journals.iter().map(|found| (*found, Role::Journal));
    for (found, role) in snapshots.chain(journals).filter(|(found, _)| *found < generation) {
        room::give(dir, role, &path_of(dir, found, role))?;
    }
    Ok(())
}

/// Makes room of what a start does not need: files that never got their names, and the empty journals behind the one in use, which
/// is that of generation `used`.
pub fn recycle_unneeded(dir: &Path, used: u64) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::disk(dir))? {
        let path = entry.map_err(StoreError::disk(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".new"));
        match name.and_then(|name| name.split_once('.')) {
            Some(("snapshot", _)) => room::give(dir, Role::Snapshot, &path)?,
            Some(("journal", _)) => room::give(dir, Role::Journal, &path)?,
            _ => {}
        }
    }
    for empty in Generations::of(dir)?.journals.into_iter().filter(|found| *found > used) {
        room::give(dir, Role::Journal, &journal_path(dir, empty))?;
    }
    Ok(())
}
