//! A snapshot: everything that is remembered at one moment, in the order of its keys.
//!
//! Every value is a group of its own, so that a damaged sector costs one value when a ledger is salvaged.
//!
//! Invariant: a file that has the name of a snapshot is whole and on disk; until then it has another name. The last
//! entry says how many values there are.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use super::{
    entry::{self, Entry, Key},
    error::StoreError,
    files,
    read::GroupReader,
    room,
    sector::{self, Header, Home, Role, SECTOR_BYTES},
};

/// Writes a snapshot, in the room for it.
pub struct SnapshotWriter {
    path: PathBuf,
    file: BufWriter<File>,
    home: Home,
    position: u64,
    group: u64,
    values: u64,
    content: Vec<u8>,
    sectors: Vec<u8>,
}

impl SnapshotWriter {
    /// Begins the snapshot that will be found at `path`.
    pub fn create(path: &Path, home: Home) -> Result<SnapshotWriter, StoreError> {
        let file = room::taken_for(files::parent_of(path), Role::Snapshot, &files::unfinished(path));
        let file = file.map_err(StoreError::disk(path))?;
        let mut file = BufWriter::with_capacity(64 << 10, file);
        file.write_all(&sector::header(Header { home, sectors: 0 })).map_err(StoreError::disk(path))?;
        let path = path.to_owned();
        Ok(SnapshotWriter {
            path,
            file,
            home,
            position: 1,
            group: 1,
            values: 0,
            content: Vec::new(),
            sectors: Vec::new(),
        })
    }

    /// Adds a value; keys come in ascending order.
    pub fn put(&mut self, key: Key, value: Vec<u8>) -> Result<(), StoreError> {
        self.values += 1;
        self.push(&Entry::Put(key, value))
    }

    fn push(&mut self, entry: &Entry) -> Result<(), StoreError> {
        self.content.clear();
        self.sectors.clear();
        entry::push_entry(entry, &mut self.content)?;
        sector::push_group(self.home, self.position, self.group, &self.content, &mut self.sectors);
        self.position += sector::sectors_of(self.content.len());
        self.group += 1;
        self.file.write_all(&self.sectors).map_err(StoreError::disk(&self.path))
    }

    /// Puts the snapshot in its place; it is on disk when this returns. How many sectors it has.
    pub fn finish(mut self) -> Result<u64, StoreError> {
        self.push(&Entry::End(self.values))?;
        let file = self.file.into_inner().map_err(|error| StoreError::disk(&self.path)(error.into_error()))?;
        room::end_at(&file, self.position * SECTOR_BYTES as u64).map_err(StoreError::disk(&self.path))?;
        files::put_in_place(&file, &self.path)?;
        Ok(self.position)
    }
}

/// Reads a snapshot value by value.
pub struct SnapshotReader {
    path: PathBuf,
    groups: GroupReader<BufReader<File>>,
    entries: std::vec::IntoIter<Entry>,
    last_key: Option<Key>,
    values: u64,
    has_ended: bool,
}

impl SnapshotReader {
    /// Opens the snapshot of the file `path`, which belongs at `home`; any ledger when that is none.
    pub fn open(path: &Path, is_home: impl Fn(Home) -> bool) -> Result<SnapshotReader, StoreError> {
        let groups = files::open_groups(path, is_home)?;
        let path = path.to_owned();
        Ok(SnapshotReader {
            path,
            groups,
            entries: Vec::new().into_iter(),
            last_key: None,
            values: 0,
            has_ended: false,
        })
    }

    /// Where the snapshot belongs.
    pub fn home(&self) -> Home {
        self.groups.home()
    }

    /// The next value; none behind the last.
    ///
    /// # Errors
    /// [`StoreError`] when the snapshot is not what was written.
    pub fn next_value(&mut self) -> Result<Option<(Key, Vec<u8>)>, StoreError> {
        loop {
            match self.entries.next() {
                Some(Entry::Put(key, value)) if !self.has_ended && self.last_key.as_ref() < Some(&key) => {
                    self.values += 1;
                    self.last_key = Some(key.clone());
                    return Ok(Some((key, value)));
                }
                Some(Entry::End(values)) if !self.has_ended && values == self.values => self.has_ended = true,
                Some(_) => return Err(StoreError::damaged(&self.path, "an entry is not in its place")),
                None => match self.groups.next_group().map_err(StoreError::read(&self.path))? {
                    Some(group) => {
                        let entries = entry::entries(&group);
                        let damaged = || StoreError::damaged(&self.path, "a group holds something unknown");
                        self.entries = entries.ok_or_else(damaged)?.into_iter();
                    }
                    None if self.has_ended => return Ok(None),
                    None => return Err(StoreError::damaged(&self.path, "its end is missing")),
                },
            }
        }
    }
}
