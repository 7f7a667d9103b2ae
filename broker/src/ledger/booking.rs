//! A booking, one site's part of a reservation, and the part of it that survives a crash.
//!
//! Invariant: a state carries only its own data; a hold is never written to disk.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Charge;
use crate::{
    amount::Amount,
    ids::{HostId, Network, RequestId, SiteId},
    protocol::{AttemptId, Grant},
    resources::Amounts,
    time::{Millis, Span, Time, Window},
    traffic::Talk,
    trust::{PublicKey, SignedText},
    variant::Variant,
};

/// Who was asked so often for an outcome has had minutes to tell it.
const ASKED_LONG: u32 = 4;

/// A change of the bookings on disk. Holds are never there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The booking is new or has changed.
    Put(BookingRecord),
    /// All of these are new or have changed, and are on disk together or not at all: floating seats of the first ones have made room for
    /// the last one.
    PutAll(Vec<BookingRecord>),
    /// The booking is gone, and its attempt may have been complete.
    Gone(GoneRecord),
    /// Nothing is left to remember of the booking.
    Remove(AttemptId),
    /// The booking has ended, and has cost something.
    Charge(Charge),
    /// A job of the owner's own queue is new or has changed.
    Queue(QueuedJob),
    /// Such a job has ended, or was taken out.
    Dequeue(AttemptId),
}

impl Record {
    /// The attempts that made the bookings.
    pub fn attempts(&self) -> impl Iterator<Item = &AttemptId> {
        let gone = match self {
            Record::Gone(GoneRecord { attempt, .. })
            | Record::Charge(Charge { attempt, .. })
            | Record::Queue(QueuedJob { attempt, .. })
            | Record::Dequeue(attempt)
            | Record::Remove(attempt) => Some(attempt),
            Record::Put(_) | Record::PutAll(_) => None,
        };
        self.put().iter().map(|booking| &booking.attempt).chain(gone)
    }

    /// The bookings that it writes.
    #[must_use]
    pub fn put(&self) -> &[BookingRecord] {
        match self {
            Record::Put(booking) => std::slice::from_ref(booking),
            Record::PutAll(bookings) => bookings,
            Record::Gone(_) | Record::Remove(_) | Record::Charge(_) | Record::Queue(_) | Record::Dequeue(_) => &[],
        }
    }
}

/// That a booking is gone, and that its site had confirmed it; it has the booking's place on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneRecord {
    /// The attempt that made the booking.
    pub attempt: AttemptId,
    /// When nobody asks for the attempt's outcome any more.
    pub until: Time,
    /// The booking, where it was kept to its end: it begins anew when a restart shows that its end is still to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<BookingRecord>>,
}

/// What the disk has kept of a ledger.
#[derive(Debug, Default)]
pub struct Kept {
    /// Bookings.
    pub bookings: Vec<BookingRecord>,
    /// Bookings that are gone.
    pub gone: Vec<GoneRecord>,
    /// What bookings have cost that have ended.
    pub charges: Vec<Charge>,
    /// The owner's own queue.
    pub queue: Vec<QueuedJob>,
}

impl From<Vec<BookingRecord>> for Kept {
    fn from(bookings: Vec<BookingRecord>) -> Kept {
        Kept { bookings, ..Kept::default() }
    }
}

/// A confirmed booking as it is kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookingRecord {
    /// The attempt that made it.
    pub attempt: AttemptId,
    /// Which of all that the request allows it is of.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
    /// From the first start to the last end of what was booked; seats that were lost since count.
    pub window: Window,
    /// The seats at this site.
    pub grants: Vec<Grant>,
    /// All sites of the attempt.
    pub participants: Vec<SiteId>,
    /// The user's name, for display.
    pub user: String,
    /// The user's key; none in records of the first version.
    #[serde(default)]
    pub user_key: Option<PublicKey>,
    /// On whose account it is, when that is not the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<PublicKey>,
    /// Every key of the user's credential; none in an open grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Arc<Vec<PublicKey>>>,
    /// The network that its coordinator asked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The user's signed request, which a node needs that takes the request over.
    #[serde(default)]
    pub statement: Option<Arc<SignedText>>,
    /// The site knows the outcome: committed.
    pub settled: bool,
    /// The node that coordinates the attempt in the place of its entry point, if one has taken it over.
    #[serde(default)]
    pub coordinator: Option<SiteId>,
    /// For own work that the feed reported: the feed's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fed_as: Option<Box<str>>,
    /// The site has given a seat another place than its coordinator had named: another host, or one that floats.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_substituted: bool,
    /// When it was confirmed; none for the owner's own work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Time>,
    /// Seats that were confirmed, and that the owner has taken away since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Grant>,
    /// The traffic of its request, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub talk: Option<Box<Talk>>,
    /// How much later it may yet begin: all seats of the request are here, and its user grants that.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub slack: Span,
    /// For how long it has waited for own jobs: its seats begin and end so much later than was confirmed.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub wait: Span,
}

/// A job of the owner that the site may move until it begins: like amounts on each of several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedJob {
    /// What it is booked under when it runs: its site, its name, and the number 0.
    pub attempt: AttemptId,
    /// When it came.
    pub arrival: Time,
    /// How long it runs.
    pub length: Span,
    /// When it should have ended; none when it is never late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Hosts, at least one.
    pub hosts: u32,
    /// What it takes of each.
    pub amounts: Amounts,
    /// Whether it may be stopped while it runs, and begin anew later, where a user's hold finds no room otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preempt: bool,
    /// When it first began, if it was stopped since: what it has lost by that counts on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_begun: Option<Time>,
}

