//! What the store is asked to remember, and what it has remembered.

use std::time::Duration;

use broker::{
    ids::{RequestId, SiteId},
    ledger::{BookingRecord, Charge, GoneRecord, QueuedJob, Record},
    negotiation::RequestRecord,
    protocol::AttemptId,
};

use super::{activation::ActivationRecord, notice::NoticeRecord, tied::TiedRecord, waiting::WaitingRecord};

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
    pub(super) fn history_before_ms(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_sub(u64::try_from(self.history_keep.as_millis()).unwrap_or(u64::MAX))
    }
}

/// One change.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most changes are of the ledger, for which a box would be one more allocation"
)]
pub enum Change {
    /// Of the ledger.
    Ledger(Record),
    /// A request was accepted, or went on.
    Request(Box<RequestRecord>),
    /// A request is forgotten.
    ForgetRequest(RequestId),
    /// The owner's hook is about to run for a booking, or has.
    Activation(Box<ActivationRecord>),
    /// What the owner's hook knows of a booking is forgotten.
    ForgetActivation(AttemptId),
    /// People are about to be told of a request, or were.
    Notice(Box<NoticeRecord>),
    /// What people were told of a request is forgotten.
    ForgetNotice(RequestId),
    /// A request waits for a batch, or has waited.
    Waiting(Box<WaitingRecord>),
    /// Such a request is forgotten.
    ForgetWaiting(RequestId),
    /// Requests are reserved together or not at all.
    Tied(Box<TiedRecord>),
    /// The requests of such a batch are tied no longer.
    Untie(RequestId),
    /// Addresses of peers to try after a restart.
    KnownPeers(Vec<String>),
}

/// What the disk remembers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Remembered {
    pub reservations: Vec<BookingRecord>,
    /// Bookings of this site that are gone.
    pub gone: Vec<GoneRecord>,
    /// What bookings of this site have cost that have ended.
    pub charges: Vec<Charge>,
    /// The owner's own queue.
    pub queue: Vec<QueuedJob>,
    /// Requests that this node coordinates.
    pub requests: Vec<RequestRecord>,
    /// What the owner's hook knows of bookings.
    pub activations: Vec<ActivationRecord>,
    /// What people were told of requests.
    pub notices: Vec<NoticeRecord>,
    /// Requests that wait for a batch, or have waited.
    pub waiting: Vec<WaitingRecord>,
    /// Which requests are reserved together or not at all.
    pub tied: Vec<TiedRecord>,
    /// Addresses of peers.
    pub known_peers: Vec<String>,
    /// This start's number: larger than that of every earlier start.
    pub incarnation: u64,
}
