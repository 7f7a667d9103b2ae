//! The nodes of some seeds that run out of descriptors for a while: connections that they have go on, and new ones fail.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use std::{collections::BTreeSet, ops::RangeInclusive};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One node in so many runs out of them.
const SHORT_EVERY: u32 = 3;
/// How long they are short (ms): less than the minute for which a write waits for them.
const SHORT_MS: RangeInclusive<u64> = 500..=20_000;

/// The shortages of a seed.
#[derive(Debug, Clone)]
pub struct Descriptors {
    seed: u64,
}

/// A node that has run out of descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub node: usize,
    /// The nodes that it has no connection with.
    pub unconnected: BTreeSet<usize>,
    /// Milliseconds from the start on.
    pub at_ms: u64,
    pub until_ms: u64,
}

impl Descriptors {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Descriptors> {
        Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5).then_some(Descriptors { seed })
    }

    /// Which of so many nodes run out of descriptors, each at most once, from some time within `faulty_ms` on.
    pub fn shortages(&self, nodes: usize, faulty_ms: u64) -> Vec<Shortage> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1);
        let mut shortages = Vec::new();
        for node in 0..nodes {
            if random.random_range(0..SHORT_EVERY) > 0 {
                continue;
            }
            let at_ms = random.random_range(0..faulty_ms);
            let until_ms = at_ms + random.random_range(SHORT_MS);
            let others = (0..nodes).filter(|other| *other != node);
            let unconnected = others.filter(|_| random.random_bool(0.5)).collect();
            shortages.push(Shortage { node, unconnected, at_ms, until_ms });
        }
        shortages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_seeds_have_shortages_that_end() {
        let drawn: Vec<Descriptors> = (0..200).filter_map(Descriptors::draw).collect();
        assert!((60..140).contains(&drawn.len()), "{} of 200 seeds", drawn.len());
        let all: Vec<Shortage> = drawn.iter().flat_map(|descriptors| descriptors.shortages(12, 10_000)).collect();
        assert!(all.iter().all(|one| one.at_ms < 10_000 && SHORT_MS.contains(&(one.until_ms - one.at_ms))));
    }

    #[test]
    fn a_node_keeps_some_connections_and_the_one_with_itself() {
        let descriptors = (0..200).find_map(Descriptors::draw).unwrap();
        let shortages = descriptors.shortages(100, 10_000);
        assert_eq!(shortages, descriptors.shortages(100, 10_000));
        for Shortage { node, unconnected, .. } in shortages {
            assert!(!unconnected.contains(&node) && unconnected.iter().all(|other| *other < 100));
            assert!((20..80).contains(&unconnected.len()));
        }
    }
}
