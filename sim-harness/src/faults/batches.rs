//! The batches of some seeds: a user hands a coordinator several requests at once.
//!
//! Invariant: drawn from generators of their own, by the number of the batch, so that other seeds run as they would.

use broker::{batch::Order, cost::Cost};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::choice::one_of;

/// The first number of a request of a batch.
const FIRST_NUMBER: u64 = 1_000;
/// Numbers that a batch has.
const NUMBERS: u64 = 10;

/// The batches of a seed.
#[derive(Debug, Clone)]
pub struct Batches {
    /// Of its generators.
    pub seed: u64,
    pub count: u64,
    /// Of 100 batches, how many have a budget.
    budget_percent: u64,
    /// Whether some are reserved as a whole or not at all.
    pub has_tied: bool,
}

/// One batch, before it is planned.
pub struct Drawn {
    /// The numbers of its requests.
    pub numbers: Vec<u64>,
    pub policy: &'static str,
    pub order: Order,
    /// All of it together costs at most this.
    pub budget: Option<Cost>,
    /// It is reserved as a whole or not at all.
    pub is_tied: bool,
}

impl Batches {
    /// Draws the batches of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Batches> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let drawn = Batches {
            seed,
            count: random.random_range(1..=3),
            budget_percent: one_of(&mut random, &[0, 60, 100]),
            has_tied: false,
        };
        random.random_bool(0.5).then_some(drawn)
    }

    /// The batch with this number.
    pub fn draw_one(&self, batch: u64) -> Drawn {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(batch));
        let first = FIRST_NUMBER + NUMBERS * batch;
        let count = random.random_range(2..=5);
        let has_budget = random.random_range(0..100) < self.budget_percent;
        let budget = random.random_range(0..30_000);
        Drawn {
            numbers: (first..first + count).collect(),
            policy: one_of(&mut random, &["slices:1", "slices:2", "in-order"]),
            order: one_of(&mut random, &[Order::Fcfs, Order::Sjf, Order::Bjf]),
            budget: has_budget.then_some(Cost(budget * count)),
            is_tied: self.has_tied && random.random_bool(0.5),
        }
    }
}
