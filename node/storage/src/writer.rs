//! The writer's state: the journal in use, the one prepared for later, and the compaction that goes on beside it.
//!
//! Invariant: the closing entry of a journal is on disk before the next journal gets its first group. At most one full
//! journal waits to be compacted; when the next is full too, the writer waits. So the files are bounded by the
//! state and a few journals.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    thread::JoinHandle,
};

use kolo_runtime::{clock::unix_ms, lock::locked};

use super::{
    change::Change,
    change::StoreSettings,
    entry::{self, Entry},
    error::StoreError,
    files,
    journal::Journal,
    read::GROUP_BYTES_MAX,
    sector::{self, Home, Role, SECTOR_BYTES},
    spares::Spares,
};

/// An empty journal on disk.
pub struct Prepared {
    pub file: File,
    /// Where it belongs.
    pub home: Home,
    pub sectors: u64,
}

impl Prepared {
    /// Makes an empty journal of about this many bytes.
    pub fn create(dir: &std::path::Path, home: Home, bytes: u64) -> Result<Prepared, StoreError> {
        let sectors = bytes.div_ceil(SECTOR_BYTES as u64).max(4);
        Ok(Prepared { file: files::create_journal(dir, home, sectors)?, home, sectors })
    }

    fn into_journal(self) -> Journal {
        Journal::new(Box::new(self.file), self.home, self.sectors)
    }
}

/// Appends the entries of `changes` to a group's bytes.
pub fn push_changes(changes: &[Change], content: &mut Vec<u8>) -> Result<(), StoreError> {
    for change in changes {
        for entry in entry::of_change(change)? {
            entry::push_entry(&entry, content)?;
        }
    }
    if content.len() > GROUP_BYTES_MAX {
        return Err(StoreError::TooLarge { bytes: content.len() });
    }
    Ok(())
}

pub struct Writer {
    dir: PathBuf,
    home: Home,
    settings: StoreSettings,
    pub(super) journal: Journal,
    prepared: Option<Prepared>,
    background: Option<JoinHandle<Result<Prepared, StoreError>>>,
    /// Held as long as any thread writes files.
    lock: Arc<File>,
    spares: Arc<Mutex<Spares>>,
}

impl Writer {
    /// Goes on with an empty journal, and has the next one prepared.
    ///
    /// # Errors
    /// [`StoreError`] when no thread can be started.
    pub fn new(dir: PathBuf, journal: Prepared, settings: StoreSettings, lock: File) -> Result<Writer, StoreError> {
        let home = journal.home;
        let model = lock.try_clone().map_err(StoreError::disk(&dir))?;
        let mut writer = Writer {
            dir,
            home,
            settings,
            journal: journal.into_journal(),
            prepared: None,
            background: None,
            lock: Arc::new(lock),
            spares: Arc::new(Mutex::new(Spares::of(model))),
        };
        writer.spawn_background(None)?;
        Ok(writer)
    }

    /// Writes a group; it is on disk when this returns.
    ///
    /// # Errors
    /// [`StoreError`] when it is not, and then nothing must be written any more.
    pub fn write(&mut self, content: &[u8]) -> Result<(), StoreError> {
        // What has gone wrong beside the work must not wait for the next full journal to be noticed.
        if self.background.as_ref().is_some_and(JoinHandle::is_finished) {
            self.await_background()?;
        }
        if !self.journal.has_room_for(content.len()) {
            self.rotate(content.len())?;
        }
        self.append(content)
    }

    fn append(&mut self, content: &[u8]) -> Result<(), StoreError> {
        self.journal.append(content).map_err(StoreError::disk(&files::journal_path(&self.dir, self.home.generation)))
    }

    /// Marks the last group as acknowledged.
    ///
    /// # Errors
    /// [`StoreError`], and then nothing must be written any more.
    pub fn seal(&mut self, now: bool) -> Result<(), StoreError> {
        self.journal.seal(now).map_err(StoreError::disk(&files::journal_path(&self.dir, self.home.generation)))
    }

    /// Puts the ledger away.
    ///
    /// # Errors
    /// [`StoreError`]; what was written is on disk all the same.
    pub fn stop(mut self) -> Result<(), StoreError> {
        self.seal(true)?;
        self.await_background()
    }

    fn await_background(&mut self) -> Result<(), StoreError> {
        if let Some(background) = self.background.take() {
            let panicked = |_| StoreError::Disk {
                file: self.dir.display().to_string(),
                detail: "the compaction ended in a panic".to_owned(),
            };
            self.prepared = Some(background.join().map_err(panicked)??);
        }
        Ok(())
    }

    /// Goes on in the next journal, which has room for a group of `content_bytes`.
    fn rotate(&mut self, content_bytes: usize) -> Result<(), StoreError> {
        self.await_background()?;
        let home = Home { generation: self.home.generation + 1, ..self.home };
        // The header and the closing group need a sector each.
        let needed = sector::sectors_of(content_bytes) + 2;
        let next = match self.prepared.take().filter(|prepared| prepared.sectors >= needed) {
            Some(prepared) => prepared,
            None => locked(&self.spares).lend(|| Prepared::create(&self.dir, home, needed * SECTOR_BYTES as u64))?,
        };
        let mut close = Vec::new();
        entry::push_entry(&Entry::Close, &mut close)?;
        self.append(&close)?;
        let closed = self.home.generation;
        self.journal = next.into_journal();
        self.home = home;
        self.spawn_background(Some(closed))
    }

    /// Prepares the next journal, then compacts the one that was closed.
    fn spawn_background(&mut self, closed: Option<u64>) -> Result<(), StoreError> {
        let (dir, home, settings) = (self.dir.clone(), self.home, self.settings.clone());
        let bytes = self.journal.file_bytes().saturating_mul(2).min(settings.journal_bytes_max);
        let (lock, spares) = (self.lock.clone(), self.spares.clone());
        let work = move || {
            let _lock = lock;
            let mut spares = locked(&spares);
            let next = Home { generation: home.generation + 1, role: Role::Journal, ..home };
            let prepared = spares.lend(|| Prepared::create(&dir, next, bytes))?;
            if let Some(closed) = closed {
                let before_ms = settings.history_before_ms(unix_ms());
                let is_old = |key: &_, value: &[u8]| entry::is_old_history(key, value, before_ms);
                spares.lend(|| files::compact(&dir, home.ledger, closed, is_old))?;
            }
            Ok(prepared)
        };
        let thread = thread::Builder::new().name("kolo-compact".to_owned()).spawn(work);
        self.background = Some(thread.map_err(StoreError::disk(&self.dir))?);
        Ok(())
    }
}
