//! One simulated node: its disk, its clocks, and (while it runs) the real ledger, negotiations and views.
//!
//! Invariant: a crash loses all of [`Running`], and nothing of [`Disk`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    host::Host,
    ids::{HostId, RequestId, SiteId},
    negotiation::{LookupAnswers, Purpose, RequestRecord},
    protocol::{AttemptId, LedgerVersion},
    schedule::Schedule,
    trust::{Authorization, Chain, SignedText},
    view::{Schedules, SiteView},
};

use super::{
    clock::Clock,
    message::{Body, Question},
};
use crate::engine::{Actor, Disk, Machines, Moment, Write};

/// The sender of a question to the ledger, which is to get the answer.
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
    /// The request that it wants to take over, and the authorization that it showed.
    pub takes_over: Option<(RequestId, Arc<Authorization>)>,
}

/// A question of this node that has no answer yet.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Of this request.
    pub request: RequestId,
    /// To this site.
    pub site: SiteId,
    /// The attempt.
    pub attempt: u32,
    /// About this.
    pub purpose: Purpose,
}

/// Phase I under way.
#[derive(Debug)]
pub struct Search {
    /// For this request.
    pub request: RequestId,
    /// Hosts wanted.
    pub count: usize,
    /// Governs the sample.
    pub seed: u64,
    /// Sites left out.
    pub exclude: BTreeSet<SiteId>,
}

/// What a node has in memory.
#[derive(Debug)]
pub struct Running {
    /// The ledger and the negotiations.
    pub machines: Machines<Asker>,
    /// Its views of other sites.
    pub views: BTreeMap<usize, SiteView>,
    /// Answers that wait until what is being written of a request is on disk, with their receivers.
    pub held_back: Vec<(RequestId, usize, Body)>,
    /// Records that participants are answered from before they are on disk, for the fault of doing so.
    pub told_early: BTreeMap<RequestId, Box<RequestRecord>>,
    /// Questions that wait for an answer.
    pub waiting: BTreeMap<u64, Waiting>,
    /// Writes under way, oldest first.
    pub writes: BTreeMap<u64, (Actor, Write)>,
    /// Messages that the ledger has granted.
    pub granted: BTreeSet<u64>,
    /// When each site was last asked for its schedules.
    pub fetched: BTreeMap<usize, Moment>,
    /// Adverts so far in this run.
    pub adverts: u64,
    /// Releases sent, for the fault of not repeating them.
    pub released: BTreeSet<(RequestId, u32, SiteId)>,
    /// Look-ups for users who want the node to take a request over.
    pub lookups: BTreeMap<RequestId, Lookup>,
    /// When this run began.
    pub started: Moment,
    /// When sites last answered in time what they still have of a request, and when before that.
    pub inspected: BTreeMap<(RequestId, usize), (Moment, Moment)>,
}

impl Running {
    /// A node that has just started, with nothing but its state machines.
    pub fn new(machines: Machines<Asker>, started: Moment) -> Running {
        Running {
            machines,
            views: BTreeMap::new(),
            held_back: Vec::new(),
            told_early: BTreeMap::new(),
            waiting: BTreeMap::new(),
            writes: BTreeMap::new(),
            granted: BTreeSet::new(),
            fetched: BTreeMap::new(),
            adverts: 0,
            released: BTreeSet::new(),
            lookups: BTreeMap::new(),
            started,
            inspected: BTreeMap::new(),
        }
    }

    /// The word of its user by which the node carries a request, if that is later than this one.
    pub fn later_authorization(&self, authorization: &Authorization, request: &RequestId) -> Option<Arc<SignedText>> {
        self.machines.negotiations.get(request)?.record().later_authorization(authorization)
    }

    /// Whether the node is about to coordinate a request: it asks sites what they have of it, or writes that down.
    pub fn is_arriving(&self, request: &RequestId) -> bool {
        let of_request = |actor: &Actor| matches!(actor, Actor::Request(id) if id == request);
        self.lookups.contains_key(request)
            || !self.machines.negotiations.contains_key(request)
                && self.writes.values().any(|(actor, _)| of_request(actor))
    }

    /// Whether the node coordinates a request, or is about to.
    pub fn carries(&self, request: &RequestId) -> bool {
        self.machines.negotiations.contains_key(request) || self.is_arriving(request)
    }
}

/// What sites have answered about a request that is to be taken over.
#[derive(Debug, Default)]
pub struct Lookup {
    /// Names the question.
    pub name: u64,
    /// Sites that have not answered.
    pub waiting: BTreeSet<usize>,
    /// The answers of the others.
    pub heard: LookupAnswers,
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
    /// What had begun when it started with less to offer than at first: that stays, whatever there is.
    pub begun: BTreeSet<AttemptId>,
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

/// The version that a view shows.
pub fn known_version(view: &SiteView) -> Option<LedgerVersion> {
    match view.schedules() {
        Schedules::Unknown => None,
        Schedules::Known(known) => Some(known.version),
    }
}
