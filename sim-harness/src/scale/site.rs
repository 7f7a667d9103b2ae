//! One simulated site: its real ledger, what it has told, and what its node has to remember by itself.
//!
//! Invariant: [`Life::changes`] are all changes of the ledger in one run of the node, so the schedules at any past moment
//! can be told; what is in a [`Told`] went out as one gossip message.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    host::Host,
    ids::SiteId,
    ledger::{Ledger, Reservation, ScheduleUpdateParts},
    protocol::{Advert, AttemptId, ChangeKind, LedgerVersion, ScheduleSnapshot, ScheduleUpdate},
    schedule::Schedule,
};
use discovery::outbox::{Pacer, PendingChanges};

/// One run of a site's node.
#[derive(Debug)]
pub struct Life {
    /// When it began.
    pub started: u64,
    /// When it ended.
    pub stopped: Option<u64>,
    /// The site had taken its leave before, so the others know nothing of it any more.
    pub is_introduced: bool,
    /// The schedules at the beginning.
    pub base: ScheduleSnapshot,
    /// Changes of the ledger with their times.
    pub changes: Vec<(u64, ScheduleUpdateParts)>,
}

/// One gossip message with schedule changes.
#[derive(Debug)]
pub struct Told {
    /// When it went out.
    pub at: u64,
    /// Its name.
    pub name: u64,
    /// What it says.
    pub update: ScheduleUpdate,
}

/// Schedules of another site that were confirmed directly.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// When this node heard.
    pub at: u64,
    /// The moment at the other site that was told of.
    pub as_of: u64,
}

/// Where the answer to a question that the ledger was asked goes.
#[derive(Debug, Clone, Copy)]
pub enum Asker {
    /// To the entry point that carries this request.
    Negotiation {
        /// The request.
        request: usize,
        /// The try.
        attempt: u32,
        /// What about.
        purpose: broker::negotiation::Purpose,
        /// Until when an answer is waited for.
        until: u64,
        /// The version of the schedules that the plan rests on.
        planned: Option<LedgerVersion>,
    },
    /// To another participant.
    Participant {
        /// Who asked.
        from: usize,
        /// About this request.
        request: usize,
        /// And this try.
        attempt: u32,
    },
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
    /// The size of its schedules on the wire, when it last told a change.
    pub schedules_bytes: u64,
    /// The shard that its gossip belongs to.
    pub shard: usize,
    /// The shards that its node takes part in.
    pub subscribed: Vec<usize>,
    /// The real ledger, while the node runs.
    pub ledger: Option<Ledger>,
    /// What survives the end of the node.
    pub reservations: BTreeMap<AttemptId, Reservation>,
    /// Counts starts: what was under way before the last one does not happen.
    pub run: u64,
    /// The site has said that it leaves.
    pub has_left: bool,
    /// All runs, the present one last.
    pub lives: Vec<Life>,
    /// All gossip messages with changes.
    pub told: Vec<Told>,
    /// Changes that wait to be told.
    pub pending: PendingChanges,
    /// When they may be.
    pub pacer: Pacer,
    /// Whether the telling is planned.
    pub is_telling: bool,
    /// Until when the disk is busy.
    pub disk_free_at: u64,
    /// When the ledger wakes up next.
    pub timer_at: Option<u64>,
    /// Who asked what the ledger is to answer.
    pub askers: BTreeMap<u64, Asker>,
    /// Until when sites that did not answer are left out.
    pub silent: BTreeMap<usize, u64>,
    /// Sites whose schedules are being fetched because a change was missed.
    pub wanted: BTreeSet<usize>,
    /// What was heard of other sites directly.
    pub touched: BTreeMap<usize, Touch>,
    /// When this node last had to do with another directly.
    pub contacted: BTreeMap<usize, u64>,
}

impl Site {
    /// Whether the node runs.
    pub fn is_up(&self) -> bool {
        self.ledger.is_some()
    }

    /// When the node last began to run.
    pub fn started(&self) -> u64 {
        self.lives.last().map_or(0, |life| life.started)
    }

    /// The run of the node at `at`, or the last one before it.
    pub fn life_at(&self, at: u64) -> Option<&Life> {
        self.lives.iter().rev().find(|life| life.started <= at).or(self.lives.first())
    }

    /// Whether the node ran at `at`.
    pub fn was_up(&self, at: u64) -> bool {
        self.life_at(at).is_some_and(|life| life.started <= at && life.stopped.is_none_or(|stopped| stopped > at))
    }

    /// The schedules that the ledger told at `at`.
    pub fn snapshot_at(&self, at: u64) -> Option<ScheduleSnapshot> {
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
                        debug_assert!(removed.is_ok(), "a ledger takes back what it has told before");
                    }
                }
                version.change += 1;
            }
        }
        Some(ScheduleSnapshot { site: self.id.clone(), version, hosts: hosts.into_iter().collect() })
    }

    /// When the ledger went beyond `version`; none while it has not.
    pub fn went_beyond(&self, version: LedgerVersion) -> Option<u64> {
        let later = self.lives.iter().find(|life| life.base.version > version).map(|life| life.started);
        let same = self.lives.iter().find(|life| life.base.version.incarnation == version.incarnation);
        let changed = same.and_then(|life| {
            let beyond = |(_, parts): &&(u64, ScheduleUpdateParts)| {
                parts.from.change + parts.changes.len() as u64 > version.change
            };
            life.changes.iter().find(beyond).map(|(at, _)| *at)
        });
        changed.or(later)
    }
}
