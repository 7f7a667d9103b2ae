//! What must survive a crash: the ledger's reservations, the requests with their decisions, and a few facts.
//!
//! Invariant: [`Store::commit`] returns only after its changes are on disk. One writer thread groups the changes of all
//! callers into one transaction, so that many small changes cost one sync. Once a write has failed nothing is accepted
//! any more: the node must stop, because it could not keep a promise.

use std::{path::Path, thread};

use broker::{
    ids::RequestId,
    ledger::{Record, Reservation},
    negotiation::RequestRecord,
    protocol::AttemptId,
};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{mpsc, oneshot};

const RESERVATIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("reservations");
const REQUESTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("requests");
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");

/// Layout of the tables; a store of another layout is refused.
const LAYOUT: u32 = 1;
/// Callers that may wait for the writer. A further one waits for a place.
const QUEUE: usize = 1024;
/// Most callers whose changes share one transaction.
const GROUP: usize = 256;
/// Largest value read back.
const VALUE_BYTES_MAX: usize = 16 << 20;

/// A store that cannot be opened, read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{0} is in use: another node runs with this data directory; stop it or use another --data-dir")]
    InUse(String),
    /// Made by another version.
    #[error("the ledger has layout {0}, this program reads layout {LAYOUT}; use the program that wrote it")]
    Layout(u32),
    /// An entry does not decode.
    #[error("the ledger is damaged: an entry of table {table} does not decode: {detail}")]
    Damaged {
        /// The table.
        table: &'static str,
        /// The decoder's words.
        detail: String,
    },
    /// The database or the disk failed.
    #[error("the ledger cannot be read or written: {0}")]
    Database(String),
}

fn database(error: impl std::fmt::Display) -> StoreError {
    StoreError::Database(error.to_string())
}

/// One change.
#[derive(Debug)]
pub enum Change {
    /// Of the ledger.
    Ledger(Record),
    /// A request was accepted, or went on.
    Request(Box<RequestRecord>),
    /// A request is forgotten.
    ForgetRequest(RequestId),
    /// Addresses of peers to try after a restart.
    KnownPeers(Vec<String>),
}

/// What the disk remembers.
#[derive(Debug, Default)]
pub struct Remembered {
    /// The ledger.
    pub reservations: Vec<Reservation>,
    /// Requests that this node carries.
    pub requests: Vec<RequestRecord>,
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
}

impl Store {
    /// Opens or makes the store. `unix_ms` is the present, for the number of this start.
    ///
    /// # Errors
    /// [`StoreError`] when it is in use, damaged, of another layout, or the disk fails.
    pub fn open(path: &Path, unix_ms: u64) -> Result<(Store, Remembered), StoreError> {
        let database = Database::create(path).map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(path.display().to_string()),
            other => StoreError::Database(format!("{}: {other}", path.display())),
        })?;
        let remembered = remember(&database, unix_ms)?;
        let (batches, queue) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("kolo-store".to_owned())
            .spawn(move || write_until_closed(&database, queue))
            .map_err(|error| StoreError::Database(error.to_string()))?;
        Ok((Store { batches }, remembered))
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
        self.batches.send(Batch { changes, done }).await.map_err(|_| writer_has_stopped())?;
        Ok(Written(Some(written)))
    }
}

fn writer_has_stopped() -> StoreError {
    StoreError::Database("the writer has stopped".to_owned())
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
            Some(written) => written.await.map_err(|_| writer_has_stopped())?,
            None => Ok(()),
        }
    }
}

fn write_until_closed(database: &Database, mut queue: mpsc::Receiver<Batch>) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP {
            let Ok(next) = queue.try_recv() else { break };
            group.push(next);
        }
        let result = write(database, group.iter().flat_map(|batch| &batch.changes));
        for batch in group {
            // A caller that has gone does not need the answer.
            let _ = batch.done.send(result.clone());
        }
        if result.is_err() {
            return;
        }
    }
}

fn write<'a>(database: &Database, changes: impl Iterator<Item = &'a Change>) -> Result<(), StoreError> {
    let transaction = database.begin_write().map_err(self::database)?;
    {
        let mut reservations = transaction.open_table(RESERVATIONS).map_err(self::database)?;
        let mut requests = transaction.open_table(REQUESTS).map_err(self::database)?;
        let mut facts = transaction.open_table(FACTS).map_err(self::database)?;
        for change in changes {
            match change {
                Change::Ledger(Record::Put(reservation)) => {
                    let key = encode("reservations", &reservation.attempt)?;
                    let value = encode("reservations", reservation)?;
                    reservations.insert(key.as_slice(), value.as_slice()).map_err(self::database)?;
                }
                Change::Ledger(Record::Remove(attempt)) => {
                    let key = encode("reservations", attempt)?;
                    reservations.remove(key.as_slice()).map_err(self::database)?;
                }
                Change::Request(record) => {
                    let value = to_json("requests", record)?;
                    requests.insert(record.id.as_str(), value.as_slice()).map_err(self::database)?;
                }
                Change::ForgetRequest(id) => {
                    requests.remove(id.as_str()).map_err(self::database)?;
                }
                Change::KnownPeers(peers) => {
                    facts.insert("known_peers", to_json("facts", peers)?.as_slice()).map_err(self::database)?;
                }
            }
        }
    }
    transaction.commit().map_err(self::database)
}

