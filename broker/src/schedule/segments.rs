//! Reading a window of an occupancy, block by block or step by step.
//!
//! Invariant: the first step read is the one in force at the window's start, the last one is before its end.

use std::slice;

use super::block::{Block, Step};
use crate::{
    amount::Amount,
    time::{Time, Window},
};

/// A block that a window touches, and those of its steps that are in force inside.
pub(super) struct Part<'a> {
    pub block: &'a Block,
    pub steps: &'a [Step],
}

impl Part<'_> {
    /// The largest use among the steps.
    pub fn max(&self) -> u64 {
        if self.steps.len() == self.block.steps.len() {
            return self.block.max;
        }
        let largest = self.steps.iter().fold(None, |largest, step| largest.max(Some(step.raw)));
        largest.map_or(0, |raw| raw.wrapping_add(self.block.pending))
    }
}

/// The parts of an occupancy inside a window.
pub(super) struct Parts<'a> {
    blocks: slice::Iter<'a, Block>,
    window: Window,
}

impl<'a> Parts<'a> {
    /// `blocks` begins with the block in force at the window's start.
    pub fn new(blocks: &'a [Block], window: Window) -> Self {
        Self { blocks: if window.start < window.end { blocks.iter() } else { [].iter() }, window }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let block = self.blocks.next()?;
        if block.start >= self.window.end {
            self.blocks = [].iter();
            return None;
        }
        let mut steps = &block.steps[..];
        // Only the last block in the window can reach beyond its end, and only the first before its start.
        if self.blocks.as_slice().first().is_none_or(|next| next.start >= self.window.end) {
            steps = &steps[..steps.partition_point(|step| step.time < self.window.end)];
        }
        if block.start < self.window.start {
            let after = steps.partition_point(|step| step.time <= self.window.start);
            steps = &steps[after - 1..];
        }
        Some(Part { block, steps })
    }
}

/// The use during a window, change by change.
pub(super) struct Segments<'a> {
    /// What is left of the part that is being read.
    steps: slice::Iter<'a, Step>,
    pending: u64,
    parts: Parts<'a>,
    /// The first item and the steps behind it, until it was taken.
    head: Option<((Time, Amount), slice::Iter<'a, Step>)>,
}

impl<'a> Segments<'a> {
    /// Reads `parts`, which are those of `window`.
    pub fn new(mut parts: Parts<'a>, window: Window) -> Self {
        let (mut steps, pending) = parts.next().map_or(([].iter(), 0), |part| (part.steps.iter(), part.block.pending));
        let in_force = steps.as_slice().first().copied().filter(|step| step.time <= window.start);
        let used = in_force.map_or(0, |step| step.raw.wrapping_add(pending));
        if in_force.is_some() {
            steps.next();
        }
        let head = (window.start < window.end).then_some(((window.start, Amount(used)), steps));
        Self { steps: [].iter(), pending, parts, head }
    }

    /// Begins the next part. Kept out of [`Iterator::next`], whose usual way is then short enough to be inlined.
    #[inline(never)]
    fn enter(&mut self) -> Option<(Time, Amount)> {
        if let Some((first, steps)) = self.head.take() {
            self.steps = steps;
            return Some(first);
        }
        let part = self.parts.next()?;
        self.pending = part.block.pending;
        self.steps = part.steps.iter();
        self.steps.next().map(|step| (step.time, Amount(step.raw.wrapping_add(self.pending))))
    }
}

impl Iterator for Segments<'_> {
    type Item = (Time, Amount);

    #[inline]
    fn next(&mut self) -> Option<(Time, Amount)> {
        match self.steps.next() {
            Some(step) => Some((step.time, Amount(step.raw.wrapping_add(self.pending)))),
            None => self.enter(),
        }
    }
}
