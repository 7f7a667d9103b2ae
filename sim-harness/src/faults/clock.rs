//! The clocks of one node: a wall clock that is wrong by a constant, and for a while by days, of which a node believes what
//! [`WallClock`] does; and a monotonic clock that runs a little too fast or too slow and starts anywhere.
//!
//! Invariant: the monotonic clock never goes back, and [`Clock::when`] is the first true time at which it shows a value.

use std::cell::Cell;

use broker::{
    time::{Millis, Now, Time},
    wall_clock::{Reading, WallClock, second_of},
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::options::Options;
use crate::engine::Moment;

/// True wall time at the start of every run.
const EPOCH_MS: i64 = 1_000_000_000;
const MILLION: u64 = 1_000_000;

/// The clocks of one node.
#[derive(Debug)]
pub struct Clock {
    skew_ms: i64,
    /// Milliseconds that the wall clock is off beside its skew.
    off_ms: i64,
    believed: Cell<WallClock>,
    /// Deliberate fault: the node believes whatever its wall clock shows.
    pub believes_all: bool,
    /// Local microseconds a true millisecond, times a thousand.
    rate: u64,
    base: u64,
}

/// The true wall time.
pub fn true_utc(now: Moment) -> Time {
    Time((EPOCH_MS + now.0 / 1000) / 1000)
}

impl Clock {
    /// Draws a node's clocks.
    pub fn draw(random: &mut Xoshiro256PlusPlus, options: &Options) -> Clock {
        let drift = random.random_range(-options.drift_ppm_max..=options.drift_ppm_max);
        let skew_ms = random.random_range(-options.skew_ms_max..=options.skew_ms_max);
        let (rate, base) = (MILLION.saturating_add_signed(drift), random.random_range(0..1_000_000));
        let first = Reading { running: Millis(base), wall_ms: EPOCH_MS + skew_ms };
        Clock { skew_ms, off_ms: 0, believed: Cell::new(WallClock::new(first)), believes_all: false, rate, base }
    }

    fn seen(&self, now: Moment) -> Reading {
        let now_ms = now.ms();
        let passed_ms = i64::try_from(now_ms).unwrap_or(i64::MAX / 2);
        let wall_ms = EPOCH_MS + passed_ms + self.skew_ms + self.off_ms;
        Reading { running: Millis(self.base + now_ms * self.rate / MILLION), wall_ms }
    }

    /// The wall clock is this far off from now on, beside its skew. Of one that is right the other sites say so.
    pub fn set(&mut self, off_ms: i64, now: Moment) {
        self.off_ms = off_ms;
        if off_ms == 0 {
            let seen = self.seen(now);
            self.believed.get_mut().confirm(seen);
        }
    }

    /// Whether the wall clock is off beside its skew.
    pub fn is_off(&self) -> bool {
        self.off_ms != 0
    }

    /// Whether the wall clock was believed when it was last read.
    pub fn is_believed(&self) -> bool {
        self.believes_all || self.believed.get().doubt().is_none()
    }

    /// The node starts anew, in the same run of its machine or in another one.
    pub fn restart(&self, now: Moment, is_rebooted: bool) {
        let seen = self.seen(now);
        let last = self.believed.get().last(seen, "before");
        let boot = if is_rebooted { "after" } else { "before" };
        self.believed.set(WallClock::resumed(seen, &last, boot));
    }

    /// Believed readings of the clocks at the true time `now`.
    pub fn now(&self, now: Moment) -> Now {
        let (seen, mut believed) = (self.seen(now), self.believed.get());
        let believed_ms = believed.read(seen);
        self.believed.set(believed);
        let utc = second_of(if self.believes_all { seen.wall_ms } else { believed_ms });
        Now { monotonic: seen.running, utc }
    }

    /// The first true time at which the monotonic clock shows `at`, or a time long after the end.
    pub fn when(&self, at: Millis) -> Moment {
        let passed = at.0.saturating_sub(self.base).min(u64::MAX / (2 * MILLION));
        Moment::of_ms((passed * MILLION).div_ceil(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_wake_up_is_never_early_and_at_most_a_tick_late() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..200 {
            let options = Options { drift_ppm_max: 10_000, ..Options::draw(&mut random) };
            let clock = Clock::draw(&mut random, &options);
            let at = Millis(clock.base + random.random_range(1..1_000_000));
            let when = clock.when(at);
            assert!(
                clock.now(when).monotonic >= at && clock.now(Moment(when.0 - 1)).monotonic < at,
                "{clock:?} {at:?}"
            );
        }
    }
}
