//! The occupancy of one resource on one host: a step function of time, kept in blocks of steps.
//!
//! A change touches the steps of at most two blocks and one field of each block between them; a search passes blocks
//! whole where their smallest or largest use settles the matter. So with n steps a change costs O(B + n/B) with B = 64,
//! reading a window costs its steps, and a step takes 16 bytes plus its share of the block: measured 17 as read or
//! cloned, 23 to 27 after random changes.
//!
//! Invariant: steps are strictly ascending in time, no step repeats the value before it, and the value before the first
//! step is zero, so equal functions have equal steps. See [`super::block`] for what holds of a block.

use std::fmt;

use super::{
    ScheduleError,
    block::{Block, RESTING_STEPS, Step, shift_steps},
    fit::Fit,
    segments::{Parts, Segments},
};
use crate::{
    amount::Amount,
    time::{Span, Time, Window},
};

/// Most steps that are accepted from outside for one occupancy.
pub const MAX_STEPS: usize = 4_000_000;
/// The latest end of a valid window, hence the latest time of a step.
pub(super) const TIME_LIMIT: Time = Time(2 * Time::MAX.0);

/// Occupancy of one resource on one host: a step function (the source's `Z_ij(t)`); 0 before the first step.
#[derive(Clone, Default)]
pub struct Occupancy {
    blocks: Vec<Block>,
}

/// Where a step is, or where one would be inserted.
#[derive(Clone, Copy)]
struct Position {
    block: usize,
    index: usize,
}

impl Occupancy {
    /// The occupancy that follows `steps`: `(t, used)` holds from `t` until the next step, before the first it is 0.
    ///
    /// # Errors
    /// A [`ScheduleError`] that names the index of the offending step: times must be strictly ascending and possible
    /// ends of a valid window, amounts at most [`Amount::MAX`], and there may be at most [`MAX_STEPS`].
    pub fn from_steps(steps: &[(Time, Amount)]) -> Result<Self, ScheduleError> {
        let mut builder = Builder::new(steps.len());
        for (time, amount) in steps {
            builder.push(*time, *amount)?;
        }
        Ok(builder.finish())
    }

    /// Takes in `steps` that follow those that are there; see [`Occupancy::from_steps`].
    ///
    /// # Errors
    /// A [`ScheduleError`] as there, the index counted from the first step of all; then some of the steps may be there.
    pub fn append(&mut self, steps: &[(Time, Amount)]) -> Result<(), ScheduleError> {
        let mut builder = Builder::after(std::mem::take(self));
        let appended = steps.iter().try_for_each(|(time, amount)| builder.push(*time, *amount));
        *self = builder.finish();
        appended
    }

    /// The same before `from`; of the later steps each `group` are one, with the largest use of them from the first on. So never less is
    /// used than here, and from the last step on just as much.
    #[must_use]
    pub fn coarsened(&self, from: Time, group: usize) -> Occupancy {
        let steps = self.steps();
        let (near, far) = steps.split_at(steps.partition_point(|(time, _)| *time < from));
        let mut builder = Builder::new(near.len() + far.len() / group.max(1) + 2);
        let (far, last) = far.split_at(far.len().saturating_sub(1));
        let far = far.chunks(group.max(1));
        let largest = |group: &[(Time, Amount)]| Some((group.first()?.0, group.iter().map(|(_, used)| *used).max()?));
        let near = near.iter().copied();
        for (time, used) in near.chain(far.filter_map(largest)).chain(last.iter().copied()) {
            // Ascending times are not refused, nor amounts that some host has.
            let _ = builder.push(time, used.min(Amount::MAX));
        }
        builder.finish()
    }

