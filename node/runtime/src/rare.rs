//! Events that may come in any number and are worth a line of the log once a minute.

use std::time::{Duration, Instant};

/// Between two lines of the log of one kind.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Events of a kind that were not told yet.
#[derive(Debug, Default)]
pub struct Rare {
    untold: u64,
    told: Option<Instant>,
}

impl Rare {
    /// One more at `now`; how many there were since the last time that this was worth a line, when it is again.
    pub fn add(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_at_once_and_then_once_a_minute() {
        let (mut events, start) = (Rare::default(), Instant::now());
        let told: Vec<Option<u64>> = [0, 1, 59, 60, 61].map(|at| events.add(start + Duration::from_secs(at))).into();
        assert_eq!(told, [Some(1), None, None, Some(3), None]);
    }
}
