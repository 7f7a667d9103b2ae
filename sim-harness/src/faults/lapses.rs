//! The lapses of the holds of each node at one site, counted anew.
//!
//! Invariant: shares no code with the ledger, and counts no more lapses than it may.

use std::collections::BTreeMap;

use broker::{ids::SiteId, protocol::AttemptId, time::Millis};

use super::options::LAPSE_FORGIVEN_IN;

/// A hold that lasted so long was in the way of others, even if it was released in the end.
pub const LONG: Millis = Millis(5_000);
/// Of lapses that follow each other faster only the first counts here; a site counts some of them.
const APART: Millis = Millis(200);
/// With so many lapses that are not forgiven a node gets nothing more; with fewer, so many halve the longest hold of a minute.
const TOO_MANY: u64 = 32;
const HALVED_EVERY: u64 = 8;
const LONGEST: Millis = Millis(60_000);

/// What lapsed at one site since it started.
#[derive(Debug, Default)]
pub struct Lapses {
    /// The run of the site.
    pub run: u64,
    /// The holds that are there: since when, and until when.
    pub holds: BTreeMap<AttemptId, (Millis, Millis)>,
    /// What is not forgiven of each node, as the time that it takes, and when its last lapse was counted.
    nodes: BTreeMap<SiteId, (u64, Millis)>,
}

impl Lapses {
    /// Nothing has lapsed yet in this run of the site.
    pub fn of_run(run: u64) -> Lapses {
        Lapses { run, ..Lapses::default() }
    }

    /// Notes that a hold of this node has lapsed.
    pub fn note(&mut self, now: Millis, node: &SiteId) {
        let left = self.left(now, node);
        if self.nodes.get(node).is_none_or(|(_, last)| now - *last >= APART) {
            self.nodes.insert(node.clone(), (left + LAPSE_FORGIVEN_IN.0, now));
        }
    }

    fn left(&self, now: Millis, node: &SiteId) -> u64 {
        self.nodes.get(node).map_or(0, |(left, last)| left.saturating_sub((now - *last).0))
    }

    /// What is wrong with a new hold of a node, given that one lapse may be forgiven a moment earlier than it is here.
    pub fn wrong(&self, now: Millis, node: &SiteId, lease: Millis) -> Option<String> {
        let lapses = (self.left(now, node) / LAPSE_FORGIVEN_IN.0).saturating_sub(1);
        let most = LONGEST.0 >> (lapses / HALVED_EVERY);
        let is_wrong = lapses >= TOO_MANY || lapses >= HALVED_EVERY && lease.0 > most;
        is_wrong.then(|| format!("{node} holds for {} ms, after {lapses} lapses", lease.0))
    }
}
