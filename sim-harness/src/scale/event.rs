//! What is going to happen in a run, and the messages between nodes.
//!
//! Invariant: the size of a message is that of what a node would send.

use broker::{
    negotiation::Purpose,
    protocol::{AttemptId, LedgerVersion, ScheduleSnapshot, SiteAnswer, SiteRequest},
};
use discovery::wire::{WireAnswer, WireRequest, WireSchedules};

use super::{sizes::direct_bytes, traffic::Kind};
use crate::engine::Moment;

/// The sender of a question to a ledger, which is to get the answer.
#[derive(Debug, Clone)]
pub enum Asker {
    /// The coordinator of a request, which waits `until` then, and has `planned` on that version of the schedules.
    Coordinator { request: usize, attempt: u32, purpose: Purpose, until: Moment, planned: Option<LedgerVersion> },
    /// Another participant, which asks for the outcome of an attempt in a round of its ledger's questions.
    Participant { from: usize, attempt: AttemptId, round: u32 },
}

/// Why schedules are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A request is to be planned on them; a search has a name.
    Search { request: usize, search: u64 },
    /// A change was missed.
    Repair,
}

/// The content of a message between two nodes.
#[derive(Debug)]
pub enum Body {
    /// A question of a coordinator or of another participant.
    Ask { asker: Asker, request: SiteRequest },
    /// Its answer.
    Answer { asker: Asker, answer: SiteAnswer },
    /// The question for all schedules, unless they are still those of the version that is known.
    Fetch { wish: Wish, known: Option<LedgerVersion> },
    /// All schedules, as they were at a moment; on the wire only their version where the asker has it.
    Schedules { wish: Wish, as_of: Moment, snapshot: Box<ScheduleSnapshot>, is_known: bool },
}

impl Body {
    /// What it is for.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Fetch { wish: Wish::Repair, .. } | Body::Schedules { wish: Wish::Repair, .. } => Kind::Upkeep,
            _ => Kind::Direct,
        }
    }

    /// Its size on the wire.
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Ask { request, .. } => direct_bytes(&WireRequest::Site(request.clone())),
            Body::Answer { answer, .. } => direct_bytes(&WireAnswer::Site(answer.clone())),
            Body::Fetch { known, .. } => direct_bytes(&WireRequest::Schedules(*known)),
            Body::Schedules { snapshot, is_known: true, .. } => direct_bytes(&WireAnswer::Unchanged(snapshot.version)),
            Body::Schedules { snapshot, .. } => {
                let schedules = WireSchedules::from_snapshot(ScheduleSnapshot::clone(snapshot));
                direct_bytes(&WireAnswer::Schedules(schedules.into()))
            }
        }
    }
}

/// One message on its way.
#[derive(Debug)]
pub struct Message {
    /// The node that has sent it, and in which of its runs.
    pub from: (usize, u64),
    pub to: usize,
    pub bytes: u64,
    pub body: Body,
}

/// A change that is to become known everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    pub site: usize,
    pub version: LedgerVersion,
    /// When the request was submitted that made it.
    pub since: Moment,
}

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A message arrives.
    Arrival(Box<Message>),
    /// The time for an answer is over.
    Unanswered { asker: Asker, site: usize },
    /// A node's timer.
    Wake { site: usize },
    /// A site may publish its changes.
    Publish { site: usize },
    /// A node has missed a change of a site, which is asked.
    Repair { node: usize, site: usize },
    /// The time for a round of a search is over.
    SearchOver { request: usize, search: u64 },
    /// A user submits a request.
    Submit { number: usize },
    /// The outcome of a request is on disk, and reported to its user.
    Settled { request: usize },
    /// From time to time: has this change been published?
    Look { change: Change },
    /// A user cancels a reservation.
    Cancel { request: usize },
    /// A node stops.
    Stop,
    /// A node starts again.
    Start { site: usize },
    /// Meshes are drawn anew, and what went through the old ones is counted.
    Epoch,
}
