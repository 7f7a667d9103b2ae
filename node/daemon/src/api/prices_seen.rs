//! Whether anything costs something at other sites, for those who write a request.
//!
//! Invariant: all sites are looked at every two seconds at most, however many ask.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use kolo_runtime::lock::locked;

/// How long an answer to "does anything cost something" holds: the question is for everybody, and looking takes time in a large grid.
const SEEN_FOR: Duration = Duration::from_secs(2);

/// Whether some host of another site costs something, looked at now and then.
#[derive(Debug, Default)]
pub struct PricesSeen(Mutex<Option<(Instant, bool)>>);

impl PricesSeen {
    /// The answer of a short while ago, else what `look` finds.
    pub fn are_there(&self, now: Instant, look: impl FnOnce() -> bool) -> bool {
        let mut seen = locked(&self.0);
        let known = seen.filter(|(at, _)| now.saturating_duration_since(*at) < SEEN_FOR);
        let (_, are_there) = *seen.insert(known.unwrap_or_else(|| (now, look())));
        are_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_prices_now_and_then() {
        let (seen, start) = (PricesSeen::default(), Instant::now());
        assert!(!seen.are_there(start, || false));
        assert!(!seen.are_there(start + Duration::from_secs(1), || true), "not looked again");
        assert!(seen.are_there(start + SEEN_FOR, || true));
    }
}
