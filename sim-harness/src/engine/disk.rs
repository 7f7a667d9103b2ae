//! The disk of a simulated node: what its ledger and its negotiations have written.
//!
//! Invariant: a record replaces the earlier one of the same attempt or request, and nothing else.

use std::collections::BTreeMap;

use broker::{
    ids::RequestId,
    ledger::{BookingRecord, Charge, GoneRecord, Kept, QueuedJob, Record},
    negotiation::RequestRecord,
    protocol::AttemptId,
};

/// The disk of one node.
#[derive(Debug, Default)]
pub struct Disk {
    /// The ledger's journal.
    pub reservations: BTreeMap<AttemptId, BookingRecord>,
    /// What it keeps of bookings that are gone.
    pub gone: BTreeMap<AttemptId, GoneRecord>,
    /// What bookings have cost that have ended.
    pub charges: BTreeMap<AttemptId, Charge>,
    /// The owner's own queue.
    pub queue: BTreeMap<AttemptId, QueuedJob>,
    /// The decisions of the node as a coordinator.
    pub requests: BTreeMap<RequestId, RequestRecord>,
    /// Batches whose requests are reserved together or not at all.
    pub tied: BTreeMap<RequestId, Vec<RequestId>>,
    /// Number of the last start.
    pub incarnation: u64,
}

/// The state machine whose output a write is: its later outputs wait for the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The ledger.
    Ledger,
    /// The negotiation of a request.
    Request(RequestId),
    /// What ties the requests of a batch together.
    Batch(RequestId),
}

/// A record on its way to the disk.
#[derive(Debug)]
pub enum Write {
    /// Of the ledger.
    Ledger(Box<Record>),
    /// Of a request.
    Request(Box<RequestRecord>),
    /// The requests of a batch, tied together.
    Tie { batch: RequestId, records: Vec<RequestRecord> },
    /// Nothing ties these any more.
    Untie { batch: RequestId, members: Vec<RequestId> },
}

impl Write {
    /// The requests whose reservations it changes.
    pub fn about(&self) -> Vec<RequestId> {
        let Write::Ledger(record) = self else { return Vec::new() };
        record.attempts().map(|attempt| attempt.request.clone()).collect()
    }

    /// The requests of a batch that it is about.
    pub fn members(&self) -> Vec<RequestId> {
        match self {
            Write::Tie { records, .. } => records.iter().map(|record| record.id.clone()).collect(),
            Write::Untie { members, .. } => members.clone(),
            Write::Ledger(_) | Write::Request(_) => Vec::new(),
        }
    }
}

impl Disk {
    /// What the ledger starts with.
    pub fn kept(&self) -> Kept {
        let (bookings, gone, charges) = (self.reservations.values(), self.gone.values(), self.charges.values());
        Kept {
            bookings: bookings.cloned().collect(),
            gone: gone.cloned().collect(),
            charges: charges.cloned().collect(),
            queue: self.queue.values().cloned().collect(),
        }
    }

    /// A write has reached the disk.
    pub fn apply(&mut self, write: Write) {
        let record = match write {
            Write::Ledger(record) => *record,
            Write::Request(record) => {
                self.requests.insert(record.id.clone(), *record);
                return;
            }
            Write::Tie { batch, records } => {
                self.tied.insert(batch, records.iter().map(|record| record.id.clone()).collect());
                self.requests.extend(records.into_iter().map(|record| (record.id.clone(), record)));
                return;
            }
            Write::Untie { batch, .. } => {
                self.tied.remove(&batch);
                return;
            }
        };
        match record {
            Record::Put(_) | Record::PutAll(_) => {
                let put = record.put().iter().map(|one| (one.attempt.clone(), one.clone()));
                self.reservations.extend(put);
            }
            Record::Gone(record) => {
                self.reservations.remove(&record.attempt);
                self.gone.insert(record.attempt.clone(), record);
            }
            Record::Charge(charge) => {
                self.charges.insert(charge.attempt.clone(), charge);
            }
            Record::Queue(job) => {
                self.queue.insert(job.attempt.clone(), job);
            }
            Record::Dequeue(attempt) => {
                self.queue.remove(&attempt);
            }
            Record::Remove(attempt) => {
                self.reservations.remove(&attempt);
                self.gone.remove(&attempt);
            }
        }
    }
}
