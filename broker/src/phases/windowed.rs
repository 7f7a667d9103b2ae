//! The largest use in a window that slides over one occupancy.
//!
//! Invariant: the changes reported are strictly ascending in time and each differs from the value before it, so they
//! describe `Z_ij^t` for every start in the range exactly.

use std::collections::VecDeque;

use super::problem::signed_use;
use crate::{
    amount::Amount,
    schedule::Occupancy,
    time::{Span, Time, Window},
};

/// Room for the steps of one occupancy, kept between calls.
#[derive(Default)]
pub(crate) struct SlidingPeak {
    /// Steps that may still become the largest: when each one ends, and its use. Uses fall strictly.
    candidates: VecDeque<(i64, i64)>,
    /// Steps of the occupancy that matter: `(time, use)`.
    steps: Vec<(i64, i64)>,
}

impl SlidingPeak {
    /// Reports `Z^t` for starts `t` in `[first, last]`: the value at `first` is returned, each later change goes to
    /// `change(t, used)`. Uses above `limit` all count as `limit + 1`, which spares changes nobody asks about.
    pub fn follow(
        &mut self,
        occupancy: &Occupancy,
        duration: Span,
        (first, last): (Time, Time),
        limit: i64,
        change: impl FnMut(i64, i64),
    ) -> i64 {
        self.collect(occupancy, duration, first, last, limit);
        // Spans that came through a request are below 2^38.
        let length = duration.0.cast_signed();
        self.candidates.clear();
        let end = last.0 + length;
        let mut changes = Changes { first: first.0, at_first: 0, current: 0, pending: None, change };
        for (index, &(start, used)) in self.steps.iter().enumerate() {
            let enters = start - length + 1;
            while let Some(&(leaves, _)) = self.candidates.front()
                && leaves < enters
            {
                self.candidates.pop_front();
                if let Some(&(_, next)) = self.candidates.front() {
                    changes.note(leaves, next);
                }
            }
            while self.candidates.back().is_some_and(|(_, smaller)| *smaller <= used) {
                self.candidates.pop_back();
            }
            let step_end = self.steps.get(index + 1).map_or(end, |(time, _)| *time);
            let is_largest = self.candidates.is_empty();
            self.candidates.push_back((step_end, used));
            if is_largest {
                changes.note(enters, used);
            }
        }
        while let Some((leaves, _)) = self.candidates.pop_front()
            && leaves <= last.0
            && let Some(&(_, next)) = self.candidates.front()
        {
            changes.note(leaves, next);
        }
        changes.flush();
        changes.at_first
    }

    /// The steps that decide: where every window of the range overlaps, one step stands for all.
    fn collect(&mut self, occupancy: &Occupancy, duration: Span, first: Time, last: Time, limit: i64) {
        self.steps.clear();
        let shared = Window { start: last, end: first + duration };
        if shared.start < shared.end {
            self.copy(occupancy.segments(Window { start: first, end: shared.start }), limit);
            self.copy(std::iter::once((shared.start, occupancy.peak(shared))), limit);
            self.copy(occupancy.segments(Window { start: shared.end, end: last + duration }), limit);
        } else {
            self.copy(occupancy.segments(Window { start: first, end: last + duration }), limit);
        }
    }

    fn copy(&mut self, steps: impl Iterator<Item = (Time, Amount)>, limit: i64) {
        for (time, used) in steps {
            let used = signed_use(used).min(limit.saturating_add(1));
            if self.steps.last().is_none_or(|(_, before)| *before != used) {
                self.steps.push((time.0, used));
            }
        }
    }
}

/// Passes changes on, the last of those at one time only, and none that changes nothing.
struct Changes<F> {
    first: i64,
    /// The value when everything at or before `first` has happened.
    at_first: i64,
    /// The value passed on last.
    current: i64,
    /// A change that another at the same time may still replace.
    pending: Option<(i64, i64)>,
    change: F,
}

impl<F: FnMut(i64, i64)> Changes<F> {
    /// Notes the value from `time` on; times never fall.
    fn note(&mut self, time: i64, used: i64) {
        if time <= self.first {
            self.at_first = used;
            self.current = used;
            return;
        }
        if self.pending.is_some_and(|(at, _)| at != time) {
            self.flush();
        }
        self.pending = Some((time, used));
    }

    fn flush(&mut self) {
        if let Some((time, used)) = self.pending.take()
            && used != self.current
        {
            (self.change)(time, used);
            self.current = used;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_reports_the_peak_of_every_window(
            steps in prop::collection::btree_map(0_i64..60, 0_u64..6, 0..25),
            duration in 1_u64..30, first in 0_i64..50, range in 0_i64..40, limit in 0_i64..7,
        ) {
            let steps: Vec<_> = steps.into_iter().map(|(time, used)| (Time(time), Amount(used))).collect();
            let occupancy = Occupancy::from_steps(&steps).unwrap();
            let mut changes = Vec::new();
            let (begin, end) = (Time(first), Time(first + range));
            let at_first = SlidingPeak::default()
                .follow(&occupancy, Span(duration), (begin, end), limit, |time, used| changes.push((time, used)));
            prop_assert!(changes.iter().all(|(time, _)| (first + 1..=first + range).contains(time)));
            let mut now = at_first;
            for start in first..=first + range {
                if let Some((_, used)) = changes.iter().find(|(time, _)| *time == start) {
                    prop_assert_ne!(*used, now);
                    now = *used;
                }
                let expected = signed_use(occupancy.peak(Window::starting(Time(start), Span(duration))));
                prop_assert_eq!(now, expected.min(limit + 1), "at {}", start);
            }
        }
    }
}
