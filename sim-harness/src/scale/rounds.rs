//! Requests in rounds, as `kolo-sim grid` sends them: one alone, then some at the same moment, in turn.
//!
//! After a lonely request the next round waits until every node knows of its change, the first few times: the real grid
//! measures there how long that takes, and so does this. Invariant: the requests of a round have different entry points,
//! the same as in the real grid of that seed.

use std::{collections::VecDeque, ops::Range};

use broker::{negotiation::Stage, protocol::LedgerVersion};
use discovery::outbox::advance;
use rand::seq::SliceRandom;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    settings::SECOND_US,
    world::{Event, World},
};
use crate::grid::drive;

/// Between two looks at whether a site has told its change.
const LOOK_US: u64 = 2_000;
/// A change that nobody tells for so long is not waited for.
const TELL_LIMIT_US: u64 = 60 * SECOND_US;

/// See the module.
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
    /// News of a lonely request is waited for.
    is_waiting: bool,
}

/// A change that is to become known everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    site: usize,
    version: LedgerVersion,
    /// When the request was submitted that made it.
    since: u64,
}

impl Rounds {
    /// All rounds of so many requests, at most `at_once` at the same moment.
    pub fn new(requests: usize, at_once: usize, sites: usize, seed: u64) -> Rounds {
        let mut entry_points: Vec<usize> = (0..sites).collect();
        entry_points.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        Rounds { left: drive::rounds(requests, at_once).into(), entry_points, ..Rounds::default() }
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
    pub(super) fn begin_round(&mut self, at: u64) {
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
            self.rounds.present == 1 && self.counts.spread_ms.len() < drive::SPREADS_MAX && self.sites.len() > 1;
        match self.change_of(request).filter(|_| is_measured) {
            Some(change) => self.look_for(change),
            None => self.begin_round(self.now),
        }
    }

    /// What a reservation has changed at the site of its first host.
    fn change_of(&self, request: usize) -> Option<Change> {
        let carried = &self.carried[request];
        let Stage::Stands(allocation) = carried.negotiation.as_ref()?.stage() else { return None };
        let site = *self.index.get(&allocation.grants.first()?.site)?;
        let version = self.sites[site].ledger.as_ref()?.version();
        Some(Change { site, version, since: carried.submitted })
    }

    /// Begins the next round when every node knows of the change.
    pub(super) fn look_for(&mut self, change: Change) {
        let Change { site, version, since } = change;
        self.rounds.is_waiting = false;
        let own = &self.sites[site];
        let covers = |from: LedgerVersion, count: usize| advance(from, count) >= version;
        let told = own.told.iter().find(|told| covers(told.update.from, told.update.changes.len()));
        if let Some(told) = told {
            let topic = &self.topics[own.shard];
            let others = (0..self.sites.len()).filter(|node| *node != site);
            let last_us = others.filter_map(|node| topic.delay_us(told.name, told.at, node)).max().unwrap_or(0);
            // Nobody looks before the user has been told.
            let known = (told.at + last_us).max(self.now);
            self.counts.spread_ms.push((known - since) as f64 / 1000.0);
            self.begin_round(known);
        } else if self.now < since + TELL_LIMIT_US {
            self.rounds.is_waiting = true;
            self.at(self.now + LOOK_US, Event::Look { change });
        } else {
            self.begin_round(self.now);
        }
    }
}
