//! What a group of changes holds, and the state that groups add up to.
//!
//! Values are JSON, so that a later version can add fields with a default and still read what is on disk; keys are text
//! made of ids, which hold no control characters.
//!
//! Invariant: what one entry does depends on its own key and value only; applying a group a second time changes nothing.

use std::collections::BTreeMap;

use broker::{
    ids::{RequestId, SiteId},
    ledger::{BookingRecord, Charge, GoneRecord, QueuedJob, Record},
    negotiation::{Decision, RequestRecord},
    protocol::AttemptId,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{change::Change, change::Remembered, error::StoreError, sector};
use crate::{activation::ActivationRecord, notice::NoticeRecord, tied::TiedRecord, waiting::WaitingRecord};

/// Largest value written and read.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const CLOSE: u8 = 3;
const END: u8 = 4;

/// A kind of things that are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// This site's bookings; in the place of one that is gone, that it is.
    Reservations = 1,
    /// The requests that this node coordinates.
    Requests = 2,
    /// Single values: the start's number, the site, addresses of peers.
    Facts = 3,
    /// What the owner's hook knows of bookings.
    Activations = 4,
    /// What bookings of this site have cost that have ended.
    Charges = 5,
    /// Requests that wait for a batch, or have waited.
    Waiting = 6,
    /// Which requests are reserved together or not at all.
    Tied = 7,
    /// The owner's own queue.
    Queue = 8,
    /// What people were told of requests.
    Notices = 9,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 9] = [
        Table::Reservations,
        Table::Requests,
        Table::Facts,
        Table::Activations,
        Table::Charges,
        Table::Waiting,
        Table::Tied,
        Table::Queue,
        Table::Notices,
    ];

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Table::Reservations => "reservations",
            Table::Requests => "requests",
            Table::Facts => "facts",
            Table::Activations => "activations",
            Table::Charges => "charges",
            Table::Waiting => "waiting",
            Table::Tied => "tied",
            Table::Queue => "queue",
            Table::Notices => "notices",
        }
    }
}

/// Names one thing that is remembered.
pub type Key = (Table, Vec<u8>);

/// All that is remembered, as on disk.
pub type State = BTreeMap<Key, Vec<u8>>;

/// One step of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Remember this value.
    Put(Key, Vec<u8>),
    /// Forget this key.
    Remove(Key),
    /// The journal goes on in the next generation.
    Close,
    /// The snapshot ends here and holds so many values.
    End(u64),
}

fn push_bytes(bytes: &[u8], group: &mut Vec<u8>) -> Result<(), StoreError> {
    let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= VALUE_BYTES_MAX);
    let length = length.ok_or(StoreError::TooLarge { bytes: bytes.len() })?;
    group.extend_from_slice(&length.to_le_bytes());
    group.extend_from_slice(bytes);
    Ok(())
}

/// Appends an entry to a group's bytes.
pub fn push_entry(entry: &Entry, group: &mut Vec<u8>) -> Result<(), StoreError> {
    match entry {
        Entry::Put((table, key), value) => {
            group.extend_from_slice(&[PUT, *table as u8]);
            push_bytes(key, group)?;
            push_bytes(value, group)
        }
        Entry::Remove((table, key)) => {
            group.extend_from_slice(&[REMOVE, *table as u8]);
            push_bytes(key, group)
        }
        Entry::Close => {
            group.push(CLOSE);
            Ok(())
        }
        Entry::End(count) => {
            group.push(END);
            group.extend_from_slice(&count.to_le_bytes());
            Ok(())
        }
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(u32::from_le_bytes(self.take()?)).ok()?;
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn key(&mut self) -> Option<Key> {
        let table = self.take::<1>().and_then(|[code]| Table::ALL.into_iter().find(|table| *table as u8 == code))?;
        Some((table, self.bytes()?.to_vec()))
    }

    fn entry(&mut self) -> Option<Entry> {
        match self.take::<1>()?[0] {
            PUT => Some(Entry::Put(self.key()?, self.bytes()?.to_vec())),
            REMOVE => Some(Entry::Remove(self.key()?)),
            CLOSE => Some(Entry::Close),
            END => Some(Entry::End(u64::from_le_bytes(self.take()?))),
            _ => None,
        }
    }
}

/// The entries of a group; none when its bytes are not those of any group.
pub fn entries(group: &[u8]) -> Option<Vec<Entry>> {
    let mut cursor = Cursor(group);
    let mut entries = Vec::new();
    while !cursor.0.is_empty() {
        entries.push(cursor.entry()?);
    }
    Some(entries)
}

/// Sectors that the values in a group's bytes take in a snapshot, where each is a group of its own.
pub fn sectors_in_snapshot(group: &[u8]) -> u64 {
    let mut cursor = Cursor(group);
    let mut sectors = 0;
    while !cursor.0.is_empty() {
        let before = cursor.0.len();
        match cursor.entry() {
            Some(Entry::Put(..)) => sectors += sector::sectors_of(before - cursor.0.len()),
            Some(_) => {}
            None => return sectors,
        }
    }
    sectors
}

fn json(table: Table, value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| undecodable(table, error))
}

