//! How far a wall clock is believed. Whoever sets it, or a machine that wakes with a wrong one, can put it days off within a moment;
//! what a node forgets, ends or charges by such a time is gone for good.
//!
//! Invariant: the time that is believed parts by at most [`OFF_MS_MAX`] an hour from a clock that nobody can set, unless somebody else
//! than the wall clock has confirmed it.

use serde::{Deserialize, Serialize};

use super::time::{Millis, Time};

/// The wall clock may gain or lose this much in an hour and be believed, in milliseconds: clocks of machines drift by seconds a day, and
/// a leap second is one.
pub const OFF_MS_MAX: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
/// For so long after a start, in milliseconds, a machine may synchronise its clock at last.
const SETTLES_MS: u64 = 600_000;
/// After a start of the machine the wall clock may be this much later than the last time on disk, in milliseconds: longer than a
/// night, shorter than what reservations are made for.
pub const STANDSTILL_MS_MAX: i64 = 24 * HOUR_MS;

/// What two clocks of a machine show at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Milliseconds since the machine started, suspended or not. Nobody can set it.
    pub running: Millis,
    /// Unix milliseconds. Anybody who may set clocks can change it.
    pub wall_ms: i64,
}

impl Reading {
    /// The wall clock when the machine started, as it follows from both.
    fn started_ms(self) -> i64 {
        self.wall_ms.saturating_sub(whole(self.running))
    }
}

/// The last reading that was believed, as it outlives the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastReading {
    /// Name of the run of the machine in which it was read; only within one run the clock that nobody sets goes on.
    pub boot: String,
    /// The clock that nobody can set, in milliseconds.
    pub running_ms: u64,
    /// Unix milliseconds.
    pub wall_ms: i64,
    /// The start of the machine that was believed, in Unix milliseconds.
    pub started_ms: i64,
}

/// Why the wall clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDoubt {
    /// How far it is ahead of what is believed, in seconds; below zero when it is behind.
    pub ahead_s: i64,
}

/// A machine has started of late, which may have no clock of its own while it is off, or a slow one, and learn the time only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settling {
    earliest_ms: i64,
    /// The latest start of the machine that is believed, in Unix milliseconds.
    latest_ms: i64,
    until: Millis,
}

/// The wall clock of a node, as far as it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock {
    /// The start of the machine, in Unix milliseconds, that is believed: the wall clock less the running one.
    started_ms: i64,
    /// What may be gained or lost without a confirmation, when some of it was last spent.
    spare_ms: i64,
    spent_at: Millis,
    settles: Option<Settling>,
    doubt: Option<ClockDoubt>,
}

impl WallClock {
    /// Begins with what the clocks show, which is believed where nothing older is known.
    #[must_use]
    pub fn new(seen: Reading) -> WallClock {
        WallClock {
            started_ms: seen.started_ms(),
            spare_ms: OFF_MS_MAX,
            spent_at: seen.running,
            settles: None,
            doubt: None,
        }
    }

    /// Goes on from the last reading of an earlier process, which may have been of this run of the machine, by the name `boot`.
    #[must_use]
    pub fn resumed(seen: Reading, last: &LastReading, boot: &str) -> WallClock {
        let mut clock = WallClock::new(seen);
        if last.boot == boot && last.running_ms <= seen.running.0 {
            clock.started_ms = last.started_ms;
        } else {
            // How long the machine was off, nobody knows: without a time within the bound the present is the last one on disk.
            let earliest_ms = last.wall_ms.saturating_sub(whole(seen.running));
            let latest_ms = earliest_ms.saturating_add(STANDSTILL_MS_MAX);
            let until = Millis(seen.running.0.saturating_add(SETTLES_MS));
            clock.started_ms = earliest_ms;
            clock.settles = Some(Settling { earliest_ms, latest_ms, until });
        }
        clock.read(seen);
        clock
    }

    /// The Unix time in milliseconds that is believed when the clocks show `seen`.
    pub fn read(&mut self, seen: Reading) -> i64 {
        let started_ms = seen.started_ms();
        let settles = |settling: Settling| {
            seen.running <= settling.until && (settling.earliest_ms..=settling.latest_ms).contains(&started_ms)
        };
        if self.settles.is_some_and(settles) {
            self.started_ms = started_ms;
        }
        let gained_ms = started_ms.saturating_sub(self.started_ms);
        let spare_ms = self.spare_ms(seen.running);
        if gained_ms.saturating_abs() > spare_ms {
            self.doubt = Some(ClockDoubt { ahead_s: gained_ms / 1_000 });
            return self.started_ms.saturating_add(whole(seen.running));
        }
        if gained_ms != 0 {
            (self.started_ms, self.spare_ms, self.spent_at) = (started_ms, spare_ms - gained_ms.abs(), seen.running);
        }
        self.doubt = None;
        seen.wall_ms
    }

    fn spare_ms(&self, running: Millis) -> i64 {
        let refilled = whole(running - self.spent_at).min(HOUR_MS) * OFF_MS_MAX / HOUR_MS;
        (self.spare_ms + refilled).min(OFF_MS_MAX)
    }

    /// Believes the wall clock as it is: an operator says that it is right, or the clocks of other sites do.
    pub fn confirm(&mut self, seen: Reading) {
        *self = WallClock::new(seen);
    }

    /// Why the wall clock was not believed when it was last read.
    #[must_use]
    pub fn doubt(&self) -> Option<ClockDoubt> {
        self.doubt
    }

    /// What an earlier process leaves to the next one.
    #[must_use]
    pub fn last(&mut self, seen: Reading, boot: &str) -> LastReading {
        let wall_ms = self.read(seen);
        LastReading { boot: boot.to_owned(), running_ms: seen.running.0, wall_ms, started_ms: self.started_ms }
    }
}

