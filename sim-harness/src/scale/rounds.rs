//! Requests in rounds, as `kolo-sim grid` sends them: one alone, then some at the same moment, in turn.
//!
//! After a request that is alone the next round waits until every node knows of its change, the first few times: the real grid
//! measures there how long that takes, and so does this. Invariant: the requests of a round have different entry points,
//! the same as in the real grid of that seed.

use std::{collections::VecDeque, ops::Range, time::Duration};

use broker::{negotiation::Stage, protocol::LedgerVersion};
use discovery::outbox::advance;
use rand::seq::SliceRandom;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::world::{Event, World};
use crate::{engine::Moment, grid::load::rounds as real_rounds};

/// From one look at whether a site has published its change to the next.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A change that is not published for so long is not waited for.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(60);

/// The rounds of a run.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Requests of the rounds to come, by number.
    left: VecDeque<Range<usize>>,
    /// Sites in the order in which they are entry points.
    entry_points: Vec<usize>,
    /// Requests of the present round.
    present: usize,
    /// Requests of the present round that are not settled.
    open: usize,
    /// The next round waits until all nodes know of a change.
    is_waiting: bool,
}

/// A change that is to become known everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    site: usize,
    version: LedgerVersion,
    /// When the request was submitted that made it.
    since: Moment,
}

impl Rounds {
    /// All rounds of so many requests, at most `at_once` at the same moment.
    pub fn new(requests: usize, at_once: usize, sites: usize, seed: u64) -> Rounds {
        let mut entry_points: Vec<usize> = (0..sites).collect();
        entry_points.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        Rounds { left: real_rounds::rounds(requests, at_once).into(), entry_points, ..Rounds::default() }
    }

    /// Through which site the request with this number goes.
    pub fn entry_point(&self, number: usize) -> usize {
        self.entry_points[number % self.entry_points.len()]
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.left.is_empty() && self.open == 0 && !self.is_waiting
    }
}

impl World {
    /// Submits the requests of the next round.
    pub(super) fn begin_round(&mut self, at: Moment) {
        let Some(round) = self.rounds.left.pop_front() else { return };
        (self.rounds.present, self.rounds.open) = (round.len(), round.len());
        for number in round {
            self.at(at, Event::Submit { number });
        }
    }

    /// A request is settled; when it was the last of its round, the next one begins.
    pub(super) fn settled_in_round(&mut self, request: usize) {
        self.rounds.open = self.rounds.open.saturating_sub(1);
        if self.rounds.open > 0 {
            return;
        }
        let is_measured =
            self.rounds.present == 1 && self.counts.spread_ms.len() < real_rounds::SPREADS_MAX && self.sites.len() > 1;
        match self.change_of(request).filter(|_| is_measured) {
            Some(change) => self.look_for(change),
            None => self.begin_round(self.now()),
        }
    }

    /// What a reservation has changed at the site of its first host.
    fn change_of(&self, request: usize) -> Option<Change> {
        let Stage::Reserved(plan) = self.negotiation(request)?.stage() else { return None };
        let site = *self.index.get(&plan.grants.first()?.site)?;
        let version = self.sites[site].ledger()?.version();
        Some(Change { site, version, since: self.requests[request].at })
    }

    /// Begins the next round when every node knows of the change.
    pub(super) fn look_for(&mut self, change: Change) {
        let Change { site, version, since } = change;
        self.rounds.is_waiting = false;
        let own = &self.sites[site];
        let covers = |from: LedgerVersion, count: usize| advance(from, count) >= version;
        let published = own.published.iter().find(|one| covers(one.update.from, one.update.changes.len()));
        if let Some(published) = published {
            let topic = &self.topics[own.shard];
            let others = (0..self.sites.len()).filter(|node| *node != site);
            let last = others.filter_map(|node| topic.delay(published.name, published.at, node)).max();
            // Nobody looks before the user knows the outcome.
            let known = (published.at + last.unwrap_or_default()).max(self.now());
            self.counts.spread_ms.push((known - since).as_secs_f64() * 1000.0);
            self.begin_round(known);
        } else if self.now() < since + PUBLISHED_WITHIN {
            self.rounds.is_waiting = true;
            self.after(LOOK_EVERY, Event::Look { change });
        } else {
            self.begin_round(self.now());
        }
    }
}