fn remember(database: &Database, unix_ms: u64) -> Result<Remembered, StoreError> {
    let transaction = database.begin_write().map_err(self::database)?;
    let mut remembered = Remembered::default();
    {
        let reservations = transaction.open_table(RESERVATIONS).map_err(self::database)?;
        for entry in reservations.iter().map_err(self::database)? {
            let (key, value) = entry.map_err(self::database)?;
            let attempt: AttemptId = decode("reservations", key.value())?;
            let reservation: Reservation = decode("reservations", value.value())?;
            if attempt != reservation.attempt {
                let detail = "key and value name different attempts".to_owned();
                return Err(StoreError::Damaged { table: "reservations", detail });
            }
            remembered.reservations.push(reservation);
        }
        let requests = transaction.open_table(REQUESTS).map_err(self::database)?;
        for entry in requests.iter().map_err(self::database)? {
            let (_, value) = entry.map_err(self::database)?;
            remembered.requests.push(from_json("requests", value.value())?);
        }
        let mut facts = transaction.open_table(FACTS).map_err(self::database)?;
        let layout: Option<u32> = fact(&facts, "layout")?;
        if let Some(other) = layout.filter(|layout| *layout != LAYOUT) {
            return Err(StoreError::Layout(other));
        }
        remembered.known_peers = fact(&facts, "known_peers")?.unwrap_or_default();
        let last: u64 = fact(&facts, "incarnation")?.unwrap_or(0);
        // Also larger when the clock was set back between two starts.
        remembered.incarnation = unix_ms.max(last.saturating_add(1));
        facts.insert("layout", to_json("facts", &LAYOUT)?.as_slice()).map_err(self::database)?;
        facts.insert("incarnation", to_json("facts", &remembered.incarnation)?.as_slice()).map_err(self::database)?;
    }
    transaction.commit().map_err(self::database)?;
    // A read transaction sees what the next start will see.
    database.begin_read().map_err(self::database)?;
    Ok(remembered)
}

fn fact<T: DeserializeOwned>(
    facts: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<T>, StoreError> {
    match facts.get(name).map_err(database)? {
        Some(value) => from_json("facts", value.value()).map(Some),
        None => Ok(None),
    }
}

fn limits() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<VALUE_BYTES_MAX>()
}

fn damaged(table: &'static str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { table, detail: error.to_string() }
}

fn encode<T: Serialize>(table: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
    bincode::serde::encode_to_vec(value, limits()).map_err(|error| damaged(table, error))
}

fn decode<T: DeserializeOwned>(table: &'static str, bytes: &[u8]) -> Result<T, StoreError> {
    match bincode::serde::decode_from_slice(bytes, limits()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(damaged(table, "bytes are left over")),
        Err(error) => Err(damaged(table, error)),
    }
}

fn to_json<T: Serialize>(table: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| damaged(table, error))
}

fn from_json<T: DeserializeOwned>(table: &'static str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(table, error))
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{HostId, SiteId},
        protocol::Grant,
        resources::Amounts,
        time::{Time, Window},
    };

    use super::*;

    fn reservation(attempt: u32) -> Reservation {
        let entry_point = SiteId::new("e").unwrap();
        Reservation {
            attempt: AttemptId { entry_point: entry_point.clone(), request: RequestId::new("r").unwrap(), attempt },
            window: Window { start: Time(10), end: Time(20) },
            grants: vec![Grant { host: HostId::new("h").unwrap(), amounts: Amounts::new() }],
            participants: vec![entry_point],
            user: "ada".to_owned(),
            settled: false,
        }
    }

    #[tokio::test]
    async fn what_was_committed_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.redb");
        let (store, first) = Store::open(&path, 5).unwrap();
        assert!(first.reservations.is_empty());
        let puts = [1, 2].map(|attempt| Change::Ledger(Record::Put(reservation(attempt))));
        store.commit(Vec::from(puts)).await.unwrap();
        store.commit(vec![Change::Ledger(Record::Remove(reservation(1).attempt))]).await.unwrap();
        store.commit(vec![Change::KnownPeers(vec!["/ip4/127.0.0.1".to_owned()])]).await.unwrap();
        assert!(matches!(Store::open(&path, 5), Err(StoreError::InUse(_))));
        drop(store);
        let (_store, second) = reopen(&path, 3);
        assert_eq!(second.reservations, vec![reservation(2)]);
        assert_eq!(second.known_peers, vec!["/ip4/127.0.0.1".to_owned()]);
        assert!(second.incarnation > first.incarnation, "also when the clock went back");
    }

    /// The writer thread closes the file a moment after its last handle is gone.
    fn reopen(path: &Path, unix_ms: u64) -> (Store, Remembered) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            match Store::open(path, unix_ms) {
                Ok(opened) => return opened,
                Err(StoreError::InUse(_)) if std::time::Instant::now() < deadline => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_file_that_is_no_ledger_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.redb");
        std::fs::write(&path, "hello").unwrap();
        assert!(matches!(Store::open(&path, 1), Err(StoreError::Database(_))));
    }
}