    /// Adds `amount` during `window`; nothing happens when the window is empty.
    ///
    /// The use saturates below 2^64. Amounts that were admitted never come near that: they stay below a capacity, which
    /// is at most [`Amount::MAX`]; without admission it takes 65,536 of the largest amount at one time.
    pub fn add(&mut self, window: Window, amount: Amount) {
        if window.start >= window.end || amount == Amount::ZERO {
            return;
        }
        let (first, last) = (self.cut(window.start), self.cut(window.end));
        let touched = &self.blocks[first.block..=last.block];
        let largest = touched.iter().fold(0, |largest, block| block.max.max(largest));
        self.shift(first, last, amount.0.min(u64::MAX - largest));
    }

    /// Removes `amount` during `window`; nothing happens when the window is empty.
    ///
    /// # Errors
    /// [`ScheduleError::NotReserved`] when the use would fall below zero somewhere; then nothing has changed.
    pub fn remove(&mut self, window: Window, amount: Amount) -> Result<(), ScheduleError> {
        if window.start >= window.end || amount == Amount::ZERO {
            return Ok(());
        }
        let (first, last) = (self.cut(window.start), self.cut(window.end));
        if !self.holds(first, last, amount.0) {
            self.shift(first, last, 0);
            return Err(ScheduleError::NotReserved { window, amount });
        }
        self.shift(first, last, amount.0.wrapping_neg());
        Ok(())
    }

    /// The use at `t`.
    #[must_use]
    pub fn used_at(&self, t: Time) -> Amount {
        self.in_force(t).map_or(Amount::ZERO, |at| Amount(self.blocks[at.block].used(at.index)))
    }

    /// The largest use in `window`; zero when the window is empty.
    #[must_use]
    pub fn peak(&self, window: Window) -> Amount {
        let mut largest = 0;
        for part in self.parts(window) {
            if part.block.max > largest {
                largest = part.max().max(largest);
            }
        }
        Amount(largest)
    }

    /// The earliest `t` in `[from, latest]` with `peak([t, t + duration)) <= limit`. A duration of zero fits anywhere.
    #[must_use]
    pub fn earliest_fit(&self, limit: Amount, duration: Span, from: Time, latest: Time) -> Option<Time> {
        self.fit(limit, duration).next_from(from, latest)
    }

