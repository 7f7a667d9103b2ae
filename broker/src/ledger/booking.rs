//! What a ledger has of an attempt, and the part of it that survives a crash.
//!
//! Invariant: a state carries only its own data; a hold is never written to disk.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{HostId, RequestId, SiteId},
    protocol::{AttemptId, Grant},
    resources::Amounts,
    time::{Millis, Window},
    trust::{PublicKey, SignedText},
};

/// A change of what must survive a crash. Holds never do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The reservation is there, perhaps changed.
    Put(BookingRecord),
    /// The reservation is gone.
    Remove(AttemptId),
}

/// A confirmed booking as it is kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookingRecord {
    /// The attempt that it came from.
    pub attempt: AttemptId,
    /// When.
    pub window: Window,
    /// What, on which hosts of this site.
    pub grants: Vec<Grant>,
    /// All sites of the attempt.
    pub participants: Vec<SiteId>,
    /// Who booked, for people.
    pub user: String,
    /// Who booked; none in what the first version has written, which knew no keys.
    #[serde(default)]
    pub user_key: Option<PublicKey>,
    /// The user's signed request: shows what was asked, should a part of it have to be replaced.
    #[serde(default)]
    pub statement: Option<Arc<SignedText>>,
    /// The outcome has come.
    pub settled: bool,
    /// The node that coordinates the attempt in the place of its entry point, if one has taken it over.
    #[serde(default)]
    pub coordinator: Option<SiteId>,
}

/// The owner's own work on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalWork {
    /// Its name.
    pub id: RequestId,
    /// The host.
    pub host: HostId,
    /// When.
    pub window: Window,
    /// How much of the host.
    pub amounts: Amounts,
}

/// One site's part of a reservation, or of an attempt to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The attempt.
    pub attempt: AttemptId,
    /// When.
    pub window: Window,
    /// What, on which hosts of this site.
    pub grants: Vec<Grant>,
    /// All sites of the attempt.
    pub participants: Vec<SiteId>,
    /// Who booked, for people.
    pub user: String,
    /// Who booked; none in what the first version has written.
    pub user_key: Option<PublicKey>,
    /// The user's signed request.
    pub statement: Option<Arc<SignedText>>,
    /// How firm it is.
    pub state: BookingState,
    /// The node that coordinates the attempt in the place of its entry point.
    pub coordinator: Option<SiteId>,
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
        /// Other participants that are known to have confirmed; where `complete_before` is set, still after that round.
        confirmed_by: BTreeSet<SiteId>,
        /// The round of questions by whose end every other participant had confirmed at some time.
        complete_before: Option<u32>,
    },
    /// On disk, and the attempt as a whole was successful.
    Settled,
    /// As [`BookingState::Settled`], before a restart of the site: who acts for the attempt may have given the booking up
    /// meanwhile, because the site did not answer, so it is asked.
    Returned {
        /// When to ask (again).
        ask_at: Millis,
        /// How often it was asked.
        asked: u32,
    },
}

impl BookingState {
    /// Confirmed, and nobody was asked yet.
    pub(super) fn confirmed(ask_at: Millis) -> BookingState {
        BookingState::Confirmed { ask_at, asked: 0, confirmed_by: BTreeSet::new(), complete_before: None }
    }

    pub(super) fn wakes_at(&self) -> Option<Millis> {
        match self {
            BookingState::Held { deadline } => Some(*deadline),
            BookingState::Confirmed { ask_at, .. } | BookingState::Returned { ask_at, .. } => Some(*ask_at),
            BookingState::Settled => None,
        }
    }

    /// Whether the attempt as a whole is known to have been successful.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, BookingState::Settled | BookingState::Returned { .. })
    }
}

impl Booking {
    /// Whether it is only promised until a deadline, in memory.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, BookingState::Held { .. })
    }

    pub(super) fn to_record(&self) -> Record {
        Record::Put(BookingRecord {
            attempt: self.attempt.clone(),
            window: self.window,
            grants: self.grants.clone(),
            participants: self.participants.clone(),
            user: self.user.clone(),
            user_key: self.user_key,
            statement: self.statement.clone(),
            settled: self.state.is_settled(),
            coordinator: self.coordinator.clone(),
        })
    }
}
