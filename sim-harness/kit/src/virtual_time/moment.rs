//! Virtual time, in microseconds.
//!
//! Invariant: a moment counts from the beginning of its run (in a replay, from the first submission of the trace); sums and
//! differences saturate.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use broker::time::Millis;

/// Microseconds in a second.
pub const SECOND_US: i64 = 1_000_000;
const MILLISECOND_US: i64 = 1_000;

/// A point in virtual time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub i64);

impl Moment {
    /// The beginning of a second.
    pub fn of_second(second: i64) -> Moment {
        Moment(second.saturating_mul(SECOND_US))
    }

    /// The beginning of a millisecond.
    pub fn of_ms(ms: u64) -> Moment {
        Moment(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(MILLISECOND_US))
    }

    /// The second that this moment is in.
    pub fn second(self) -> i64 {
        self.0.div_euclid(SECOND_US)
    }

    /// The millisecond that this moment is in; 0 before the beginning.
    pub fn ms(self) -> u64 {
        u64::try_from(self.0 / MILLISECOND_US).unwrap_or(0)
    }

    /// What a monotonic clock shows that shows 0 at the beginning.
    pub fn millis(self) -> Millis {
        Millis(self.ms())
    }

    /// This moment, some whole seconds later.
    pub fn plus_seconds(self, seconds: i64) -> Moment {
        Moment(self.0.saturating_add(seconds.saturating_mul(SECOND_US)))
    }

    /// This moment, some milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Moment {
        self + Duration::from_millis(ms)
    }

    /// Whole milliseconds that have passed since an earlier moment; 0 when that is later.
    pub fn ms_since(self, earlier: Moment) -> u64 {
        Moment(self.0.saturating_sub(earlier.0)).ms()
    }

    /// This moment, so much earlier.
    pub fn before(self, length: Duration) -> Moment {
        Moment(self.0.saturating_sub(us(length)))
    }
}

fn us(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, length: Duration) -> Moment {
        Moment(self.0.saturating_add(us(length)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// What has passed since an earlier moment; nothing when that is later.
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
