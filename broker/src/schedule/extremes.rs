//! The smallest and largest use in each of many equal pieces of time, in one pass.
//!
//! This is how the planner reads a schedule (phase III). Invariant: a piece counts what is used during any second of it,
//! so a step that begins before the piece and lasts into it counts as well.

use super::{Occupancy, block::Step};
use crate::time::{Span, Time, Window};

/// What is used in one piece of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extremes {
    /// The least in any second.
    pub smallest: u64,
    /// The most in any second.
    pub largest: u64,
}

/// The pieces that are being filled.
struct Filler<'p> {
    pieces: &'p mut [Extremes],
    length: i64,
    at: usize,
    /// Where the current piece ends.
    end: i64,
    now: Extremes,
    used: u64,
}

impl Filler<'_> {
    fn read(&mut self, steps: &[Step], pending: u64) {
        for step in steps {
            let used = step.raw.wrapping_add(pending);
            if step.time.0 < self.end {
                self.now.smallest = used.min(self.now.smallest);
                self.now.largest = used.max(self.now.largest);
            } else {
                self.go_on_to(step.time.0, used);
            }
            self.used = used;
        }
    }

    /// Closes pieces until the one that holds `time`, from which on `used` is used.
    fn go_on_to(&mut self, time: i64, used: u64) {
        while time >= self.end {
            self.close();
        }
        if time == self.end - self.length {
            self.now = Extremes { smallest: used, largest: used };
        } else {
            self.now.smallest = used.min(self.now.smallest);
            self.now.largest = used.max(self.now.largest);
        }
    }

    fn close(&mut self) {
        self.pieces[self.at] = self.now;
        self.at += 1;
        self.end += self.length;
        self.now = Extremes { smallest: self.used, largest: self.used };
    }
}

impl Occupancy {
    /// Fills `pieces`, each `length` long and at least a second, the first from `start` on.
    pub(crate) fn extremes(&self, start: Time, length: Span, pieces: &mut [Extremes]) {
        // Spans that came through a request are below 2^38, and there are at most a few thousand pieces.
        let length = length.0.cast_signed();
        let end = start.0 + length * pieces.len().cast_signed() as i64;
        let mut parts = self.parts(Window { start, end: Time(end) });
        let mut filler = Filler { pieces, length, at: 0, end: start.0 + length, now: Extremes::default(), used: 0 };
        if let Some(part) = parts.next() {
            let mut steps = part.steps;
            if let Some((first, rest)) = steps.split_first()
                && first.time <= start
            {
                filler.used = first.raw.wrapping_add(part.block.pending);
                steps = rest;
            }
            filler.now = Extremes { smallest: filler.used, largest: filler.used };
            filler.read(steps, part.block.pending);
            parts.for_each(|part| filler.read(part.steps, part.block.pending));
        }
        while filler.at < filler.pieces.len() {
            filler.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::amount::Amount;

    proptest! {
        #[test]
        fn pieces_count_every_second(
            steps in prop::collection::btree_map(0_i64..400, 0_u64..9, 0..200),
            start in 0_i64..120, length in 1_i64..40, count in 1_usize..30,
        ) {
            let steps: Vec<_> = steps.into_iter().map(|(time, used)| (Time(time), Amount(used))).collect();
            let occupancy = Occupancy::from_steps(&steps).unwrap();
            let mut pieces = vec![Extremes::default(); count];
            occupancy.extremes(Time(start), Span(length.unsigned_abs()), &mut pieces);
            for (index, piece) in (0_i64..).zip(&pieces) {
                let seconds = start + index * length..start + (index + 1) * length;
                let used = |second| occupancy.used_at(Time(second)).0;
                prop_assert_eq!(piece.smallest, seconds.clone().map(used).min().unwrap());
                prop_assert_eq!(piece.largest, seconds.map(used).max().unwrap());
            }
        }
    }
}
