//! One simulated site: its real state machines, what it has published, and what its node remembers besides.
//!
//! Invariant: [`Life::changes`] are all changes of the ledger in one run of the node, so the schedules at any past moment
//! can be worked out; a [`Published`] went out as one gossip message.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    host::Host,
    ids::{RequestId, SiteId},
    ledger::ScheduleUpdateParts,
    negotiation::{Negotiation, Purpose},
    protocol::{Advert, AttemptId, ChangeKind, LedgerVersion, ScheduleSnapshot, ScheduleUpdate},
    schedule::Schedule,
};
use discovery::outbox::{Pacer, PendingChanges};

use crate::engine::{Disk, Machines, Moment, SiteLedger};

/// One run of a site's node.
#[derive(Debug)]
pub struct Life {
    /// When it began.
    pub started: Moment,
    /// When it ended.
    pub stopped: Option<Moment>,
    /// The site had taken its leave before, so the others know nothing of it any more.
    pub is_introduced: bool,
    /// The schedules at the beginning.
    pub base: ScheduleSnapshot,
    /// Changes of the ledger with their times.
    pub changes: Vec<(Moment, ScheduleUpdateParts)>,
}

/// One gossip message with schedule changes.
#[derive(Debug)]
pub struct Published {
    /// When it went out.
    pub at: Moment,
    /// Its name.
    pub name: u64,
    /// What it says.
    pub update: ScheduleUpdate,
}

/// Schedules of another site that were confirmed directly.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// When the answer arrived.
    pub at: Moment,
    /// The moment at the other site that the answer shows.
    pub as_of: Moment,
}

/// The sender of a question to a ledger, which is to get the answer.
#[derive(Debug, Clone)]
pub enum Asker {
    /// The coordinator of a request, which waits `until` then, and has `planned` on that version of the schedules.
    Coordinator { request: usize, attempt: u32, purpose: Purpose, until: Moment, planned: Option<LedgerVersion> },
    /// Another participant, which asks for the outcome of an attempt in a round of its ledger's questions.
    Participant { from: usize, attempt: AttemptId, round: u32 },
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Site {
    /// Its name.
    pub id: SiteId,
    /// Its hosts, with nothing of their owner on them.
    pub hosts: Vec<(Host, Schedule)>,
    /// What it says of itself.
    pub advert: Advert,
    /// The size of that in its envelope.
    pub advert_bytes: u64,
    /// The size of its schedules on the wire, when it last published a change.
    pub schedules_bytes: u64,
    /// The shard that its gossip belongs to.
    pub shard: usize,
    /// The shards that its node takes part in.
    pub subscribed: Vec<usize>,
    /// The real ledger and negotiations, while the node runs.
    pub machines: Option<Machines<Asker>>,
    /// What survives the end of the node.
    pub disk: Disk,
    /// Counts starts: what was under way before the last one does not happen.
    pub run: u64,
    /// The site has said that it leaves.
    pub has_left: bool,
    /// All runs, the present one last.
    pub lives: Vec<Life>,
    /// All gossip messages with changes.
    pub published: Vec<Published>,
    /// Changes that wait to be published.
    pub pending: PendingChanges,
    /// When they may be.
    pub pacer: Pacer,
    /// Whether that is planned.
    pub is_publishing: bool,
    /// Until when the disk is busy.
    pub disk_free_at: Moment,
    /// Until when sites that did not answer are left out.
    pub silent: BTreeMap<usize, Moment>,
    /// Sites whose schedules are being fetched because a change was missed.
    pub wanted: BTreeSet<usize>,
    /// What other sites have answered directly.
    pub touched: BTreeMap<usize, Touch>,
    /// When this node last exchanged a direct message with another.
    pub contacted: BTreeMap<usize, Moment>,
}

impl Site {
    /// Whether the node runs.
    pub fn is_up(&self) -> bool {
        self.machines.is_some()
    }

    /// The ledger, while the node runs.
    pub fn ledger(&self) -> Option<&SiteLedger> {
        self.machines.as_ref().map(|machines| &machines.ledger)
    }

    /// The negotiation of a request, while the node that coordinates it runs.
    pub fn negotiation(&self, id: &RequestId) -> Option<&Negotiation> {
        self.machines.as_ref()?.negotiations.get(id)
    }

    /// When the node last began to run.
    pub fn started(&self) -> Moment {
        self.lives.last().map_or(Moment::default(), |life| life.started)
    }

    /// The run of the node at `at`, or the last one before it.
    pub fn life_at(&self, at: Moment) -> Option<&Life> {
        self.lives.iter().rev().find(|life| life.started <= at).or(self.lives.first())
    }

    /// Whether the node ran at `at`.
    pub fn was_up(&self, at: Moment) -> bool {
        self.life_at(at).is_some_and(|life| life.started <= at && life.stopped.is_none_or(|stopped| stopped > at))
    }

    /// The schedules of the ledger at `at`.
    pub fn snapshot_at(&self, at: Moment) -> Option<ScheduleSnapshot> {
        let life = self.life_at(at)?;
        let mut version = life.base.version;
        let mut hosts: BTreeMap<_, _> = life.base.hosts.iter().cloned().collect();
        for (_, parts) in life.changes.iter().take_while(|(changed, _)| *changed <= at) {
            for change in &parts.changes {
                let schedule: &mut Schedule = hosts.entry(change.host.clone()).or_default();
                match change.kind {
                    ChangeKind::Added => schedule.add(change.window, &change.amounts),
                    ChangeKind::Removed => {
                        let removed = schedule.remove(change.window, &change.amounts);
                        debug_assert!(removed.is_ok(), "a ledger removes what it has added before");
                    }
                }
                version.change += 1;
            }
        }
        Some(ScheduleSnapshot { site: self.id.clone(), version, hosts: hosts.into_iter().collect() })
    }

    /// When the ledger went beyond `version`; none while it has not.
    pub fn went_beyond(&self, version: LedgerVersion) -> Option<Moment> {
        let later = self.lives.iter().find(|life| life.base.version > version).map(|life| life.started);
        let same = self.lives.iter().find(|life| life.base.version.incarnation == version.incarnation);
        let changed = same.and_then(|life| {
            let beyond = |(_, parts): &&(Moment, ScheduleUpdateParts)| {
                parts.from.change + parts.changes.len() as u64 > version.change
            };
            life.changes.iter().find(beyond).map(|(at, _)| *at)
        });
        changed.or(later)
    }
}
