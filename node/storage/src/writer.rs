//! The writer's state: the journal in use, the one prepared for later, and the compaction that goes on beside it.
//!
//! Invariant: the closing entry of a journal is on disk before the next journal gets its first group. At most one full
//! journal waits to be compacted; when the next is full too, the writer waits. So the files are bounded by the
//! state and a few journals. A disk that is too full for a compaction stops the writer only when the next journal is full too.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    thread::JoinHandle,
    time::{Duration, Instant},
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
    room::{self, Room},
    sector::{self, Home, Role, SECTOR_BYTES},
    spares::Spares,
};

/// Between two tries of what the disk was too full for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Fewest sectors of a journal on a full disk.
pub const JOURNAL_SECTORS_MIN: u64 = 32;

/// An empty journal on disk.
pub struct Prepared {
    pub file: File,
    /// Where it belongs.
    pub home: Home,
    pub sectors: u64,
}

impl Prepared {
    /// Makes an empty journal of about this many bytes, or of as many as a full disk has room for where these are `least` sectors.
    pub fn create(dir: &Path, home: Home, bytes: u64, least: u64) -> Result<Prepared, StoreError> {
        let sectors = bytes.div_ceil(SECTOR_BYTES as u64).max(4);
        let made = |sectors| Ok(Prepared { file: files::create_journal(dir, home, sectors)?, home, sectors });
        let path = files::unfinished(&files::journal_path(dir, home.generation));
        let had = room::bytes_for(dir, Role::Journal, &path) / SECTOR_BYTES as u64;
        match made(sectors) {
            // The rest of the disk is not taken: small files need it.
            Err(StoreError::Full { file }) => {
                let has = fs::metadata(path).map_or(0, |begun| begun.len() / SECTOR_BYTES as u64);
                let fewer = has.min(had.max(least));
                if fewer >= least.min(sectors) { made(fewer) } else { Err(StoreError::Full { file }) }
            }
            made => made,
        }
    }

    fn into_journal(self) -> Journal {
        Journal::new(Box::new(self.file), self.home, self.sectors)
    }
}

/// An empty journal, and the snapshot that it goes on from; both are on disk.
pub struct Generation {
    pub journal: Prepared,
    /// Sectors of the snapshot.
    pub snapshot_sectors: u64,
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

/// Results of the work beside the writer.
#[derive(Default)]
struct Beside {
    prepared: Option<Prepared>,
    /// Sectors of the snapshot that it has made, if it has made one.
    snapshot_sectors: Option<u64>,
    /// Whether the disk was too full for the rest.
    is_full: bool,
}

/// Work beside the writer.
struct Work {
    dir: PathBuf,
    /// Path and bytes of the next journal; none when it is there already.
    next: Option<(Home, u64)>,
    /// The journal to compact, if any is closed.
    closed: Option<Home>,
    history_before_ms: u64,
}

impl Work {
    /// Prepares the next journal, then compacts the one that was closed; in the other order where only that makes room.
    fn run(self, spares: &mut Spares) -> Result<Beside, StoreError> {
        let mut beside = Beside { prepared: self.prepare(spares)?, ..Beside::default() };
        if let Some(closed) = self.closed {
            let is_old = |key: &_, value: &[u8]| entry::is_old_history(key, value, self.history_before_ms);
            match spares.lend(|| files::compact(&self.dir, closed.ledger, closed.generation, is_old)) {
                Err(StoreError::Full { .. }) => return Ok(Beside { is_full: true, ..beside }),
                sectors => beside.snapshot_sectors = Some(sectors?),
            }
        }
        if beside.prepared.is_none() {
            beside.prepared = self.prepare(spares)?;
        }
        beside.is_full = self.next.is_some() && beside.prepared.is_none();
        Ok(beside)
    }

