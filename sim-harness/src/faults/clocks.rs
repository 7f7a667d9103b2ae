//! The sites of some seeds whose wall clocks are set wrong for a while, days ahead or days behind.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The clocks of a seed that are set wrong.
#[derive(Debug, Clone)]
pub struct Clocks {
    pub seed: u64,
}

impl Clocks {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Clocks> {
        Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5).then_some(Clocks { seed })
    }
}
