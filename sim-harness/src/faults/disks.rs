//! The disks of some seeds that others fill for a while.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::room::Full;

/// One disk in so many is filled.
const FILLED_EVERY: u32 = 2;
/// One filled disk in so many refuses all writes.
const REFUSES_EVERY: u32 = 4;
/// Most writes after which a node has too little room for new promises.
const AHEAD_MAX: u64 = 12;

/// The full disks of a seed.
#[derive(Debug, Clone)]
pub struct Disks {
    seed: u64,
}

/// A disk that others fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    pub node: usize,
    pub how: Full,
    /// Milliseconds from the start on.
    pub at_ms: u64,
    /// When it has room again; without it, when all is healed.
    pub until_ms: Option<u64>,
}

impl Disks {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Disks> {
        Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5).then_some(Disks { seed })
    }

    /// Which disks of so many nodes are filled within `faulty_ms`, each at most once.
    pub fn fillings(&self, nodes: usize, faulty_ms: u64) -> Vec<Filling> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1);
        let mut fillings = Vec::new();
        for node in 0..nodes {
            if random.random_range(0..FILLED_EVERY) > 0 {
                continue;
            }
            let ahead = random.random_range(0..=AHEAD_MAX);
            let refuses = random.random_range(0..REFUSES_EVERY) == 0;
            let how = if refuses { Full::Refuses } else { Full::Takes { ahead } };
            let at_ms = random.random_range(0..faulty_ms);
            let until_ms = random.random_bool(0.5).then(|| random.random_range(at_ms..faulty_ms));
            fillings.push(Filling { node, how, at_ms, until_ms });
        }
        fillings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_seeds_have_full_disks_of_both_kinds_within_the_time_of_faults() {
        let drawn: Vec<Disks> = (0..200).filter_map(Disks::draw).collect();
        assert!((60..140).contains(&drawn.len()), "{} of 200 seeds", drawn.len());
        let all: Vec<Filling> = drawn.iter().flat_map(|disks| disks.fillings(12, 10_000)).collect();
        let is_within = |one: &Filling| {
            one.node < 12 && one.at_ms < 10_000 && one.until_ms.is_none_or(|until| (one.at_ms..10_000).contains(&until))
        };
        assert!(all.iter().all(is_within));
        let count = |is_it: fn(&Filling) -> bool| all.iter().filter(|one| is_it(one)).count();
        assert!(count(|one| one.how == Full::Refuses) > 0);
        assert!(count(|one| matches!(one.how, Full::Takes { .. })) > count(|one| one.how == Full::Refuses));
        assert!(count(|one| one.until_ms.is_none()) > 0 && count(|one| one.until_ms.is_some()) > 0);
    }

    #[test]
    fn a_seed_fills_the_same_disks_again_and_each_once() {
        let disks = (0..200).find_map(Disks::draw).unwrap();
        let fillings = disks.fillings(12, 10_000);
        assert_eq!(fillings, disks.fillings(12, 10_000));
        assert!(fillings.windows(2).all(|pair| pair[0].node < pair[1].node));
    }
}
