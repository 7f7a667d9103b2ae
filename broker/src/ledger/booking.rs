//! What stands in a ledger for an attempt, and the part of it that survives a crash.
//!
//! Invariant: a state carries only its own data; a hold is never written to disk.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    ids::SiteId,
    protocol::{AttemptId, Grant},
    time::{Millis, Window},
};

/// A change of what must survive a crash. Holds never do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The reservation stands (again, or changed).
    Put(Reservation),
    /// The reservation is gone.
    Remove(AttemptId),
}

/// A confirmed booking as it is kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The try that it came from.
    pub attempt: AttemptId,
    /// When.
    pub window: Window,
    /// What, on which hosts of this site.
    pub grants: Vec<Grant>,
    /// All sites of the try.
    pub participants: Vec<SiteId>,
    /// Who booked.
    pub user: String,
    /// The final word has come.
    pub settled: bool,
}

/// What stands in the ledger for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The try.
    pub attempt: AttemptId,
    /// When.
    pub window: Window,
    /// What, on which hosts of this site.
    pub grants: Vec<Grant>,
    /// All sites of the try.
    pub participants: Vec<SiteId>,
    /// Who booked.
    pub user: String,
    /// How firm it is.
    pub state: BookingState,
}

/// How firm a booking is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookingState {
    /// Promised until the deadline, in memory only.
    Held {
        /// When it lapses.
        deadline: Millis,
    },
    /// On disk; whether the whole attempt was successful is not known yet.
    Confirmed {
        /// When to ask the others (again).
        ask_at: Millis,
        /// How often they were asked.
        asked: u32,
        /// Other participants that are known to have confirmed.
        confirmed_by: BTreeSet<SiteId>,
    },
    /// On disk, and the attempt as a whole was successful.
    Settled,
}

impl BookingState {
    pub(super) fn wakes_at(&self) -> Option<Millis> {
        match self {
            BookingState::Held { deadline } => Some(*deadline),
            BookingState::Confirmed { ask_at, .. } => Some(*ask_at),
            BookingState::Settled => None,
        }
    }
}

impl Booking {
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, BookingState::Held { .. })
    }

    pub(super) fn to_record(&self) -> Record {
        Record::Put(Reservation {
            attempt: self.attempt.clone(),
            window: self.window,
            grants: self.grants.clone(),
            participants: self.participants.clone(),
            user: self.user.clone(),
            settled: self.state == BookingState::Settled,
        })
    }
}
