//! Makes a new ledger of every whole group in a damaged one, when the owner asks for it.
//!
//! What was in a damaged group is lost, and what that group removed may come back: a reservation too many rather than one
//! too few. A start never does this by itself.
//!
//! Invariant: the damaged files get a second name elsewhere and are not changed; until the new generation is whole, a
//! start is refused. The directory and its lock stay where they are, so that no node can start meanwhile.

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use super::{
    change::StoreSettings,
    entry::{self, Entry, State},
    error::StoreError,
    files::{self, Generations},
    read,
    sector::{Home, Role},
    start,
};

/// What could be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvage {
    pub reservations: usize,
    pub requests: usize,
    /// Sectors whose content is lost.
    pub sectors_lost: u64,
    /// Where the damaged files are now.
    pub moved_to: PathBuf,
}

/// Salvages the ledger in `dir`; none when it opens as it is. `unix_ms` is the present.
///
/// # Errors
/// [`StoreError`] when it is in use, of another layout, or nothing of it can be read.
pub fn salvage(dir: &Path, unix_ms: u64) -> Result<Option<Salvage>, StoreError> {
    let lock = start::lock(dir)?;
    match files::load(dir) {
        Ok(_) => return Ok(None),
        Err(StoreError::Damaged { .. }) => {}
        Err(other) => return Err(other),
    }
    let found = Generations::of(dir)?;
    let all = found.snapshots.iter().map(|generation| (*generation, Role::Snapshot));
    let mut all: Vec<(u64, Role)> = all.chain(found.journals.iter().map(|found| (*found, Role::Journal))).collect();
    all.sort_unstable_by_key(|(generation, role)| (*generation, *role == Role::Journal));
    let paths: Vec<PathBuf> = all.iter().map(|(generation, role)| files::path_of(dir, *generation, *role)).collect();
    let known = paths.iter().find_map(|path| files::open_groups(path, |_| true).ok());
    let ledger = known.map(|groups| groups.home().ledger);
    let ledger = ledger.ok_or_else(|| StoreError::damaged(dir, "no file of it has a header that can be read"))?;

    let (mut state, mut sectors_lost) = (State::new(), 0);
    for ((generation, role), path) in all.iter().zip(&paths) {
        let bytes = fs::read(path).map_err(StoreError::disk(path))?;
        let home = Home { ledger, generation: *generation, role: *role };
        let (groups, lost) = read::whole_groups(home, &bytes);
        sectors_lost += lost;
        for entry in groups.iter().filter_map(|group| entry::entries(group)).flatten() {
            match entry {
                Entry::Put(key, value) => drop(state.insert(key, value)),
                Entry::Remove(key) => drop(state.remove(&key)),
                Entry::Close | Entry::End(_) => {}
            }
        }
    }
    // Checked before anything is moved.
    let remembered = entry::remembered(&state)?;
    let incarnation = unix_ms.max(remembered.incarnation.saturating_add(1));
    entry::set_incarnation(&mut state, incarnation)?;
    let generation = all.last().map_or(1, |(generation, _)| generation + 1);

    let mut name = dir.as_os_str().to_owned();
    name.push(format!(".damaged-{unix_ms}"));
    let moved_to = PathBuf::from(name);
    fs::DirBuilder::new().mode(0o700).create(&moved_to).map_err(StoreError::disk(&moved_to))?;
    for (path, name) in paths.iter().filter_map(|path| Some((path, path.file_name()?))) {
        fs::hard_link(path, moved_to.join(name)).map_err(StoreError::disk(path))?;
    }
    for changed in [&moved_to, files::parent_of(dir)] {
        files::sync_directory(changed).map_err(StoreError::disk(changed))?;
    }
    // From here on the new generation counts, as after a start.
    start::write_generation(dir, ledger, generation, &state, StoreSettings::default().journal_bytes_first)?;
    files::recycle_before(dir, generation)?;
    drop(lock);
    let (reservations, requests) = (remembered.reservations.len(), remembered.requests.len());
    Ok(Some(Salvage { reservations, requests, sectors_lost, moved_to }))
}
