//! A run of neighbouring steps of an occupancy, with what is needed to pass over it as a whole.
//!
//! A change that covers a whole block is noted in `pending` instead of being written to every step, and a search passes
//! a block by its smallest and largest use. Invariant, whenever an operation of the occupancy has ended: a block has 1
//! to [`RESTING_STEPS`] steps, `start` is the time of the first, `min` and `max` are exact.

use crate::time::Time;

/// Room in a block. Measured: 32 to 128 differ by little; smaller blocks make long scans slower, larger ones changes.
pub(super) const BLOCK_STEPS: usize = 64;
/// Most steps between operations: a change inserts at most two before the block is split.
pub(super) const RESTING_STEPS: usize = BLOCK_STEPS - 2;
/// A block with fewer steps than this is joined with a neighbour, if that leaves room for as many again.
const SPARSE_STEPS: usize = BLOCK_STEPS / 4;

/// From `time` on, until the next step, `raw` plus the block's `pending` is used. The `raw` of one block are in the
/// order of what is used, since they were settled together and only `pending` has changed since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub time: Time,
    pub raw: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Time of the first step, kept here so that a search for a block stays in one array.
    pub start: Time,
    /// To be added to every `raw`, modulo 2^64: a removal is noted as the complement of its amount.
    pub pending: u64,
    /// Smallest use in the block.
    pub min: u64,
    /// Largest use in the block.
    pub max: u64,
    /// The steps, ascending in time.
    pub steps: Vec<Step>,
}

impl Block {
    /// A block of `steps`, which hold what is used without anything pending. There is at least one.
    pub fn new(steps: Vec<Step>) -> Self {
        let mut block = Self { start: Time::ZERO, pending: 0, min: 0, max: 0, steps };
        block.summarize();
        block
    }

    /// The use from the step at `index` on.
    pub fn used(&self, index: usize) -> u64 {
        self.steps[index].raw.wrapping_add(self.pending)
    }

    /// The use from the last step on.
    pub fn last_used(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.raw.wrapping_add(self.pending))
    }

    /// The steps with what is used.
    pub fn iter(&self) -> impl Iterator<Item = (Time, u64)> + '_ {
        self.steps.iter().map(|step| (step.time, step.raw.wrapping_add(self.pending)))
    }

    /// Changes the use of the whole block by `delta`, modulo 2^64.
    pub fn shift(&mut self, delta: u64) {
        self.pending = self.pending.wrapping_add(delta);
        self.min = self.min.wrapping_add(delta);
        self.max = self.max.wrapping_add(delta);
    }

    /// Writes what is pending to the steps, so that these can be changed one by one.
    pub fn settle(&mut self) {
        if self.pending != 0 {
            shift_steps(&mut self.steps, self.pending);
            self.pending = 0;
        }
    }

    /// Inserts a step. Room grows by doubling up to a block's, never beyond.
    pub fn insert(&mut self, index: usize, step: Step) {
        let count = self.steps.len();
        if count == self.steps.capacity() {
            self.steps.reserve_exact(count.clamp(4, BLOCK_STEPS.saturating_sub(count).max(4)));
        }
        self.steps.insert(index, step);
    }

    /// Brings `start`, `min` and `max` up to date after steps of a settled block were changed.
    pub fn summarize(&mut self) {
        self.start = self.steps.first().map_or(Time::ZERO, |step| step.time);
        (self.min, self.max) = (u64::MAX, 0);
        for step in &self.steps {
            self.min = self.min.min(step.raw);
            self.max = self.max.max(step.raw);
        }
    }

    /// Cuts the block in two and returns the later half. The block is settled.
    pub fn split(&mut self) -> Block {
        let middle = self.steps.len() / 2;
        let mut later = Vec::with_capacity(BLOCK_STEPS);
        later.extend(self.steps.drain(middle..));
        self.summarize();
        Block::new(later)
    }

    /// Whether `self` and its neighbour `other` are to become one.
    pub fn should_join(&self, other: &Block) -> bool {
        self.steps.len().min(other.steps.len()) < SPARSE_STEPS
            && self.steps.len() + other.steps.len() <= 2 * SPARSE_STEPS
    }

    /// Appends the steps of the block behind this one.
    pub fn join(&mut self, mut later: Block) {
        self.settle();
        later.settle();
        self.steps.append(&mut later.steps);
        self.summarize();
    }
}

/// Changes the use of some steps by `delta`, modulo 2^64.
pub(super) fn shift_steps(steps: &mut [Step], delta: u64) {
    for step in steps {
        step.raw = step.raw.wrapping_add(delta);
    }
}
