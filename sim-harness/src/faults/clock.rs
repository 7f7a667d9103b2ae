//! The clocks of one node: a wall clock that is wrong by a constant, and a monotonic clock that runs a little too fast
//! or too slow and starts anywhere.
//!
//! Invariant: the monotonic clock never goes back, and [`Clock::when`] is the first true time at which it shows a value.

use broker::time::{Millis, Now, Time};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::options::Options;
use crate::engine::Moment;

/// True wall time at the start of every run.
const EPOCH_MS: i64 = 1_000_000_000;
const MILLION: u64 = 1_000_000;

/// The clocks of one node.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    skew_ms: i64,
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
        Clock {
            skew_ms: random.random_range(-options.skew_ms_max..=options.skew_ms_max),
            rate: MILLION.saturating_add_signed(drift),
            base: random.random_range(0..1_000_000),
        }
    }

    /// What the clocks show at the true time `now`.
    pub fn now(&self, now: Moment) -> Now {
        let now_ms = now.ms();
        let wall_ms = EPOCH_MS + i64::try_from(now_ms).unwrap_or(i64::MAX / 2) + self.skew_ms;
        Now { monotonic: Millis(self.base + now_ms * self.rate / MILLION), utc: Time(wall_ms / 1000) }
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
