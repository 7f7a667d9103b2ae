//! Says so when this machine's clock and those of other sites part, and when they agree again.
//!
//! Invariant: one line a change, and no two of them sooner than [`QUIET`] after each other, however clocks jump.

use std::time::Duration;

use discovery::ClockOffset;
use kolo_runtime::clock::is_off;
use tokio::time::Instant;
use tracing::{info, warn};

/// Between two lines.
const QUIET: Duration = Duration::from_secs(60);

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
