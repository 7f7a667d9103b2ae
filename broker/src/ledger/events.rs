//! The events of a ledger, and the effects that it asks for.
//!
//! Invariant: outputs come in the order in which they must happen; see [`super::Ledger`].

use super::{FeedReport, LocalWork, QueueError, QueueOrder, QueuedJob, Record, Unusable};
use crate::{
    ids::{Network, RequestId, SiteId},
    protocol::{AttemptId, AttemptStatus, LedgerVersion, ScheduleChange, SiteAnswer, SiteRequest},
};

/// Distinguishes answers; made by the caller, returned unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyToken(pub u64);

/// What happens to a ledger from outside.
#[derive(Debug, Clone)]
pub enum Event {
    /// A node asks something.
    Request {
        /// The node, as the transport has proven it.
        from: SiteId,
        /// The network that its connection comes from; none for this node itself, and where networks say nothing about owners.
        network: Option<Network>,
        /// Goes back with the answer.
        token: ReplyToken,
        /// The request.
        request: SiteRequest,
    },
    /// The owner has own work for a host.
    Local {
        /// Goes back with the answer.
        token: ReplyToken,
        /// The work.
        work: LocalWork,
    },
    /// The owner takes the site's hosts back from a request.
    Evict {
        /// Goes back with the answer.
        token: ReplyToken,
        /// The request.
        request: RequestId,
    },
    /// The owner's hook cannot make hosts usable for a booking.
    Unusable {
        /// Goes back with the answer.
        token: ReplyToken,
        /// Which.
        unusable: Unusable,
    },
    /// The owner's work as a feed reports it, all of it: it replaces the report before. The names
    /// have at most [`super::FEED_NAME_BYTES_MAX`] bytes.
    Feed {
        /// Goes back with the report.
        token: ReplyToken,
        /// The work, one entry a host.
        works: Vec<LocalWork>,
        /// The jobs that wait, for the own queue. Whoever feeds them begins them: then they are work.
        queue: Vec<QueuedJob>,
    },
    /// The owner wants something of the own queue.
    Queue {
        /// Goes back with the result.
        token: ReplyToken,
        /// What.
        order: QueueOrder,
    },
    /// An answer to [`Output::Inquire`].
    StatusReceived {
        /// The node that answered.
        from: SiteId,
        /// The attempt.
        attempt: AttemptId,
        /// The round of [`Output::Inquire`].
        round: u32,
        /// Its decision, if it coordinates the request.
        decision: Option<AttemptStatus>,
        /// The state of its own booking.
        booking: AttemptStatus,
    },
}

/// An effect that a ledger asks for; effects are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Write this before letting any later output out. When that fails the node must stop.
    Persist(Record),
    /// Publish changes of the schedules, as a hint.
    Publish(ScheduleUpdateParts),
    /// Answer a request.
    Reply {
        /// The token of the request.
        token: ReplyToken,
        /// The answer.
        answer: SiteAnswer,
    },
    /// Report the result of an [`Event::Feed`].
    FeedApplied {
        /// Its token.
        token: ReplyToken,
        /// The result.
        report: FeedReport,
    },
    /// Report the result of an [`Event::Queue`].
    QueueChanged {
        /// Its token.
        token: ReplyToken,
        /// The result.
        result: Result<(), QueueError>,
    },
    /// Ask a node for the outcome of an attempt, and feed its answer back as [`Event::StatusReceived`]; no answer is no event.
    Inquire {
        /// The node.
        to: SiteId,
        /// The attempt.
        attempt: AttemptId,
        /// The number of this round of questions; returned with the answer, which may be late.
        round: u32,
    },
}

/// Consecutive changes and the version before the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleUpdateParts {
    /// The version before the first change.
    pub from: LedgerVersion,
    /// The changes.
    pub changes: Vec<ScheduleChange>,
}
