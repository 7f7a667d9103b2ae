//! The node of some seeds that asks one site for hold after hold and confirms none.
//!
//! Invariant: drawn from generators of its own, so that other seeds run as they would.

use broker::time::Millis;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How long a hold is asked for, one of these.
const HOLD_FOR: [Millis; 4] = [Millis(200), Millis(500), Millis(700), Millis(12_000)];

/// The hoarder of a seed.
#[derive(Debug, Clone)]
pub struct Hoards {
    seed: u64,
}

impl Hoards {
    /// Draws that of a seed: a third of the seeds have one.
    pub fn draw(seed: u64) -> Option<Hoards> {
        (Xoshiro256PlusPlus::seed_from_u64(seed).random_range(0..3) == 0).then_some(Hoards { seed })
    }

    /// The hoarder, one of the entry points, and the site whose hosts it holds, which is another one.
    pub fn parties(&self, entry_points: usize, sites: usize) -> (usize, usize) {
        let mut random = self.generator(0);
        let (node, next) = (random.random_range(0..entry_points), random.random_range(1..sites));
        (node, (node + next) % sites)
    }

    /// When it asks, within `faulty_ms`: four times a second and more.
    pub fn times(&self, faulty_ms: u64) -> Vec<u64> {
        let mut random = self.generator(1);
        let (mut at, mut times) = (random.random_range(0..2_000), Vec::new());
        while at < faulty_ms {
            times.push(at);
            at += random.random_range(100..250);
        }
        times
    }

    /// For how long it asks for the hold with this number.
    pub fn hold_for(&self, number: u64) -> Millis {
        HOLD_FOR[self.generator(number).random_range(0..HOLD_FOR.len())]
    }

    fn generator(&self, number: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64((self.seed ^ 1).wrapping_add(number))
    }
}
