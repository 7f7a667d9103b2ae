//! The two clocks of the node, as the pure core wants them.
//!
//! Invariant: all of a process reads one wall clock, which is believed as far as [`WallClock`] believes it.

use std::{
    fs,
    sync::{Mutex, MutexGuard, OnceLock},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use broker::{
    time::{Millis, Now, Time},
    wall_clock::{ClockDoubt, LastReading, Reading, WallClock, second_of},
};
use rustix::time::{ClockId, clock_gettime};

use crate::lock::locked;

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
        Now { monotonic: Millis(monotonic), utc: unix_time() }
    }

    /// The instant of a monotonic time.
    pub fn instant(self, at: Millis) -> tokio::time::Instant {
        // Nothing waits longer than a year in one go.
        let span = Duration::from_millis(at.0).min(self.started.elapsed() + Duration::from_secs(366 * 86_400));
        (self.started + span).into()
    }
}

/// The file in a data directory with the last reading of the clocks, which the next start and the keepers of runs go on from.
pub const CLOCK_FILE: &str = "clock.json";

/// Time since this machine was started, with the time that it was suspended.
pub fn since_start() -> Duration {
    let since_start = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (since_start.tv_sec.unsigned_abs(), since_start.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// The machine's clocks at this moment; the wall clock is at 0 when it is set before the Unix epoch.
fn reading() -> Reading {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Reading {
        running: Millis(u64::try_from(since_start().as_millis()).unwrap_or(u64::MAX)),
        wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
    }
}

static WALL: OnceLock<Mutex<WallClock>> = OnceLock::new();

fn wall() -> MutexGuard<'static, WallClock> {
    locked(WALL.get_or_init(|| Mutex::new(WallClock::new(reading()))))
}

/// Milliseconds since the Unix epoch, as far as the wall clock is believed; 0 on a clock that is set before it.
pub fn unix_ms() -> u64 {
    let mut wall = wall();
    u64::try_from(wall.read(reading())).unwrap_or(0)
}

/// The present second, as far as the wall clock is believed.
pub fn unix_time() -> Time {
    second_of(i64::try_from(unix_ms()).unwrap_or(i64::MAX))
}

/// Doubt about the wall clock at this moment; none while it is believed.
pub fn clock_doubt() -> Option<ClockDoubt> {
    let mut wall = wall();
    wall.read(reading());
    wall.doubt()
}

/// Believes the wall clock as it is.
pub fn confirm_clock() {
    wall().confirm(reading());
}

/// Goes on from what an earlier process has left.
pub fn resume_clock(last: &LastReading) {
    *wall() = WallClock::resumed(reading(), last, boot_name());
}

/// The reading that the next process goes on from.
pub fn last_reading() -> LastReading {
    wall().last(reading(), boot_name())
}

/// Name of this run of the machine; empty where the system has none, which is then taken for one run.
fn boot_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned())
}

/// A span of the core's clock as the standard library's.
pub fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.0)
}
