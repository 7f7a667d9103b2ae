//! What must survive a crash: the ledger's reservations, the requests with their decisions and those that wait for a batch, what
//! the owner's hook has been told, and a few facts.
//!
//! The ledger is a directory of files of our own layout ([`sector`], [`read`], [`files`]): a journal, to which every group of
//! changes is appended with one write and one sync, and a snapshot that the journal goes on from. A full journal is folded
//! into the next snapshot beside the work. A database that falls back to its last-but-one state when the last one
//! does not check out, as most do, would forget what was acknowledged; so nothing here ever falls back.
//!
//! After a power cut at any instant, with sectors of the last write there, missing or half written in any
//! combination, a start finds what was acknowledged, and perhaps the write after it. When a file has changed in any
//! other way the start is refused, and `kolo doctor` says what can be done. What this leaves open is written down in
//! [`read`]; a whole directory that was replaced by an older copy of itself is not noticed either.
//!
//! Invariant: [`Store::commit`] returns only after its changes are on disk. One writer thread groups the changes of all
//! callers, so that many small changes cost one sync. Once a write has failed nothing is accepted any more: the node must
//! stop, because it could not keep a promise.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

pub mod activation;
pub mod backup;
mod change;
pub mod data_dir;
pub mod entry;
mod error;
mod files;
mod inspect;
mod journal;
pub mod notice;
pub mod read;
pub mod restore;
mod room;
mod salvage;
pub mod sector;
mod snapshot;
mod spares;
mod start;
#[cfg(test)]
mod tests;
pub mod tied;
pub mod waiting;
mod writer;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use kolo_runtime::metrics::WriteFigures;
use tokio::sync::{mpsc, oneshot};

use self::writer::Writer;
pub use self::{
    change::{Change, Remembered, StoreSettings},
    error::StoreError,
    inspect::{Inspection, inspect},
    salvage::salvage,
    start::{lock_to_look, was_begun},
};

/// Callers that may wait for the writer. A further one waits for a place.
const QUEUE: usize = 1024;
/// Most callers whose changes share one write.
const GROUP: usize = 256;
/// Bytes after which no further caller's changes join a write.
const GROUP_BYTES: usize = 1 << 20;

/// The changes of one caller. A batch without any has the writer look at its room.
struct Batch {
    changes: Vec<Change>,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// A handle to the writer; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    batches: mpsc::Sender<Batch>,
    figures: WriteFigures,
    has_room: Arc<AtomicBool>,
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
        let has_room = Arc::new(AtomicBool::new(writer.had_room()));
        let (written, room) = (figures.clone(), has_room.clone());
        thread::Builder::new()
            .name("kolo-store".to_owned())
            .spawn(move || write_until_closed(writer, queue, (&written, &room)))
            .map_err(StoreError::disk(dir))?;
        Ok((Store { batches, figures, has_room }, remembered))
    }

    /// Whether the ledger has the room on the disk that its next generation may need, as the writer has last seen. Without it, what was
    /// promised can still be written down, but nothing new should be promised.
    pub fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    /// Has the writer look at its room when it comes to it, also where nothing is written.
    pub fn look_for_room(&self) {
        // A full queue is one of writes, and the writer looks after each.
        let _ = self.batches.try_send(Batch { changes: Vec::new(), done: oneshot::channel().0 });
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
        Ok(Written(Some((written, self.batches.clone()))))
    }
}

/// Changes that are being written.
#[derive(Debug)]
#[must_use = "changes are acknowledged only when they are on disk"]
pub struct Written(Option<Answer>);

/// What the writer answers, and its queue, which is closed when it has stopped.
type Answer = (oneshot::Receiver<Result<(), StoreError>>, mpsc::Sender<Batch>);

impl Written {
    /// Waits until the changes are on disk.
    ///
    /// # Errors
    /// [`StoreError`] when they are not, and then nothing later will be.
    pub async fn on_disk(self) -> Result<(), StoreError> {
        let Some((mut written, batches)) = self.0 else { return Ok(()) };
        tokio::select! {
            biased;
            result = &mut written => result.map_err(|_| StoreError::Stopped)?,
            // What was sent while the writer stopped may stay in the queue, where nobody drops it. The writer answers before it stops.
            () = batches.closed() => written.try_recv().map_err(|_| StoreError::Stopped)?,
        }
    }
}

/// A group, and who waits for it.
struct Group {
    content: Result<Vec<u8>, StoreError>,
    waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl Group {
    /// What waits in the queue behind `first`, as far as it goes into one write.
    fn of(first: Batch, queue: &mut mpsc::Receiver<Batch>) -> Group {
        let (mut content, mut waiting) = (Vec::new(), vec![first.done]);
        let mut result = writer::push_changes(&first.changes, &mut content);
        while result.is_ok() && waiting.len() < GROUP && content.len() < GROUP_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            result = writer::push_changes(&next.changes, &mut content);
            waiting.push(next.done);
        }
        Group { content: result.map(|()| content), waiting }
    }

    fn write(&self, writer: &mut Writer, figures: &WriteFigures) -> Result<(), StoreError> {
        let content = self.content.as_ref().map_err(Clone::clone)?;
        if content.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let result = writer.write(content);
        figures.seconds.observe(started.elapsed().as_secs_f64());
        figures.bytes.inc_by(content.len() as u64);
        figures.commits.inc_by(self.waiting.len() as u64);
        result
    }
}

fn write_until_closed(
    mut writer: Writer,
    mut queue: mpsc::Receiver<Batch>,
    (figures, has_room): (&WriteFigures, &AtomicBool),
) {
    while let Some(first) = queue.blocking_recv() {
        let group = Group::of(first, &mut queue);
        let result = group.write(&mut writer, figures);
        for done in group.waiting {
            // A caller that has gone does not need the answer.
            let _ = done.send(result.clone());
        }
        // With nothing behind it, the group gets its seal, after the callers have their answers.
        let sealed = if queue.is_empty() { writer.seal(false) } else { Ok(()) };
        let room = result.and(sealed).and_then(|()| writer.has_room());
        match room {
            Ok(room) => has_room.store(room, Ordering::Relaxed),
            Err(error) => {
                tracing::error!(%error, "the ledger's writer stops");
                return;
            }
        }
    }
    if let Err(error) = writer.stop() {
        tracing::warn!(%error, "the ledger was not put away in order; the next start reads it all the same");
    }
}
