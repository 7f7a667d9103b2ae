//! The disks of some seeds that lie: when their node crashes, the last records that they had told were written are not there.
//!
//! Only records of the ledger are lost, those behind the last one of a negotiation: a coordinator that has lost what it decided has nothing
//! by which it could notice. A site that has lost a promise is asked for it.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Most crashes after which a disk shows that it has lied.
const LIES_MAX: usize = 4;
/// Most records that are lost at once.
pub const LOST_MAX: usize = 6;

/// The lies of a seed.
#[derive(Debug, Clone)]
pub struct Lies {
    seed: u64,
}

/// A crash after which the disk shows that it has lied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie {
    pub node: usize,
    /// Milliseconds from the start on.
    pub at_ms: u64,
    /// How many records are lost, if there are so many.
    pub records: usize,
}

impl Lies {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Lies> {
        Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5).then_some(Lies { seed })
    }

    /// Which disks of so many nodes have lied, and when within `faulty_ms` that shows.
    pub fn times(&self, nodes: usize, faulty_ms: u64) -> Vec<Lie> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1);
        let count = random.random_range(1..=LIES_MAX);
        let mut draw = || Lie {
            node: random.random_range(0..nodes),
            at_ms: random.random_range(0..faulty_ms),
            records: random.random_range(1..=LOST_MAX),
        };
        (0..count).map(|_| draw()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_seeds_have_a_few_lies_within_the_time_of_faults() {
        let drawn: Vec<Lies> = (0..200).filter_map(Lies::draw).collect();
        assert!((60..140).contains(&drawn.len()), "{} of 200 seeds", drawn.len());
        for lies in drawn {
            let times = lies.times(12, 10_000);
            assert!((1..=LIES_MAX).contains(&times.len()));
            assert!(
                times.iter().all(|lie| lie.node < 12 && lie.at_ms < 10_000 && (1..=LOST_MAX).contains(&lie.records))
            );
            assert_eq!(times, lies.times(12, 10_000));
        }
    }
}
