//! A node that lets many holds lapse at a site gets shorter ones, and then none, until it is forgiven.
//!
//! Invariant: shares no code with the ledger. It counts no more lapses than the ledger may, so what it finds is wrong.

use std::collections::BTreeMap;

use broker::{ids::SiteId, ledger::BookingState, protocol::AttemptId, time::Millis};

use super::super::{grid::Grid, options::LAPSE_FORGIVEN_IN};

/// A hold that lasted so long was in the way of others, even if it was released in the end.
const LONG: Millis = Millis(5_000);
/// Of lapses that follow each other faster only the first counts here; a site counts some of them.
const APART: Millis = Millis(200);
/// With so many lapses that are not forgiven a node gets nothing more; with fewer, so many halve the longest hold of a minute.
const TOO_MANY: u64 = 32;
const HALVED_EVERY: u64 = 8;
const LONGEST: Millis = Millis(60_000);

/// What lapsed at one site since it started.
#[derive(Debug, Default)]
pub struct Lapses {
    run: u64,
    /// The holds that are there: since when, and until when.
    holds: BTreeMap<AttemptId, (Millis, Millis)>,
    /// What is not forgiven of each node, as the time that it takes, and when its last lapse was counted.
    nodes: BTreeMap<SiteId, (u64, Millis)>,
}

impl Lapses {
    fn note(&mut self, now: Millis, node: &SiteId) {
        let left = self.left(now, node);
        if self.nodes.get(node).is_none_or(|(_, last)| now - *last >= APART) {
            self.nodes.insert(node.clone(), (left + LAPSE_FORGIVEN_IN.0, now));
        }
    }

    fn left(&self, now: Millis, node: &SiteId) -> u64 {
        self.nodes.get(node).map_or(0, |(left, last)| left.saturating_sub((now - *last).0))
    }

    /// What is wrong with a new hold of a node, given that one lapse may be forgiven a moment earlier than it is here.
    fn wrong(&self, now: Millis, node: &SiteId, lease: Millis) -> Option<String> {
        let lapses = (self.left(now, node) / LAPSE_FORGIVEN_IN.0).saturating_sub(1);
        let most = LONGEST.0 >> (lapses / HALVED_EVERY);
        let is_wrong = lapses >= TOO_MANY || lapses >= HALVED_EVERY && lease.0 > most;
        is_wrong.then(|| format!("{node} holds for {} ms, after {lapses} lapses", lease.0))
    }
}

/// The ledger of a site has changed.
pub fn check_ledger(grid: &mut Grid, site: usize) {
    if grid.options.hoards.is_none() {
        return;
    }
    let (now, run) = (grid.clock(site).monotonic, grid.nodes[site].run);
    let mut known = grid.truth.take_lapses(site);
    if known.run != run {
        known = Lapses { run, ..Lapses::default() };
    }
    let Some(running) = grid.nodes[site].running() else { return };
    let held = running.machines.ledger.bookings().filter_map(|booking| match booking.state {
        BookingState::Held { since, deadline } => Some((booking.attempt.clone(), (since, deadline))),
        _ => None,
    });
    let held: BTreeMap<_, _> = held.collect();
    let is_booked = |attempt: &AttemptId| running.machines.ledger.bookings().any(|booking| booking.attempt == *attempt);
    for (attempt, (since, deadline)) in std::mem::take(&mut known.holds) {
        if now >= deadline.min(since + LONG) && !is_booked(&attempt) {
            known.note(now, &attempt.entry_point);
        } else {
            known.holds.insert(attempt, (since, deadline));
        }
    }
    let is_new = |attempt: &AttemptId| !known.holds.contains_key(attempt);
    let mut new = held.iter().filter(|(attempt, _)| is_new(attempt));
    let wrong = new.find_map(|(attempt, (since, deadline))| {
        Some((attempt.request.clone(), known.wrong(now, &attempt.entry_point, *deadline - *since)?))
    });
    known.holds = held;
    grid.truth.keep_lapses(site, known);
    if let Some((request, what)) = wrong {
        let invariant = "whoever lets holds lapse gets shorter ones, then none";
        grid.violate(invariant, Some(&request), format!("s{site}: {what}"));
    }
}