fn from_json<T: DeserializeOwned>(table: Table, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| undecodable(table, error))
}

fn undecodable(table: Table, error: impl std::fmt::Display) -> StoreError {
    StoreError::Undecodable { table: table.name(), detail: error.to_string() }
}

fn attempt_key(table: Table, attempt: &AttemptId) -> Key {
    let text = format!("{}\n{}\n{}", attempt.request, attempt.attempt, attempt.entry_point);
    (table, text.into_bytes())
}

fn request_key(table: Table, id: &RequestId) -> Key {
    (table, id.as_str().as_bytes().to_vec())
}

/// The key of a fact.
fn fact_key(name: &str) -> Key {
    (Table::Facts, name.as_bytes().to_vec())
}

const KNOWN_PEERS: &str = "known_peers";
const INCARNATION: &str = "incarnation";
const SITE: &str = "site";

/// The entry that remembers a reservation.
pub fn put_reservation(reservation: &BookingRecord) -> Result<Entry, StoreError> {
    let key = attempt_key(Table::Reservations, &reservation.attempt);
    Ok(Entry::Put(key, json(Table::Reservations, reservation)?))
}

/// The entries that a change comes down to.
pub fn of_change(change: &Change) -> Result<Vec<Entry>, StoreError> {
    let one = match change {
        Change::Ledger(record @ (Record::Put(_) | Record::PutAll(_))) => {
            return record.put().iter().map(put_reservation).collect();
        }
        Change::Ledger(Record::Gone(record)) => {
            Entry::Put(attempt_key(Table::Reservations, &record.attempt), json(Table::Reservations, record)?)
        }
        Change::Ledger(Record::Charge(charge)) => {
            Entry::Put(attempt_key(Table::Charges, &charge.attempt), json(Table::Charges, charge)?)
        }
        Change::Ledger(Record::Remove(attempt)) => Entry::Remove(attempt_key(Table::Reservations, attempt)),
        Change::Ledger(Record::Queue(job)) => {
            Entry::Put(attempt_key(Table::Queue, &job.attempt), json(Table::Queue, job)?)
        }
        Change::Ledger(Record::Dequeue(attempt)) => Entry::Remove(attempt_key(Table::Queue, attempt)),
        Change::Request(record) => Entry::Put(request_key(Table::Requests, &record.id), json(Table::Requests, record)?),
        Change::ForgetRequest(id) => Entry::Remove(request_key(Table::Requests, id)),
        Change::Notice(record) => {
            Entry::Put(request_key(Table::Notices, &record.request), json(Table::Notices, record)?)
        }
        Change::ForgetNotice(id) => Entry::Remove(request_key(Table::Notices, id)),
        Change::Waiting(record) => Entry::Put(request_key(Table::Waiting, &record.id), json(Table::Waiting, record)?),
        Change::ForgetWaiting(id) => Entry::Remove(request_key(Table::Waiting, id)),
        Change::Tied(record) => Entry::Put(request_key(Table::Tied, &record.id), json(Table::Tied, record)?),
        Change::Untie(id) => Entry::Remove(request_key(Table::Tied, id)),
        Change::Activation(record) => {
            Entry::Put(attempt_key(Table::Activations, &record.attempt), json(Table::Activations, record)?)
        }
        Change::ForgetActivation(attempt) => Entry::Remove(attempt_key(Table::Activations, attempt)),
        Change::KnownPeers(peers) => Entry::Put(fact_key(KNOWN_PEERS), json(Table::Facts, peers)?),
    };
    Ok(vec![one])
}

/// The number of the last start; 0 before the first.
pub fn incarnation(state: &State) -> Result<u64, StoreError> {
    state.get(&fact_key(INCARNATION)).map_or(Ok(0), |bytes| from_json(Table::Facts, bytes))
}

