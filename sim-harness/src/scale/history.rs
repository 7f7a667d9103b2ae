//! All that has happened to the ledger of a site, so that its schedules at any past moment can be worked out.
//!
//! Invariant: the changes of a run are all changes of the ledger in that run of the node; what was published went out as
//! one gossip message each.

use broker::{
    ids::SiteId,
    ledger::ScheduleUpdateParts,
    protocol::{LedgerVersion, ScheduleSnapshot, ScheduleUpdate},
    time::Time,
};
use discovery::outbox::advance;

use crate::engine::Moment;

/// One run of a site's node.
#[derive(Debug)]
struct Run {
    started: Moment,
    stopped: Option<Moment>,
    /// The site had left in order before, so the others know nothing of it any more.
    is_introduced: bool,
    /// The schedules at the beginning.
    base: ScheduleSnapshot,
    changes: Vec<(Moment, ScheduleUpdateParts)>,
}

/// One gossip message with schedule changes.
#[derive(Debug)]
pub struct Published {
    pub at: Moment,
    pub name: u64,
    pub update: ScheduleUpdate,
}

/// The runs of a site's node, the present one last, and its gossip messages.
#[derive(Debug, Default)]
pub struct History {
    runs: Vec<Run>,
    published: Vec<Published>,
}

impl History {
    /// The node starts with these schedules; the site is new to the others when it `is_introduced`.
    pub fn start(&mut self, started: Moment, is_introduced: bool, base: ScheduleSnapshot) {
        self.runs.push(Run { started, stopped: None, is_introduced, base, changes: Vec::new() });
    }

    /// The node stops.
    pub fn stop(&mut self, at: Moment) {
        if let Some(run) = self.runs.last_mut() {
            run.stopped = Some(at);
        }
    }

    /// The ledger has changed.
    pub fn change(&mut self, at: Moment, parts: ScheduleUpdateParts) {
        if let Some(run) = self.runs.last_mut() {
            run.changes.push((at, parts));
        }
    }

    /// The site publishes changes. Returns whether they are the first since its node started again.
    pub fn publish(&mut self, published: Published) -> bool {
        let is_first = self.runs.len() > 1 && self.published.last().is_none_or(|last| last.at < self.last_started());
        self.published.push(published);
        is_first
    }

    /// When the node last started.
    pub fn last_started(&self) -> Moment {
        self.runs.last().map_or(Moment::default(), |run| run.started)
    }

    /// When the site last became known to the others, if that was not before the beginning.
    pub fn introduced(&self) -> Option<Moment> {
        self.runs.iter().rev().find(|run| run.is_introduced).map(|run| run.started)
    }

    /// The run of the node at `at`, or the last one before it.
    fn run_at(&self, at: Moment) -> Option<&Run> {
        self.runs.iter().rev().find(|run| run.started <= at).or(self.runs.first())
    }

    /// Whether the node ran at `at`.
    pub fn was_up(&self, at: Moment) -> bool {
        self.run_at(at).is_some_and(|run| run.started <= at && run.stopped.is_none_or(|stopped| stopped > at))
    }

    /// The schedules of the ledger at `at`.
    pub fn snapshot_at(&self, site: &SiteId, at: Moment) -> Option<ScheduleSnapshot> {
        let run = self.run_at(at)?;
        let mut version = run.base.version;
        let mut schedules = run.base.schedules.clone();
        let changes = run.changes.iter().take_while(|(changed, _)| *changed <= at);
        for change in changes.flat_map(|(_, parts)| &parts.changes) {
            let is_possible = schedules.apply(change, Time::ZERO);
            debug_assert!(is_possible, "a ledger removes what it has added before");
            version.change += 1;
        }
        Some(ScheduleSnapshot { site: site.clone(), version, schedules })
    }

    /// When the ledger went beyond `version`; none while it has not.
    pub fn went_beyond(&self, version: LedgerVersion) -> Option<Moment> {
        let later = self.runs.iter().find(|run| run.base.version > version).map(|run| run.started);
        let same = self.runs.iter().find(|run| run.base.version.incarnation == version.incarnation);
        let goes_beyond =
            |(_, parts): &&(_, ScheduleUpdateParts)| advance(parts.from, parts.changes.len()).change > version.change;
        same.and_then(|run| run.changes.iter().find(goes_beyond)).map(|(at, _)| *at).or(later)
    }

    /// The messages with changes from `oldest` on; with their numbers.
    pub fn published_since(&self, oldest: Moment) -> impl Iterator<Item = (usize, &Published)> {
        let from = self.published.partition_point(|published| published.at < oldest);
        self.published.iter().enumerate().skip(from)
    }

    /// The update of the message with this number.
    pub fn update(&self, number: usize) -> &ScheduleUpdate {
        &self.published[number].update
    }

    /// The message by which `version` became known.
    pub fn publication_of(&self, version: LedgerVersion) -> Option<&Published> {
        self.published.iter().find(|one| advance(one.update.from, one.update.changes.len()) >= version)
    }
}
