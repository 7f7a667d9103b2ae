//! The search for the earliest window in which an occupancy stays at or below a limit.
//!
//! A [`Fit`] goes forward only and remembers how far it has seen that there is room, so a search over several resources
//! that has to go round many times still looks at each step about once. Invariant: the use is at or below the limit in
//! the whole of `[free_from, free_to)`, which may be empty, and the next step to look at is the one in force at
//! `free_to`.

use super::block::Block;
use crate::{
    amount::Amount,
    time::{Span, Time},
};

/// After all time: where the value of the last step ends.
const FOREVER: Time = Time(i64::MAX);

/// See the module.
pub(super) struct Fit<'a> {
    blocks: &'a [Block],
    limit: u64,
    duration: Span,
    free_from: Time,
    free_to: Time,
    /// The next step to look at, by block and index; no block is left when `free_to` is [`FOREVER`].
    block: usize,
    index: usize,
}

impl<'a> Fit<'a> {
    /// A search over all of `blocks` that begins before all time, when nothing is used.
    pub fn new(blocks: &'a [Block], limit: Amount, duration: Span) -> Self {
        let mut fit =
            Self { blocks, limit: limit.0, duration, free_from: Time(i64::MIN), free_to: FOREVER, block: 0, index: 0 };
        fit.free_to = fit.start_of_block();
        fit
    }

    /// The earliest start in `[from, latest]`. `from` never goes back from one call to the next.
    pub fn next_from(&mut self, from: Time, latest: Time) -> Option<Time> {
        self.skip_to(from);
        let mut start = from.max(self.free_from);
        while start <= latest {
            if self.is_free_until(start + self.duration) {
                return Some(start);
            }
            if !self.pass_occupied(latest) {
                return None;
            }
            start = start.max(self.free_from);
        }
        None
    }

    /// Passes over the steps that are not in force at `t` any more.
    fn skip_to(&mut self, t: Time) {
        if t <= self.free_to {
            return;
        }
        let left = &self.blocks[self.block..];
        let ended = left.partition_point(|block| block.start <= t).saturating_sub(1);
        if ended > 0 {
            self.block += ended;
            self.index = 0;
        }
        if let Some(block) = self.blocks.get(self.block) {
            let later = block.steps[self.index..].partition_point(|step| step.time <= t);
            self.index += later.saturating_sub(1);
            (self.free_from, self.free_to) = (t, t);
        }
    }

    /// Looks ahead until it is certain that there is room until `goal`, or a step is in the way.
    fn is_free_until(&mut self, goal: Time) -> bool {
        while self.free_to < goal {
            let Some(block) = self.blocks.get(self.block) else { return true };
            let in_the_way = if block.max <= self.limit {
                None
            } else {
                let steps = &block.steps[self.index..];
                steps.iter().position(|step| step.raw.wrapping_add(block.pending) > self.limit || step.time >= goal)
            };
            if let Some(passed) = in_the_way {
                self.index += passed;
                self.free_to = block.steps[self.index].time;
                return self.free_to >= goal;
            }
            self.enter_next_block();
        }
        true
    }

    /// Passes over the steps above the limit. False when they reach beyond `latest`.
    fn pass_occupied(&mut self, latest: Time) -> bool {
        while let Some(block) = self.blocks.get(self.block) {
            if block.start > latest {
                return false;
            }
            if block.min <= self.limit {
                let steps = &block.steps[self.index..];
                let free = steps.iter().position(|step| step.raw.wrapping_add(block.pending) <= self.limit);
                if let Some(passed) = free {
                    self.index += passed;
                    self.free_from = block.steps[self.index].time;
                    self.free_to = self.free_from;
                    return true;
                }
            }
            self.enter_next_block();
        }
        false
    }

    fn enter_next_block(&mut self) {
        self.block += 1;
        self.index = 0;
        self.free_to = self.start_of_block();
    }

    fn start_of_block(&self) -> Time {
        self.blocks.get(self.block).map_or(FOREVER, |block| block.start)
    }
}
