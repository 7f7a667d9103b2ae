//! The two clocks of this crate: a monotonic one for ages and time-outs, and UTC for what other sites read.
//!
//! Invariant: [`Clock::now`] never goes back; [`Clock::utc_ms`] may (it is the machine's) and is only compared with
//! what others signed, within the bound on skew.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use broker::time::{Millis, Time};

/// A length of time in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the machine's clocks. All parts of one node share one, so that their ages can be compared.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic zero is now.
    #[must_use]
    pub fn starting_now() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Milliseconds since the clock was made.
    #[must_use]
    pub fn now(&self) -> Millis {
        Millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Unix milliseconds; zero on a machine whose clock is before 1970.
    #[must_use]
    pub fn utc_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    /// Unix seconds, as schedules count.
    #[must_use]
    pub fn utc(&self) -> Time {
        Time(i64::try_from(self.utc_ms() / 1000).unwrap_or(Time::MAX.0))
    }
}
