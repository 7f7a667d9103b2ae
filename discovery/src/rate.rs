//! How often a peer or an author may do something within a window of time.
//!
//! Invariant: at most `keys_max` keys are remembered, whoever sends; when there are more in one window, the ones above
//! share a single allowance, so that making up names gains nothing.

use std::collections::BTreeMap;

use broker::time::Millis;
use libp2p::PeerId;

/// Counts by peer in fixed windows.
#[derive(Debug)]
pub struct RateLimit {
    window: Millis,
    allowed: u32,
    keys_max: usize,
    window_start: Millis,
    counts: BTreeMap<PeerId, u32>,
    overflow: u32,
}

impl RateLimit {
    /// Allows each of at most `keys_max` peers `allowed` events in each window.
    #[must_use]
    pub fn new(allowed: u32, window: Millis, keys_max: usize) -> RateLimit {
        RateLimit { window, allowed, keys_max, window_start: Millis(0), counts: BTreeMap::new(), overflow: 0 }
    }

    /// Counts an event of `peer`; false when it is above the allowance.
    pub fn admit(&mut self, peer: PeerId, now: Millis) -> bool {
        if now - self.window_start >= self.window {
            self.window_start = now;
            self.counts.clear();
            self.overflow = 0;
        }
        let is_known = self.counts.contains_key(&peer);
        let count = if is_known || self.counts.len() < self.keys_max {
            self.counts.entry(peer).or_default()
        } else {
            &mut self.overflow
        };
        *count = count.saturating_add(1);
        *count <= self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_allowance_again_in_each_window() {
        let mut limit = RateLimit::new(2, Millis(100), 10);
        let (a, b) = (PeerId::random(), PeerId::random());
        assert!(limit.admit(a, Millis(1000)) && limit.admit(a, Millis(1001)));
        assert!(!limit.admit(a, Millis(1002)));
        assert!(limit.admit(b, Millis(1002)));
        assert!(limit.admit(a, Millis(1100)));
    }

    #[test]
    fn made_up_names_share_one_allowance() {
        let mut limit = RateLimit::new(3, Millis(100), 5);
        let admitted = (0..100).filter(|_| limit.admit(PeerId::random(), Millis(500))).count();
        assert_eq!(admitted, 5 + 3);
        assert!(limit.counts.len() <= 5);
    }
}
