//! The two clocks of this crate: a monotonic one for ages and time-outs, and UTC for what other sites read.
//!
//! Invariant: [`Clock::now`] never goes back, and goes on in suspension where the node's source of time does; [`Clock::utc_ms`] may (it is the machine's) and is only compared with
//! what others signed, within the bound on skew.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use broker::time::{Millis, Time};

/// A length of time in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Time since this process first asked, without the time that the machine was suspended.
pub(crate) fn process_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Reads the machine's clocks. All parts of one node share one, so that their ages can be compared.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Time since some fixed moment; never goes back.
    source: fn() -> Duration,
    /// What it showed when the clock was made.
    start: Duration,
}

impl Clock {
    /// A clock whose monotonic zero is now.
    #[must_use]
    pub fn starting_now() -> Clock {
        Clock::counting(process_time)
    }

    /// A clock whose monotonic zero is now and which goes on with `source`.
    pub(crate) fn counting(source: fn() -> Duration) -> Clock {
        Clock { source, start: source() }
    }

    /// Milliseconds since the clock was made.
    #[must_use]
    pub fn now(&self) -> Millis {
        millis((self.source)().saturating_sub(self.start))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn ages_grow_with_what_the_source_of_time_shows() {
        static SHOWN_S: AtomicU64 = AtomicU64::new(100);
        let clock = Clock::counting(|| Duration::from_secs(SHOWN_S.load(Ordering::Relaxed)));
        assert_eq!(clock.now(), Millis(0));
        // The machine was suspended for an hour.
        SHOWN_S.store(3_700, Ordering::Relaxed);
        assert_eq!(clock.now(), Millis(3_600_000));
        SHOWN_S.store(50, Ordering::Relaxed);
        assert_eq!(clock.now(), Millis(0), "no time is before the start");
    }

    #[test]
    fn clocks_of_one_source_agree() {
        let (one, other) = (Clock::starting_now(), Clock::starting_now());
        assert!(other.now() <= one.now(), "the one that was made first shows more");
    }
}
