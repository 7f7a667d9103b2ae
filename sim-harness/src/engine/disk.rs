//! The disk of a simulated node: what its ledger and its negotiations have written.
//!
//! Invariant: a record replaces the earlier one of the same attempt or request, and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// What the last records of the ledger have replaced, the oldest first; of those alone that no record of a negotiation is behind.
    tail: VecDeque<Vec<Before>>,
    /// Of how many records that is kept.
    tail_max: usize,
}

/// What the disk had of an attempt.
#[derive(Debug)]
struct Before {
    attempt: AttemptId,
    reservation: Option<BookingRecord>,
    gone: Option<GoneRecord>,
    charge: Option<Charge>,
    job: Option<QueuedJob>,
}

/// Makes the value of an attempt what it was.
fn put_back<T>(map: &mut BTreeMap<AttemptId, T>, attempt: &AttemptId, before: Option<T>) {
    match before {
        Some(before) => map.insert(attempt.clone(), before),
        None => map.remove(attempt),
    };
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

    /// Keeps what the next records replace, so that the last ones can be lost: this many.
    pub fn keep_tail(&mut self, records: usize) {
        self.tail_max = records;
    }

    /// Loses up to this many of the last records of the ledger, none of which a record of a negotiation is behind. The attempts that they
    /// were about.
    pub fn lose_tail(&mut self, records: usize) -> BTreeSet<AttemptId> {
        let mut lost = BTreeSet::new();
        for _ in 0..records {
            for Before { attempt, reservation, gone, charge, job } in self.tail.pop_back().unwrap_or_default() {
                put_back(&mut self.reservations, &attempt, reservation);
                put_back(&mut self.gone, &attempt, gone);
                put_back(&mut self.charges, &attempt, charge);
                put_back(&mut self.queue, &attempt, job);
                lost.insert(attempt);
            }
        }
        lost
    }

    /// Keeps what a write is about to replace.
    fn keep_before(&mut self, write: &Write) {
        let Write::Ledger(record) = write else { return self.tail.clear() };
        let before = |attempt: &AttemptId| Before {
            attempt: attempt.clone(),
            reservation: self.reservations.get(attempt).cloned(),
            gone: self.gone.get(attempt).cloned(),
            charge: self.charges.get(attempt).cloned(),
            job: self.queue.get(attempt).cloned(),
        };
        let before = record.attempts().map(before).collect();
        self.tail.push_back(before);
        if self.tail.len() > self.tail_max {
            self.tail.pop_front();
        }
    }

    /// A write has reached the disk.
    pub fn apply(&mut self, write: Write) {
        if self.tail_max > 0 {
            self.keep_before(&write);
        }
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

#[cfg(test)]
mod tests {
    use broker::{ids::SiteId, time::Time};

    use super::*;

    fn attempt(attempt: u32) -> AttemptId {
        let (entry_point, request) = (SiteId::new("s0").unwrap(), RequestId::new("r0").unwrap());
        AttemptId { entry_point, request, attempt }
    }

    fn gone(number: u32, until: i64) -> Write {
        Write::Ledger(Box::new(Record::Gone(GoneRecord { attempt: attempt(number), until: Time(until), ended: None })))
    }

    fn remove(number: u32) -> Write {
        Write::Ledger(Box::new(Record::Remove(attempt(number))))
    }

    /// The attempts that are gone, with the times that are kept of them.
    fn kept(disk: &Disk) -> Vec<(u32, i64)> {
        disk.gone.values().map(|record| (record.attempt.attempt, record.until.0)).collect()
    }

    #[test]
    fn a_disk_that_has_lost_its_last_records_is_as_it_was_before_them() {
        let writes = || [gone(1, 10), gone(2, 20), gone(1, 11), remove(2), gone(3, 30)];
        for lost in 0..=writes().len() {
            let (mut disk, mut expected) = (Disk::default(), Disk::default());
            disk.keep_tail(writes().len());
            writes().into_iter().for_each(|write| disk.apply(write));
            let left = writes().len() - lost;
            writes().into_iter().take(left).for_each(|write| expected.apply(write));
            let about: BTreeSet<AttemptId> = writes()[left..]
                .iter()
                .flat_map(|write| match write {
                    Write::Ledger(record) => record.attempts().cloned().collect(),
                    _ => Vec::new(),
                })
                .collect();
            assert_eq!(disk.lose_tail(lost), about);
            assert_eq!(kept(&disk), kept(&expected));
        }
    }

    #[test]
    fn no_more_is_lost_than_is_kept_nor_what_is_in_front_of_a_record_of_a_negotiation() {
        let mut disk = Disk::default();
        disk.keep_tail(2);
        (1..=4).for_each(|number| disk.apply(gone(number, 10)));
        assert_eq!(disk.lose_tail(9).len(), 2);
        assert_eq!(kept(&disk), [(1, 10), (2, 10)]);
        disk.apply(gone(5, 10));
        disk.apply(Write::Untie { batch: RequestId::new("r0").unwrap(), members: Vec::new() });
        assert_eq!(disk.lose_tail(9), BTreeSet::new());
        let mut other = Disk::default();
        other.apply(gone(1, 10));
        assert_eq!(other.lose_tail(1), BTreeSet::new(), "by default nothing can be lost");
    }
}
