//! The two clocks of the node, as the pure core wants them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use broker::time::{Millis, Now, Time};

/// From this difference to the clocks of other sites on, in milliseconds, people are told. A message takes a second or so at
/// most, and windows are whole seconds.
const OFF_MS_MAX: u64 = 5_000;

/// Whether this machine's clock is off, when those of other sites are so far ahead of it.
pub fn is_off(ahead_ms: i64) -> bool {
    ahead_ms.unsigned_abs() >= OFF_MS_MAX
}

/// Reads both clocks; clones agree with each other.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// Starts the monotonic clock at zero.
    pub fn start() -> Clock {
        Clock { started: Instant::now() }
    }

    /// What both clocks show.
    pub fn now(self) -> Now {
        let monotonic = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { monotonic: Millis(monotonic), utc: Time(i64::try_from(unix_ms() / 1000).unwrap_or(i64::MAX)) }
    }

    /// The instant of a monotonic time.
    pub fn instant(self, at: Millis) -> tokio::time::Instant {
        // Nothing waits longer than a year in one go.
        let span = Duration::from_millis(at.0).min(self.started.elapsed() + Duration::from_secs(366 * 86_400));
        (self.started + span).into()
    }
}

/// Milliseconds since the Unix epoch; 0 on a clock that is set before it.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A span of the core's clock as the standard library's.
pub fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.0)
}
