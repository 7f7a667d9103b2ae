//! Virtual time of a replay, in microseconds.
//!
//! Traces count whole seconds. The microseconds below them only order what happens within one second: a start takes
//! one, so jobs that start "at the same time" have an order that does not depend on how events are stored.
//! Invariant: a moment counts from the first submission of the trace.

/// Microseconds in a second.
pub const SECOND_US: i64 = 1_000_000;
/// What a start takes: long enough to give simultaneous starts an order, too short to be seen in any figure.
pub const START_US: i64 = 1;

/// A point in virtual time, in microseconds after the first submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub i64);

impl Moment {
    /// The beginning of a second.
    pub fn of_second(second: i64) -> Moment {
        Moment(second.saturating_mul(SECOND_US))
    }

    /// The second this moment is in.
    pub fn second(self) -> i64 {
        self.0.div_euclid(SECOND_US)
    }

    /// This moment, some whole seconds later.
    pub fn plus_seconds(self, seconds: i64) -> Moment {
        Moment(self.0.saturating_add(seconds.saturating_mul(SECOND_US)))
    }
}
