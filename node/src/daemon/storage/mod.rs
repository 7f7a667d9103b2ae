//! What must survive a crash: the ledger's reservations, the requests with their decisions, what the owner's hook has been
//! told, and a few facts.
//!
//! The ledger is a directory of files of our own layout ([`sector`], [`read`], [`files`]): a journal, to which every group of
//! changes is appended with one write and one sync, and a snapshot that the journal goes on from. A full journal is folded
//! into the next snapshot beside the work. A database that falls back to its last-but-one state when the last one
//! does not check out, as most do, would forget what was told; so nothing here ever falls back.
//!
//! After a power cut at any instant, with sectors of the last write there, missing or half written in any
//! combination, a start finds what was told, and perhaps the write after it. When a file has changed in any
//! other way the start is refused, and `kolo doctor` says what can be done. What this leaves open is written down in
//! [`read`]; a whole directory that was replaced by an older copy of itself is not noticed either.
//!
//! Invariant: [`Store::commit`] returns only after its changes are on disk. One writer thread groups the changes of all
//! callers, so that many small changes cost one sync. Once a write has failed nothing is accepted any more: the node must
//! stop, because it could not keep a promise.

pub mod entry;
mod files;
mod inspect;
mod journal;
pub mod read;
mod salvage;
pub mod sector;
mod snapshot;
mod start;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use broker::{
    ids::{RequestId, SiteId},
    ledger::{Record, Reservation},
    negotiation::RequestRecord,
    protocol::AttemptId,
};
use tokio::sync::{mpsc, oneshot};

pub use self::{
    inspect::{Inspection, inspect},
    salvage::salvage,
    start::was_begun,
};
use self::{read::ReadError, writer::Writer};
use super::{activation::ActivationRecord, metrics::WriteFigures};

/// The name of the ledger's directory in a data directory.
pub const LEDGER_DIR: &str = "ledger";

/// Callers that may wait for the writer. A further one waits for a place.
const QUEUE: usize = 1024;
/// Most callers whose changes share one write.
const GROUP: usize = 256;
/// Bytes after which no further caller's changes join a write.
const GROUP_BYTES: usize = 1 << 20;

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
    Layout {
        /// The file.
        file: String,
        /// Its layout.
        found: u32,
    },
    /// A file is not what was written.
    #[error("the ledger is damaged: {file}: {detail}; nothing was changed, and `kolo doctor` says what can be done")]
    Damaged {
        /// The file or directory.
        file: String,
        /// What is wrong.
        detail: String,
    },
    /// The ledger is that of another site.
    #[error(
        "{file}: the ledger is that of site {found}, but identity.key is that of site {expected}; put that site's key back from \
         its backup, or begin anew with another --data-dir"
    )]
    OtherSite {
        /// The directory.
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
    Undecodable {
        /// The table.
        table: &'static str,
        /// The decoder's words.
        detail: String,
    },
    /// A value or group is larger than any may be.
    #[error("{bytes} bytes are too many to be written at once")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// The disk failed.
    #[error("{file}: the ledger cannot be read or written: {detail}")]
    Disk {
        /// The file.
        file: String,
        /// The system's words.
        detail: String,
    },
    /// A write failed before, and nothing is written since.
    #[error("the writer of the ledger has stopped")]
    Stopped,
}

impl StoreError {
    fn damaged(path: &Path, detail: impl Into<String>) -> StoreError {
        StoreError::Damaged { file: path.display().to_string(), detail: detail.into() }
    }

    fn disk(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let file = path.display().to_string();
        move |error| StoreError::Disk { file, detail: error.to_string() }
    }

    fn read(path: &Path) -> impl FnOnce(ReadError) -> StoreError {
        let file = path.display().to_string();
        move |error| match error {
            ReadError::Io(error) => StoreError::Disk { file, detail: error.to_string() },
            ReadError::Layout(found) => StoreError::Layout { file, found },
            ReadError::Damaged { .. } => StoreError::Damaged { file, detail: error.to_string() },
        }
    }
}

/// What an owner can set, and whose ledger it is.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// How long a request is remembered after it is over, or after the last moment it could have run.
    pub history_keep: Duration,
    /// Bytes of the first journal; each is twice as large as the one before.
    pub journal_bytes_first: u64,
    /// Most bytes of a journal, unless a single group needs more. It bounds the memory and the time of a compaction.
    pub journal_bytes_max: u64,
    /// Whose ledger it is, kept with it; a ledger of another site is refused. None: whoever's it is.
    pub site: Option<SiteId>,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings {
            history_keep: Duration::from_hours(90 * 24),
            journal_bytes_first: 256 << 10,
            journal_bytes_max: 8 << 20,
            site: None,
        }
    }
}

impl StoreSettings {
    /// History that ended before this moment is dropped.
    fn history_before_ms(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_sub(u64::try_from(self.history_keep.as_millis()).unwrap_or(u64::MAX))
    }
}