/// The owner's own work on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalWork {
    /// Its name.
    pub id: RequestId,
    /// The host.
    pub host: HostId,
    /// From when to when.
    pub window: Window,
    /// The amounts that it needs.
    pub amounts: Amounts,
}

/// One site's part of a reservation, or of an attempt to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The attempt.
    pub attempt: AttemptId,
    /// Which of all that the request allows it is of.
    pub variant: Variant,
    /// From the first start to the last end of what was booked; seats that were lost since count.
    pub window: Window,
    /// The seats at this site.
    pub grants: Vec<Grant>,
    /// All sites of the attempt.
    pub participants: Vec<SiteId>,
    /// The user's name, for display.
    pub user: String,
    /// The user's key; none in records of the first version.
    pub user_key: Option<PublicKey>,
    /// On whose account it is; none when nobody's limits count.
    pub account: Option<PublicKey>,
    /// Every key of the user's credential, as it was when this was held: when one is revoked, the user is. None in an open grid.
    pub lineage: Option<Arc<Vec<PublicKey>>>,
    /// The network that its coordinator asked from.
    pub network: Option<Network>,
    /// The user's signed request.
    pub statement: Option<Arc<SignedText>>,
    /// How far the commit protocol is.
    pub state: BookingState,
    /// The node that coordinates the attempt in the place of its entry point.
    pub coordinator: Option<SiteId>,
    /// For own work that the feed reported: the feed's name for it.
    pub fed_as: Option<Box<str>>,
    /// The site has given a seat another place than its coordinator had named: another host, or one that floats.
    pub is_substituted: bool,
    /// When it was confirmed; none for a hold, and for the owner's own work.
    pub confirmed: Option<Time>,
    /// Seats that were confirmed, and that the owner has taken away since: the receipt still names them.
    pub lost: Vec<Grant>,
    /// The traffic of its request, if it has any.
    pub talk: Option<Talk>,
    /// How much later it may yet begin: all seats of the request are here, and its user grants that. It is spent when the seats are bound.
    pub slack: Span,
    /// For how long it has waited for own jobs: its seats begin and end so much later than was confirmed.
    pub wait: Span,
}

/// How far the commit protocol of a booking is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookingState {
    /// Held until the deadline, in memory only.
    Held {
        /// When it was granted.
        since: Millis,
        /// When it lapses.
        deadline: Millis,
    },
    /// On disk; the outcome of the attempt is not known yet.
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
    /// On disk, and the attempt was committed.
    Settled,
    /// Settled before a restart of the site. Its coordinator may have replaced the booking meanwhile, because the site did not
    /// answer, so it is asked.
    Returned {
        /// When to ask (again).
        ask_at: Millis,
        /// How often it was asked.
        asked: u32,
    },
}

impl BookingState {
    /// Confirmed, and no node was asked for the outcome yet.
    pub(super) fn confirmed(ask_at: Millis) -> BookingState {
        BookingState::Confirmed { ask_at, asked: 0, confirmed_by: BTreeSet::new(), complete_before: None }
    }

    pub(super) fn wakes_at(&self) -> Option<Millis> {
        match self {
            BookingState::Held { deadline, .. } => Some(*deadline),
            BookingState::Confirmed { ask_at, .. } | BookingState::Returned { ask_at, .. } => Some(*ask_at),
            BookingState::Settled => None,
        }
    }

    /// Whether the attempt is known to have been committed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, BookingState::Settled | BookingState::Returned { .. })
    }
}

impl Booking {
    /// Whether it is a hold.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, BookingState::Held { .. })
    }

    /// What its seats put on the site's uplink, in Mbit/s, for its whole window.
    #[must_use]
    pub fn load(&self) -> Amount {
        self.talk.map_or(Amount::ZERO, |talk| talk.load(self.grants.len()))
    }

    /// Whether its coordinator lets it be used and says long after the confirm that its attempt is still open: otherwise that would be
    /// the way to pay nothing.
    pub(super) fn is_left_unsettled(&self, now: Time) -> bool {
        let is_begun = self.window.start <= now;
        is_begun && matches!(self.state, BookingState::Confirmed { asked, .. } if asked >= ASKED_LONG)
    }

    /// As it is kept on disk.
    pub(super) fn to_booking_record(&self) -> BookingRecord {
        BookingRecord {
            attempt: self.attempt.clone(),
            variant: self.variant,
            window: self.window,
            grants: self.grants.clone(),
            participants: self.participants.clone(),
            user: self.user.clone(),
            user_key: self.user_key,
            account: self.account.filter(|_| self.account != self.user_key),
            lineage: self.lineage.clone(),
            network: self.network.clone(),
            statement: self.statement.clone(),
            settled: self.state.is_settled(),
            coordinator: self.coordinator.clone(),
            fed_as: self.fed_as.clone(),
            is_substituted: self.is_substituted,
            confirmed: self.confirmed,
            lost: self.lost.clone(),
            talk: self.talk.map(Box::new),
            slack: self.slack,
            wait: self.wait,
        }
    }
}
