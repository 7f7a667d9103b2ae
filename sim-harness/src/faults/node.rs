//! One simulated node: its disk, its clocks, and (while it runs) the real ledger, negotiations and views.
//!
//! Invariant: whatever is in [`Running`] is lost in a crash; whatever is in [`Disk`] is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    host::Host,
    ids::{HostId, RequestId, SiteId},
    ledger::{Ledger, Record, Reservation},
    negotiation::{Heard, Negotiation, Purpose, RequestRecord, Statuses},
    protocol::AttemptId,
    schedule::Schedule,
    trust::{Authorization, Chain, SignedText},
    view::SiteView,
};

use super::{
    clock::Clock,
    message::{Body, Question},
};

/// What survives a crash.
#[derive(Debug, Default)]
pub struct Disk {
    /// The ledger's journal.
    pub reservations: BTreeMap<AttemptId, Reservation>,
    /// The entry point's decisions.
    pub requests: BTreeMap<RequestId, RequestRecord>,
    /// Number of the last start.
    pub incarnation: u64,
}

/// Whose output a write is: outputs of the same one wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The ledger.
    Ledger,
    /// The negotiation of a request.
    Request(RequestId),
}

/// A write under way.
#[derive(Debug)]
pub enum Write {
    /// Of the ledger.
    Ledger(Record),
    /// Of a request.
    Request(Box<RequestRecord>),
}

impl Write {
    /// The request whose reservation it changes, if it changes one.
    pub fn about(&self) -> Option<&RequestId> {
        match self {
            Write::Ledger(Record::Put(reservation)) => Some(&reservation.attempt.request),
            Write::Ledger(Record::Remove(attempt)) => Some(&attempt.request),
            Write::Request(_) => None,
        }
    }
}

impl Disk {
    /// A write has reached the disk.
    pub fn apply(&mut self, write: Write) {
        match write {
            Write::Ledger(Record::Put(reservation)) => {
                self.reservations.insert(reservation.attempt.clone(), reservation);
            }
            Write::Ledger(Record::Remove(attempt)) => {
                self.reservations.remove(&attempt);
            }
            Write::Request(record) => {
                self.requests.insert(record.id.clone(), *record);
            }
        }
    }
}

/// A negotiation and what its node tells of it.
#[derive(Debug)]
pub struct Carried {
    /// The negotiation.
    pub negotiation: Negotiation,
    /// What participants are told of its tries. Behind the negotiation while a write is under way.
    pub statuses: Statuses,
}

/// Where the answer to a question that the ledger was asked goes.
#[derive(Debug)]
pub struct Asker {
    /// The node that asked.
    pub from: usize,
    /// The question's name.
    pub ask: u64,
    /// What the asker waits for.
    pub question: Question,
    /// The message that brought the question.
    pub message: u64,
    /// Whether it asked to confirm.
    pub is_confirm: bool,
    /// What it showed to act for a request in the place of its entry point.
    pub takes_over: Option<(RequestId, Arc<Authorization>)>,
}

/// A question of this node that has no answer yet.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Of this request.
    pub request: RequestId,
    /// To this site.
    pub site: SiteId,
    /// The try.
    pub attempt: u32,
    /// About this.
    pub purpose: Purpose,
}