/// Remembers the number of this start.
pub fn set_incarnation(state: &mut State, incarnation: u64) -> Result<(), StoreError> {
    state.insert(fact_key(INCARNATION), json(Table::Facts, &incarnation)?);
    Ok(())
}

/// Whose ledger it is; none in one of a version that did not write it down.
pub fn site(state: &State) -> Result<Option<SiteId>, StoreError> {
    state.get(&fact_key(SITE)).map(|bytes| from_json(Table::Facts, bytes)).transpose()
}

/// Remembers whose ledger it is.
pub fn set_site(state: &mut State, site: &SiteId) -> Result<(), StoreError> {
    state.insert(fact_key(SITE), json(Table::Facts, site)?);
    Ok(())
}

/// What the state means.
///
/// # Errors
/// [`StoreError::Undecodable`] when a value is not of its table or not under its own key.
pub fn remembered(state: &State) -> Result<Remembered, StoreError> {
    let mut remembered = Remembered { incarnation: incarnation(state)?, ..Remembered::default() };
    for (key, value) in state {
        let expected = match key.0 {
            // Only what is gone has the field `until`.
            Table::Reservations if let Ok(record) = serde_json::from_slice::<GoneRecord>(value) => {
                let expected = attempt_key(key.0, &record.attempt);
                remembered.gone.push(record);
                expected
            }
            Table::Reservations => {
                let reservation: BookingRecord = from_json(key.0, value)?;
                let expected = attempt_key(key.0, &reservation.attempt);
                remembered.reservations.push(reservation);
                expected
            }
            Table::Requests => {
                let record: RequestRecord = from_json(key.0, value)?;
                let expected = request_key(key.0, &record.id);
                remembered.requests.push(record);
                expected
            }
            Table::Activations => {
                let record: ActivationRecord = from_json(key.0, value)?;
                let expected = attempt_key(key.0, &record.attempt);
                remembered.activations.push(record);
                expected
            }
            Table::Charges => {
                let charge: Charge = from_json(key.0, value)?;
                let expected = attempt_key(key.0, &charge.attempt);
                remembered.charges.push(charge);
                expected
            }
            Table::Waiting => {
                let record: WaitingRecord = from_json(key.0, value)?;
                let expected = request_key(key.0, &record.id);
                remembered.waiting.push(record);
                expected
            }
            Table::Tied => {
                let record: TiedRecord = from_json(key.0, value)?;
                let expected = request_key(key.0, &record.id);
                remembered.tied.push(record);
                expected
            }
            Table::Queue => {
                let job: QueuedJob = from_json(key.0, value)?;
                let expected = attempt_key(key.0, &job.attempt);
                remembered.queue.push(job);
                expected
            }
            Table::Notices => {
                let record: NoticeRecord = from_json(key.0, value)?;
                let expected = request_key(key.0, &record.request);
                remembered.notices.push(record);
                expected
            }
            Table::Facts => continue,
        };
        if expected != *key {
            return Err(undecodable(key.0, "a value is under the key of another"));
        }
    }
    if let Some(bytes) = state.get(&fact_key(KNOWN_PEERS)) {
        remembered.known_peers = from_json(Table::Facts, bytes)?;
    }
    Ok(remembered)
}

/// Whether a value is a request that nothing can happen to any more, and that could not have run later than `before_ms`
/// (Unix milliseconds), or what a booking has cost that ended before and
/// counts against no budget any more.
///
/// What does not decode is kept, so that the next start complains about it. Reservations are never dropped by age: the
/// ledger removes its own when they end.
pub fn is_old_history(key: &Key, value: &[u8], before_ms: u64) -> bool {
    if key.0 == Table::Charges {
        let until = serde_json::from_slice::<Charge>(value).map(|charge| charge.ended.max(charge.counts_until).0);
        return until.is_ok_and(|until| u64::try_from(until).unwrap_or(0).saturating_mul(1000) < before_ms);
    }
    if key.0 != Table::Requests {
        return false;
    }
    let Ok(record) = serde_json::from_slice::<RequestRecord>(value) else { return false };
    let is_settled =
        record.owed.is_empty() && matches!(record.decision, Decision::Reserved { .. } | Decision::Closed(_));
    let decided_ms = record.submitted_ms.saturating_add(record.elapsed_ms);
    let last_end = match &record.decision {
        Decision::Reserved { plan, .. } => plan.end(),
        _ => record.latest + record.request.longest(),
    };
    let last_end_ms = u64::try_from(last_end.0).unwrap_or(0).saturating_mul(1000);
    is_settled && decided_ms.max(last_end_ms) < before_ms
}
