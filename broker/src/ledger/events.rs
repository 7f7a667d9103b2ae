//! What happens to a ledger, and what it wants done.
//!
//! Invariant: outputs come in the order in which they must happen; see [`super::Ledger`].

use super::{FeedReport, LocalWork, Record};
use crate::{
    ids::SiteId,
    protocol::{AttemptId, AttemptStatus, LedgerVersion, ScheduleChange, SiteAnswer, SiteRequest},
};

/// Tells answers apart; made by the caller, given back unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyToken(pub u64);

/// What happens to a ledger from outside.
#[derive(Debug, Clone)]
pub enum Event {
    /// A node asks something.
    Request {
        /// The node, as the transport has proven it.
        from: SiteId,
        /// Goes back with the answer.
        token: ReplyToken,
        /// What it asks.
        request: SiteRequest,
    },
    /// The owner has own work for a host.
    Local {
        /// Goes back with the answer.
        token: ReplyToken,
        /// The work.
        work: LocalWork,
    },
    /// All the owner's work that another program of the site knows of, in the place of what it has told before. The names
    /// have at most [`super::FEED_NAME_BYTES_MAX`] bytes.
    Feed {
        /// Goes back with the report.
        token: ReplyToken,
        /// The work, one entry a host.
        works: Vec<LocalWork>,
    },
    /// An answer to [`Output::Inquire`].
    StatusReceived {
        /// Who answered.
        from: SiteId,
        /// The attempt.
        attempt: AttemptId,
        /// The round of [`Output::Inquire`].
        round: u32,
        /// What it decided, if it is the entry point.
        decision: Option<AttemptStatus>,
        /// What it knows as a participant.
        booking: AttemptStatus,
    },
}

/// What a ledger wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Write this before letting any later output out. When that fails the node must stop.
    Persist(Record),
    /// Tell the world, as a hint.
    Publish(ScheduleUpdateParts),
    /// Answer a request.
    Reply {
        /// The token of the request.
        token: ReplyToken,
        /// The answer.
        answer: SiteAnswer,
    },
    /// Say what came of an [`Event::Feed`].
    FeedApplied {
        /// Its token.
        token: ReplyToken,
        /// What came of it.
        report: FeedReport,
    },
    /// Ask a node what became of an attempt, and feed its answer back as [`Event::StatusReceived`]; no answer is no event.
    Inquire {
        /// Whom.
        to: SiteId,
        /// About what.
        attempt: AttemptId,
        /// Counts the rounds of questions; goes back with the answer, which may be late.
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