/// What a node has in memory.
#[derive(Debug)]
pub struct Running {
    /// The site side.
    pub ledger: Ledger,
    /// The entry-point side.
    pub negotiations: BTreeMap<RequestId, Carried>,
    /// What is believed of other sites.
    pub views: BTreeMap<usize, SiteView>,
    /// Questions that the ledger has not answered yet, by token.
    pub askers: BTreeMap<u64, Asker>,
    /// Answers that wait until what is being written of a request is on disk, with their receivers.
    pub held_back: Vec<(RequestId, usize, Body)>,
    /// Questions that wait for an answer.
    pub waiting: BTreeMap<u64, Waiting>,
    /// Writes under way, oldest first.
    pub writes: BTreeMap<u64, (Actor, Write)>,
    /// When the node wakes up next.
    pub wake_at: Option<u64>,
    /// Messages that the ledger has granted.
    pub granted: BTreeSet<u64>,
    /// When each site was last asked for its schedules.
    pub fetched: BTreeMap<usize, u64>,
    /// Adverts so far in this run.
    pub adverts: u64,
    /// Releases sent, for the fault of not repeating them.
    pub released: BTreeSet<(RequestId, u32, SiteId)>,
    /// What sites have been asked for users who want to take something over.
    pub lookups: BTreeMap<RequestId, Lookup>,
    /// When this run began.
    pub started: u64,
    /// When sites last said in time what they still have of a request, and when before that.
    pub inspected: BTreeMap<(RequestId, usize), (u64, u64)>,
}

impl Running {
    /// The word of its user by which the node carries a request, if that is later than this one.
    pub fn keeps_from(&self, authorization: &Authorization, request: &RequestId) -> Option<Arc<SignedText>> {
        self.negotiations.get(request)?.negotiation.record().keeps_from(authorization)
    }

    /// Whether the node is about to act for a request: it asks what there is of it, or writes that down.
    pub fn is_arriving(&self, request: &RequestId) -> bool {
        let of_request = |actor: &Actor| matches!(actor, Actor::Request(id) if id == request);
        self.lookups.contains_key(request)
            || !self.negotiations.contains_key(request) && self.writes.values().any(|(actor, _)| of_request(actor))
    }

    /// Whether the node carries a request, or is about to.
    pub fn carries(&self, request: &RequestId) -> bool {
        self.negotiations.contains_key(request) || self.is_arriving(request)
    }
}

/// What sites tell of a request that is to be taken over.
#[derive(Debug, Default)]
pub struct Lookup {
    /// Names the question.
    pub name: u64,
    /// Who has not answered.
    pub waiting: BTreeSet<usize>,
    /// What the others told.
    pub heard: Heard,
}

/// Whether a node runs.
#[derive(Debug)]
pub enum State {
    /// Not yet part of the grid.
    Absent,
    /// Running.
    Up(Box<Running>),
    /// Not running, to be started again.
    Down,
    /// Not running, never to be started again.
    Gone,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub site: SiteId,
    /// Its clocks.
    pub clock: Clock,
    /// Its hosts with the owner's own work.
    pub hosts: Vec<(Host, Schedule)>,
    /// The same before the owner took any away.
    pub hosts_at_first: Vec<(Host, Schedule)>,
    /// At its next start it has less to offer.
    pub is_to_shrink: bool,
    /// What its ledger has dropped at its last start, since the hosts are not there any more.
    pub dropped: BTreeSet<(AttemptId, HostId)>,
    /// What shows that it belongs to the grid, when that is closed.
    pub credentials: Option<Chain>,
    /// Its disk.
    pub disk: Disk,
    /// Whether it runs.
    pub state: State,
    /// Counts starts and stops: what was planned for an earlier run does not happen.
    pub run: u64,
    /// Its longest write.
    pub disk_ms_max: u64,
    /// Everything takes this much longer at the moment.
    pub slow_ms: u64,
}

impl Node {
    /// What is in memory, if it runs.
    pub fn running(&self) -> Option<&Running> {
        match &self.state {
            State::Up(running) => Some(running),
            State::Absent | State::Down | State::Gone => None,
        }
    }

    /// What is in memory, if it runs.
    pub fn running_mut(&mut self) -> Option<&mut Running> {
        match &mut self.state {
            State::Up(running) => Some(running),
            State::Absent | State::Down | State::Gone => None,
        }
    }

    /// It runs no longer; what was in memory, if it ran.
    pub fn stop(&mut self) -> Option<Running> {
        match std::mem::replace(&mut self.state, State::Down) {
            State::Up(running) => Some(*running),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Whether it is gone for good.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }
}