    /// A search for windows at or below `limit`, which goes forward in time only.
    pub(super) fn fit(&self, limit: Amount, duration: Span) -> Fit<'_> {
        Fit::new(&self.blocks, limit, duration)
    }

    /// The use during `window`: first `(window.start, use there)`, then each change inside the window. Nothing when the
    /// window is empty.
    pub fn segments(&self, window: Window) -> impl Iterator<Item = (Time, Amount)> {
        Segments::new(self.parts(window), window)
    }

    /// All steps, none of which repeats the value before it.
    #[must_use]
    pub fn steps(&self) -> Vec<(Time, Amount)> {
        let mut steps = Vec::with_capacity(self.len());
        steps.extend(self.iter());
        steps
    }

    /// All steps in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Time, Amount)> {
        self.blocks.iter().flat_map(Block::iter).map(|(time, used)| (time, Amount(used)))
    }

    /// Number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.steps.len()).sum()
    }

    /// Whether nothing is used at any time.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether anything is used before `t`, so that [`Occupancy::forget_before`] would change something.
    pub(super) fn has_before(&self, t: Time) -> bool {
        self.blocks.first().is_some_and(|block| block.start < t)
    }

    /// Drops what is before `t`; every value from `t` on is unchanged, before it the use becomes zero.
    pub fn forget_before(&mut self, t: Time) {
        let Some(at) = self.in_force(t) else { return };
        let block = &mut self.blocks[at.block];
        block.settle();
        if block.steps[at.index].raw == 0 {
            block.steps.drain(..=at.index);
        } else {
            block.steps.drain(..at.index);
            block.steps[0].time = t;
        }
        self.blocks.drain(..at.block);
        self.tidy(0);
    }

    /// Asserts the invariants of this module and of [`super::block`].
    #[cfg(test)]
    pub(super) fn assert_invariants(&self) {
        let mut before = (Time(i64::MIN), Amount::ZERO);
        for step in self.iter() {
            assert!(step.0 > before.0 && step.1 != before.1, "{before:?} is followed by {step:?}");
            before = step;
        }
        for block in &self.blocks {
            assert!((1..=RESTING_STEPS).contains(&block.steps.len()), "{} steps", block.steps.len());
            assert_eq!(block.start, block.steps[0].time);
            assert_eq!(Some(block.min), block.iter().map(|step| step.1).min());
            assert_eq!(Some(block.max), block.iter().map(|step| step.1).max());
        }
        assert!(self.blocks.len() <= 1 + self.len() / 6, "{} blocks for {} steps", self.blocks.len(), self.len());
    }

    /// Number of blocks that a change has passed whole, so that a test can tell that it has met some.
    #[cfg(test)]
    pub(super) fn pending_blocks(&self) -> usize {
        self.blocks.iter().filter(|block| block.pending != 0).count()
    }

    /// The block in which a step at `t` is or belongs; 0 when `t` is before all.
    fn block_of(&self, t: Time) -> usize {
        self.blocks.partition_point(|block| block.start <= t).saturating_sub(1)
    }

    /// The last step at or before `t`.
    fn in_force(&self, t: Time) -> Option<Position> {
        let block = self.block_of(t);
        let index = self.blocks.get(block)?.steps.partition_point(|step| step.time <= t).checked_sub(1)?;
        Some(Position { block, index })
    }

    /// The blocks that `window` touches, each with its steps in force there.
    pub(super) fn parts(&self, window: Window) -> Parts<'_> {
        Parts::new(&self.blocks[self.block_of(window.start)..], window)
    }

    /// Makes sure that there is a step at `t`, and settles its block. The step may repeat the value before it.
    fn cut(&mut self, t: Time) -> Position {
        if self.blocks.is_empty() {
            self.blocks.reserve_exact(1);
            self.blocks.push(Block::new(vec![Step { time: t, raw: 0 }]));
            return Position { block: 0, index: 0 };
        }
        let at = self.block_of(t);
        let block = &mut self.blocks[at];
        block.settle();
        let index = block.steps.partition_point(|step| step.time < t);
        if block.steps.get(index).is_none_or(|step| step.time != t) {
            let raw = if index == 0 { 0 } else { block.steps[index - 1].raw };
            block.insert(index, Step { time: t, raw });
        }
        Position { block: at, index }
    }

    /// Whether at least `amount` is used from `first` until `last`. Both steps were made by [`Occupancy::cut`].
    fn holds(&self, first: Position, last: Position, amount: u64) -> bool {
        let enough = |steps: &[Step]| steps.iter().all(|step| step.raw >= amount);
        let steps = &self.blocks[first.block].steps;
        if first.block == last.block {
            return enough(&steps[first.index..last.index]);
        }
        enough(&steps[first.index..])
            && self.blocks[first.block + 1..last.block].iter().all(|block| block.min >= amount)
            && enough(&self.blocks[last.block].steps[..last.index])
    }

    /// Changes the use from `first` until `last` by `delta`, modulo 2^64. Both steps were made by [`Occupancy::cut`],
    /// and no value leaves its range.
    fn shift(&mut self, first: Position, last: Position, delta: u64) {
        if first.block == last.block {
            shift_steps(&mut self.blocks[first.block].steps[first.index..last.index], delta);
        } else {
            shift_steps(&mut self.blocks[first.block].steps[first.index..], delta);
            for block in &mut self.blocks[first.block + 1..last.block] {
                block.shift(delta);
            }
            shift_steps(&mut self.blocks[last.block].steps[..last.index], delta);
        }
        // Only these two differ from the step before them by another amount than they did.
        self.drop_if_repeated(last);
        self.drop_if_repeated(first);
        self.tidy(last.block);
        if first.block != last.block {
            self.tidy(first.block);
        }
    }

    /// Drops a step that repeats the value before it. Its block is settled.
    fn drop_if_repeated(&mut self, at: Position) {
        let before = match (at.block, at.index) {
            (0, 0) => 0,
            (block, 0) => self.blocks[block - 1].last_used(),
            (block, index) => self.blocks[block].steps[index - 1].raw,
        };
        let steps = &mut self.blocks[at.block].steps;
        if steps[at.index].raw == before {
            steps.remove(at.index);
        }
    }

    /// Restores what must hold of a settled block after its steps were changed: drops, splits or joins it where its
    /// size asks for that.
    fn tidy(&mut self, at: usize) {
        let block = &mut self.blocks[at];
        if block.steps.is_empty() {
            self.blocks.remove(at);
            return;
        }
        if block.steps.len() > RESTING_STEPS {
            let later = block.split();
            self.blocks.insert(at + 1, later);
            return;
        }
        block.summarize();
        let earlier = [Some(at), at.checked_sub(1)]
            .into_iter()
            .flatten()
            .find(|&earlier| self.blocks.get(earlier + 1).is_some_and(|later| self.blocks[earlier].should_join(later)));
        if let Some(earlier) = earlier {
            let later = self.blocks.remove(earlier + 1);
            self.blocks[earlier].join(later);
        }
    }
}

