//! The sites of some seeds that their owners empty, and when.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One site in so many is emptied.
const DRAINED_EVERY: u32 = 3;

/// The sites of a seed that are emptied.
#[derive(Debug, Clone)]
pub struct Drains {
    seed: u64,
}

impl Drains {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Drains> {
        Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5).then_some(Drains { seed })
    }

    /// Which of so many sites are emptied, when within `faulty_ms`, and when half of them offer their hosts again.
    pub fn times(&self, sites: usize, faulty_ms: u64) -> Vec<(usize, u64, Option<u64>)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1);
        let mut drained = Vec::new();
        for site in 0..sites {
            if random.random_range(0..DRAINED_EVERY) > 0 {
                continue;
            }
            let at = random.random_range(0..faulty_ms);
            let until = random.random_bool(0.5).then(|| random.random_range(at..faulty_ms));
            drained.push((site, at, until));
        }
        drained
    }
}