fn whole(millis: Millis) -> i64 {
    i64::try_from(millis.0).unwrap_or(i64::MAX)
}

/// The whole second of a Unix time in milliseconds.
#[must_use]
pub fn second_of(unix_ms: i64) -> Time {
    Time(unix_ms.div_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_MS: i64 = 24 * HOUR_MS;
    const START_MS: i64 = 1_700_000_000_000;

    fn at(running_ms: u64, off_ms: i64) -> Reading {
        Reading { running: Millis(running_ms), wall_ms: START_MS + i64::try_from(running_ms).unwrap() + off_ms }
    }

    #[test]
    fn days_off_for_a_while_are_not_believed_and_pass() {
        for days in [3, -3] {
            let mut clock = WallClock::new(at(5_000, 0));
            assert_eq!(clock.read(at(6_000, days * DAY_MS)), at(6_000, 0).wall_ms);
            assert_eq!(clock.doubt(), Some(ClockDoubt { ahead_s: days * 86_400 }));
            assert_eq!(
                clock.read(at(44_000, days * DAY_MS)),
                at(44_000, 0).wall_ms,
                "the present goes on all the while"
            );
            assert_eq!(clock.read(at(45_000, 0)), at(45_000, 0).wall_ms);
            assert_eq!(clock.doubt(), None);
        }
    }

    #[test]
    fn a_confirmed_jump_is_believed() {
        for days in [3, -3] {
            let mut clock = WallClock::new(at(5_000, 0));
            clock.read(at(6_000, days * DAY_MS));
            clock.confirm(at(7_000, days * DAY_MS));
            let later = at(8_000, days * DAY_MS);
            assert_eq!((clock.read(later), clock.doubt()), (later.wall_ms, None));
        }
    }

    #[test]
    fn a_clock_that_drifts_is_believed_for_years() {
        let mut clock = WallClock::new(at(0, 0));
        for hour in 1..20_000_u32 {
            // A thousandth is more than crystals are wrong by.
            let seen = at(u64::from(hour) * 3_600_000, -i64::from(hour) * 3_600);
            assert_eq!((clock.read(seen), clock.doubt()), (seen.wall_ms, None));
        }
    }

    #[test]
    fn time_that_a_machine_was_suspended_is_no_jump() {
        let mut clock = WallClock::new(at(5_000, 0));
        let asleep_ms = 9 * 3_600_000;
        assert_eq!(clock.read(at(5_000 + asleep_ms, 0)), at(5_000 + asleep_ms, 0).wall_ms);
        assert_eq!(clock.doubt(), None);
    }

    #[test]
    fn a_restart_goes_on_from_the_last_reading() {
        let last = WallClock::new(at(5_000, 0)).last(at(6_000, 0), "boot 1");
        let same_boot = WallClock::resumed(at(9_000, 3 * DAY_MS), &last, "boot 1");
        assert_eq!(same_boot.doubt(), Some(ClockDoubt { ahead_s: 3 * 86_400 }));
        let on = |off_ms: i64| {
            let seen = Reading { running: Millis(2_000), wall_ms: last.wall_ms + off_ms };
            let mut clock = WallClock::resumed(seen, &last, "boot 2");
            (clock.read(seen), clock.doubt().is_some())
        };
        assert_eq!(on(STANDSTILL_MS_MAX), (last.wall_ms + STANDSTILL_MS_MAX, false), "it was off for a night");
        assert_eq!(on(3 * DAY_MS), (last.wall_ms, true));
        assert_eq!(on(-3 * DAY_MS), (last.wall_ms, true));
    }

    #[test]
    fn a_machine_without_a_clock_of_its_own_may_learn_the_time_after_its_start() {
        let last = WallClock::new(at(5_000, 0)).last(at(6_000, 0), "boot 1");
        let boot = |running_ms: u64, wall_ms: i64| Reading { running: Millis(running_ms), wall_ms };
        let mut clock = WallClock::resumed(boot(1_000, 0), &last, "boot 2");
        assert_eq!(
            (clock.read(boot(2_000, 1_000)), clock.doubt().is_some()),
            (last.wall_ms + 1_000, true),
            "it begins in 1970"
        );
        let synchronised = last.wall_ms + 3 * HOUR_MS;
        assert_eq!((clock.read(boot(60_000, synchronised)), clock.doubt()), (synchronised, None));
        let later = boot(2_000 + SETTLES_MS, synchronised + 20 * HOUR_MS);
        assert!(clock.read(later) < later.wall_ms && clock.doubt().is_some(), "after ten minutes it has its time");
    }

    proptest! {
        /// However often and far the wall clock is set, the believed time parts by a minute an hour at most from the one that nobody
        /// sets, and is the wall clock where that is not doubted.
        #[test]
        fn nothing_parts_by_more_than_the_bound(
            steps in proptest::collection::vec((1_u64..7_200_000, -200_000_i64..200_000), 1..80),
        ) {
            let mut clock = WallClock::new(at(0, 0));
            let (mut running_ms, mut off_ms) = (0, 0);
            for (passed, set_ms) in steps {
                running_ms += passed;
                off_ms += set_ms;
                let seen = at(running_ms, off_ms);
                let believed = clock.read(seen);
                let hours = i64::try_from(running_ms / 3_600_000).unwrap() + 1;
                prop_assert!((believed - at(running_ms, 0).wall_ms).abs() <= OFF_MS_MAX * (hours + 1));
                prop_assert_eq!(believed == seen.wall_ms, clock.doubt().is_none());
            }
        }
    }
}