impl PartialEq for Occupancy {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Occupancy {}

impl fmt::Debug for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(time, used)| (time.0, used.0))).finish()
    }
}

/// Builds an occupancy from steps that come from outside, one by one.
pub(super) struct Builder {
    full: Vec<Block>,
    open: Vec<Step>,
    /// Time of the last step that was pushed.
    before: Time,
    /// Number of steps that were pushed.
    count: usize,
}

impl Builder {
    /// A builder for about `expected` steps; a wrong expectation costs only room that is given back.
    pub fn new(expected: usize) -> Self {
        let open = Vec::with_capacity(expected.min(RESTING_STEPS));
        Self {
            full: Vec::with_capacity(expected.min(MAX_STEPS).div_ceil(RESTING_STEPS)),
            open,
            before: Time(-1),
            count: 0,
        }
    }

    /// A builder whose steps follow those of an occupancy.
    fn after(occupancy: Occupancy) -> Self {
        let count = occupancy.len();
        let before = occupancy.blocks.last().and_then(|block| block.steps.last()).map_or(Time(-1), |step| step.time);
        Self { full: occupancy.blocks, open: Vec::new(), before, count }
    }

    /// Checks and appends one step; see [`Occupancy::from_steps`].
    pub fn push(&mut self, time: Time, amount: Amount) -> Result<(), ScheduleError> {
        let index = self.count;
        if index >= MAX_STEPS {
            return Err(ScheduleError::TooManySteps);
        }
        if !(Time::ZERO..=TIME_LIMIT).contains(&time) {
            return Err(ScheduleError::TimeOutOfRange { index, time });
        }
        if time <= self.before {
            return Err(ScheduleError::NotAscending { index, time, before: self.before });
        }
        if amount > Amount::MAX {
            return Err(ScheduleError::AmountTooLarge { index, amount });
        }
        (self.before, self.count) = (time, index + 1);
        let used_before =
            self.open.last().map_or_else(|| self.full.last().map_or(0, Block::last_used), |step| step.raw);
        if amount.0 != used_before {
            if self.open.len() == RESTING_STEPS {
                let steps = std::mem::replace(&mut self.open, Vec::with_capacity(RESTING_STEPS));
                self.full.push(Block::new(steps));
            }
            self.open.push(Step { time, raw: amount.0 });
        }
        Ok(())
    }

    /// The occupancy of all steps pushed.
    pub fn finish(mut self) -> Occupancy {
        if !self.open.is_empty() {
            self.open.shrink_to_fit();
            self.full.push(Block::new(self.open));
        }
        self.full.shrink_to_fit();
        Occupancy { blocks: self.full }
    }
}