    /// The next journal; none when it is there already, or the disk is too full for it.
    fn prepare(&self, spares: &mut Spares) -> Result<Option<Prepared>, StoreError> {
        let Some((home, bytes)) = self.next else { return Ok(None) };
        match spares.lend(|| Prepared::create(&self.dir, home, bytes, JOURNAL_SECTORS_MIN)) {
            Err(StoreError::Full { .. }) => Ok(None),
            prepared => prepared.map(Some),
        }
    }
}

pub struct Writer {
    dir: PathBuf,
    home: Home,
    settings: StoreSettings,
    pub(super) journal: Journal,
    prepared: Option<Prepared>,
    background: Option<JoinHandle<Result<Beside, StoreError>>>,
    /// The journal that is being compacted, or waits for that.
    closed: Option<Home>,
    /// Time at which the disk was too full for the work beside the writer, which is tried again.
    found_full: Option<Instant>,
    room: Room,
    /// Held as long as any thread writes files.
    lock: Arc<File>,
    spares: Arc<Mutex<Spares>>,
}

impl Writer {
    /// Goes on with an empty journal, and has the next one prepared.
    ///
    /// # Errors
    /// [`StoreError`] when no thread can be started.
    pub fn new(dir: PathBuf, begun: Generation, settings: StoreSettings, lock: File) -> Result<Writer, StoreError> {
        let Generation { journal, snapshot_sectors } = begun;
        let home = journal.home;
        let room = Room::begin(&dir, snapshot_sectors, settings.journal_bytes_first);
        let model = lock.try_clone().map_err(StoreError::disk(&dir))?;
        let mut writer = Writer {
            dir,
            home,
            settings,
            journal: journal.into_journal(),
            prepared: None,
            background: None,
            closed: None,
            found_full: None,
            room,
            lock: Arc::new(lock),
            spares: Arc::new(Mutex::new(Spares::of(model))),
        };
        writer.spawn_background()?;
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
        self.append(content)?;
        self.room.add_group(content);
        Ok(())
    }

    /// Sees to the room for the next generation; true when the ledger has it. While a compaction uses it, the last answer stands.
    ///
    /// # Errors
    /// [`StoreError`] when a compaction has failed, and then nothing must be written any more.
    pub fn has_room(&mut self) -> Result<bool, StoreError> {
        match &self.background {
            Some(background) if !background.is_finished() => return Ok(self.had_room()),
            _ => self.await_background()?,
        }
        match self.found_full {
            None => Ok(self.room.lay_out(&self.dir)),
            Some(found) => {
                if found.elapsed() >= LOOK_EVERY {
                    self.spawn_background()?;
                }
                Ok(false)
            }
        }
    }

    /// Whether the room was there at the last look.
    pub fn had_room(&self) -> bool {
        self.room.was_there()
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
            let Beside { prepared, snapshot_sectors, is_full } = background.join().map_err(panicked)??;
            self.prepared = prepared.or(self.prepared.take());
            self.room.use_up(snapshot_sectors);
            if snapshot_sectors.is_some() {
                self.closed = None;
            }
            self.found_full = is_full.then(Instant::now);
            if is_full {
                self.room.note_full();
            }
        }
        Ok(())
    }

    /// Goes on in the next journal, which has room for a group of `content_bytes`.
    fn rotate(&mut self, content_bytes: usize) -> Result<(), StoreError> {
        self.await_background()?;
        if self.closed.is_some() {
            self.spawn_background()?;
            self.await_background()?;
        }
        if let Some(Home { generation, .. }) = self.closed {
            return Err(StoreError::Full { file: files::journal_path(&self.dir, generation).display().to_string() });
        }
        let home = Home { generation: self.home.generation + 1, ..self.home };
        // The header and the closing group need a sector each.
        let needed = sector::sectors_of(content_bytes) + 2;
        let next = match self.prepared.take().filter(|prepared| prepared.sectors >= needed) {
            Some(prepared) => prepared,
            None => {
                let create = || Prepared::create(&self.dir, home, needed * SECTOR_BYTES as u64, needed);
                locked(&self.spares).lend(create)?
            }
        };
        let mut close = Vec::new();
        entry::push_entry(&Entry::Close, &mut close)?;
        self.append(&close)?;
        self.closed = Some(self.home);
        self.journal = next.into_journal();
        self.home = home;
        self.room.begin_journal();
        self.spawn_background()
    }

    /// Starts what is to be done beside: the next journal, and a compaction.
    fn spawn_background(&mut self) -> Result<(), StoreError> {
        let bytes = self.journal.file_bytes().saturating_mul(2).min(self.settings.journal_bytes_max);
        let next = Home { generation: self.home.generation + 1, ..self.home };
        let work = Work {
            dir: self.dir.clone(),
            next: self.prepared.is_none().then_some((next, bytes)),
            closed: self.closed,
            history_before_ms: self.settings.history_before_ms(unix_ms()),
        };
        let (lock, spares) = (self.lock.clone(), self.spares.clone());
        let run = move || {
            let _lock = lock;
            work.run(&mut locked(&spares))
        };
        let thread = thread::Builder::new().name("kolo-compact".to_owned()).spawn(run);
        self.background = Some(thread.map_err(StoreError::disk(&self.dir))?);
        Ok(())
    }
}
