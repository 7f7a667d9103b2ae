//! Says so when this machine's clock and those of other sites part, and when they agree again; and has a clock believed that has jumped
//! when those of other sites show the same.
//!
//! Invariant: one line a change of how far the clocks are apart, and no two of them sooner than [`QUIET`] after each other, however
//! clocks jump. While the clock is not believed the gate lets no hold through.

use std::{path::Path, sync::Arc, time::Duration};

use broker::{ledger::Ledger, trust::SharedGate, wall_clock::ClockDoubt};
use discovery::ClockOffset;
use kolo_runtime::clock::{Clock, clock_doubt, confirm_clock, is_off, last_reading, resume_clock};
use kolo_storage::data_dir::{DataDir, DataDirError};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::api::upkeep::Upkeep;

/// Between two lines.
const QUIET: Duration = Duration::from_secs(60);
/// From one look at the clock to the next.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many other sites have to show a time before it is believed; where fewer are known, all of them.
const WITNESSES_MIN: usize = 3;
/// A step of the believed clock that is kept at once, in milliseconds: keepers of runs go by what is kept.
const JUMP_MS_MIN: u64 = 1_000;
/// So many looks are between two readings that are kept. A start on the same run of the machine allows for what drifts in between.
const LOOKS_A_READING: u32 = 600;

/// Opens the data directory with the room that a start needs, and goes on from the last reading of the clocks that is in it.
///
/// # Errors
/// As [`DataDir::open`].
pub fn open(data_dir: &Path) -> Result<(Clock, DataDir), DataDirError> {
    let data_dir = DataDir::open(data_dir)?;
    data_dir.make_room_to_start();
    if let Some(last) = data_dir.last_reading() {
        resume_clock(&last);
    }
    Ok((Clock::start(), data_dir))
}

/// Believes the clock of a machine that was off for long, where nothing is booked that would be over by it.
pub fn believe_where_nothing_is_lost(ledger: &Ledger, gate: &SharedGate) {
    if clock_doubt().is_some() && ledger.bookings().next().is_none() {
        confirm_clock();
        gate.lock().set_clock_believed(true);
    }
}

/// Watches this machine's clock for as long as it is waited for.
pub async fn watch_clock(upkeep: Arc<Upkeep>) {
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut watch, mut was_doubted, mut kept_started_ms) = (ClockWatch::default(), false, i64::MIN);
    for look in 0_u32.. {
        let now = every.tick().await;
        let offset = upkeep.discovery.clock_offset();
        watch.look(offset, now);
        let mut doubt = clock_doubt();
        let others = upkeep.discovery.view().site_count().saturating_sub(1);
        let agrees = |offset: ClockOffset| offset.sites >= others.min(WITNESSES_MIN) && !is_off(offset.median_ms);
        if doubt.is_some() && offset.is_some_and(agrees) {
            confirm_clock();
            info!("this machine's clock is believed: other sites show the same time");
            doubt = None;
        }
        upkeep.gate.lock().set_clock_believed(doubt.is_none());
        match doubt {
            Some(doubt) if !was_doubted => tell_of_doubt(doubt),
            None if was_doubted => info!("this machine's clock is believed again"),
            _ => {}
        }
        was_doubted = doubt.is_some();
        let last = last_reading();
        let has_jumped = last.started_ms.abs_diff(kept_started_ms) > JUMP_MS_MIN;
        if has_jumped || look.is_multiple_of(LOOKS_A_READING) {
            kept_started_ms = last.started_ms;
            let upkeep = upkeep.clone();
            let kept = tokio::task::spawn_blocking(move || upkeep.data_dir.keep_reading(&last)).await;
            if let Ok(Err(error)) = kept {
                warn!(%error, "the time is not kept for the next start");
            }
        }
    }
}

fn tell_of_doubt(ClockDoubt { ahead_s }: ClockDoubt) {
    error!(
        ahead_s,
        "this machine's clock has jumped, and is not believed: nothing is promised, forgotten or ended by it, until it is set back, \
         other sites show the same time, or the operator says that it is right (kolo doctor --clock-is-right)"
    );
}

/// What was said last.
#[derive(Debug, Default)]
pub struct ClockWatch {
    is_off: bool,
    said: Option<Instant>,
}

impl ClockWatch {
    /// Takes note of how far the clocks are apart, and says so if that is news.
    pub fn look(&mut self, offset: Option<ClockOffset>, now: Instant) {
        let Some(ClockOffset { sites, median_ms }) = offset else { return };
        match self.news(median_ms, now) {
            Some(true) => warn!(
                sites,
                ahead_ms = median_ms,
                "this machine's clock is not that of the other sites (ahead_ms: how far theirs is ahead), so reservations begin and \
                 end at the wrong time here; see whether it is synchronised (timedatectl)"
            ),
            Some(false) => info!(sites, ahead_ms = median_ms, "this machine's clock agrees with the other sites again"),
            None => {}
        }
    }

    /// Whether the clock is off now, if that has changed and may be said.
    fn news(&mut self, ahead_ms: i64, now: Instant) -> Option<bool> {
        let is_off = is_off(ahead_ms);
        if is_off == self.is_off || self.said.is_some_and(|said| now < said + QUIET) {
            return None;
        }
        (self.is_off, self.said) = (is_off, Some(now));
        Some(is_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_said_once_and_not_too_often() {
        let (mut watch, start) = (ClockWatch::default(), Instant::now());
        let seen = [
            (0, 100),
            (1, 4_999),
            (2, -5_000),
            (3, -6_000),
            (4, 0),
            (61, 0),
            (62, 7_000),
            (200, 0),
            (300, 5_000),
            (301, 9),
        ];
        let said: Vec<(u64, bool)> = seen
            .into_iter()
            .filter_map(|(at, ahead_ms)| Some((at, watch.news(ahead_ms, start + Duration::from_secs(at))?)))
            .collect();
        assert_eq!(said, [(2, true), (200, false), (300, true)]);
    }
}
