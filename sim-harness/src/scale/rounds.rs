//! Requests in rounds, as `kolo-sim grid` sends them: one alone, then some at the same moment, in turn.
//!
//! Invariant: the requests of a round have different entry points, the same as in the real grid of that seed.

use std::{collections::VecDeque, ops::Range};

use rand::seq::SliceRandom;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use crate::grid::load::rounds::rounds;

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
    pub is_waiting: bool,
}

impl Rounds {
    /// All rounds of so many requests, at most `at_once` at the same moment.
    pub fn new(requests: usize, at_once: usize, sites: usize, seed: u64) -> Rounds {
        let mut entry_points: Vec<usize> = (0..sites).collect();
        entry_points.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        Rounds { left: rounds(requests, at_once).into(), entry_points, ..Rounds::default() }
    }

    /// The site that the request with this number is submitted to.
    pub fn entry_point(&self, number: usize) -> usize {
        self.entry_points[number % self.entry_points.len()]
    }

    /// The requests of the next round, which is now the present one.
    pub fn next(&mut self) -> Option<Range<usize>> {
        let round = self.left.pop_front()?;
        (self.present, self.open) = (round.len(), round.len());
        Some(round)
    }

    /// A request is settled. If it was the last of its round, returns whether it was alone in it.
    pub fn settle(&mut self) -> Option<bool> {
        self.open = self.open.saturating_sub(1);
        (self.open == 0).then_some(self.present == 1)
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.left.is_empty() && self.open == 0 && !self.is_waiting
    }
}