/// One change.
#[derive(Debug, Clone)]
pub enum Change {
    /// Of the ledger.
    Ledger(Record),
    /// A request was accepted, or went on.
    Request(Box<RequestRecord>),
    /// A request is forgotten.
    ForgetRequest(RequestId),
    /// The owner's hook is about to be told something of a booking, or has been.
    Activation(Box<ActivationRecord>),
    /// What the owner's hook was told of a booking is forgotten.
    ForgetActivation(AttemptId),
    /// Addresses of peers to try after a restart.
    KnownPeers(Vec<String>),
}

/// What the disk remembers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Remembered {
    /// The ledger.
    pub reservations: Vec<Reservation>,
    /// Requests that this node carries.
    pub requests: Vec<RequestRecord>,
    /// What the owner's hook has been told of bookings.
    pub activations: Vec<ActivationRecord>,
    /// Addresses of peers.
    pub known_peers: Vec<String>,
    /// This start's number: larger than that of every earlier start.
    pub incarnation: u64,
}

struct Batch {
    changes: Vec<Change>,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// A handle to the writer; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    batches: mpsc::Sender<Batch>,
    figures: WriteFigures,
}

impl Store {
    /// Opens or makes the ledger in the directory `dir`. `unix_ms` is the present, for the number of this start.
    ///
    /// # Errors
    /// [`StoreError`] when it is in use, damaged, of another layout, or the disk fails.
    pub fn open(dir: &Path, unix_ms: u64, settings: StoreSettings) -> Result<(Store, Remembered), StoreError> {
        let (writer, remembered) = start::start(dir, unix_ms, settings)?;
        let (batches, queue) = mpsc::channel(QUEUE);
        let figures = WriteFigures::default();
        let told = figures.clone();
        thread::Builder::new()
            .name("kolo-store".to_owned())
            .spawn(move || write_until_closed(writer, queue, &told))
            .map_err(StoreError::disk(dir))?;
        Ok((Store { batches, figures }, remembered))
    }

    /// What writing has taken so far.
    pub fn figures(&self) -> &WriteFigures {
        &self.figures
    }

    /// Writes the changes; they are on disk when this returns.
    ///
    /// # Errors
    /// [`StoreError`] when they are not, and then nothing later will be.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.enqueue(changes).await?.on_disk().await
    }

    /// Queues the changes behind all that were queued before; they are on disk when [`Written::on_disk`] says so.
    ///
    /// # Errors
    /// [`StoreError`] when the writer has stopped.
    pub async fn enqueue(&self, changes: Vec<Change>) -> Result<Written, StoreError> {
        if changes.is_empty() {
            return Ok(Written(None));
        }
        let (done, written) = oneshot::channel();
        self.batches.send(Batch { changes, done }).await.map_err(|_| StoreError::Stopped)?;
        Ok(Written(Some(written)))
    }
}

/// Changes that are being written.
#[derive(Debug)]
#[must_use = "nobody may be told of changes before they are on disk"]
pub struct Written(Option<oneshot::Receiver<Result<(), StoreError>>>);

impl Written {
    /// Waits until the changes are on disk.
    ///
    /// # Errors
    /// [`StoreError`] when they are not, and then nothing later will be.
    pub async fn on_disk(self) -> Result<(), StoreError> {
        match self.0 {
            Some(written) => written.await.map_err(|_| StoreError::Stopped)?,
            None => Ok(()),
        }
    }
}

fn write_until_closed(mut writer: Writer, mut queue: mpsc::Receiver<Batch>, figures: &WriteFigures) {
    while let Some(first) = queue.blocking_recv() {
        let mut content = Vec::new();
        let mut waiting = vec![first.done];
        let mut result = writer::push_changes(&first.changes, &mut content);
        while result.is_ok() && waiting.len() < GROUP && content.len() < GROUP_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            result = writer::push_changes(&next.changes, &mut content);
            waiting.push(next.done);
        }
        let started = Instant::now();
        let result = result.and_then(|()| writer.write(&content));
        figures.seconds.observe(started.elapsed().as_secs_f64());
        figures.bytes.inc_by(content.len() as u64);
        figures.commits.inc_by(waiting.len() as u64);
        for done in waiting {
            // A caller that has gone does not need the answer.
            let _ = done.send(result.clone());
        }
        // With nothing behind it, the group gets its seal, after those who wait have been told.
        let sealed = if queue.is_empty() { writer.seal(false) } else { Ok(()) };
        if let Err(error) = result.and(sealed) {
            tracing::error!(%error, "the ledger's writer stops");
            return;
        }
    }
    if let Err(error) = writer.stop() {
        tracing::warn!(%error, "the ledger was not put away in order; the next start reads it all the same");
    }
}
