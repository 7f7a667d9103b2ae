//! Owners of some seeds with jobs of their own, which their sites may move.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use broker::trust::OwnerPolicy;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What all holds together may cost the jobs that wait, in percent: one of these.
const LOSS_PERCENT: [u32; 4] = [0, 0, 10, 50];

/// How many of the jobs may be stopped.
const STOPPABLE: f64 = 0.4;
/// Most orders of one owner.
const ORDERS_MAX: u64 = 14;

/// The own queues of a seed.
#[derive(Debug, Clone)]
pub struct Queues {
    seed: u64,
    /// What all holds together may cost the jobs that wait, in percent.
    pub loss_percent: u32,
    /// How many of the jobs may be stopped.
    pub stoppable: f64,
    /// Most orders of one owner.
    pub orders_max: u64,
}

impl Queues {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Queues> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let loss_percent = LOSS_PERCENT[random.random_range(0..LOSS_PERCENT.len())];
        random.random_bool(0.5).then_some(Queues { seed, loss_percent, stoppable: STOPPABLE, orders_max: ORDERS_MAX })
    }

    /// Those of owners who have many jobs, and bear that most of them are stopped.
    pub fn patient(seed: u64) -> Queues {
        Queues { seed, loss_percent: 1_000, stoppable: 0.9, orders_max: 3 * ORDERS_MAX }
    }

    /// What draws the orders.
    pub fn generator(&self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1)
    }

    /// The rules of every owner, beside other ones.
    pub fn in_force(queues: Option<&Queues>, policy: OwnerPolicy) -> OwnerPolicy {
        let quality_loss_percent = queues.map_or(policy.quality_loss_percent, |queues| queues.loss_percent);
        OwnerPolicy { quality_loss_percent, ..policy }
    }
}
