//! How often a peer or an author may do something.
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

    /// Whether a further event of `peer` would be above its allowance; counts nothing.
    #[must_use]
    pub fn is_spent(&self, peer: &PeerId, now: Millis) -> bool {
        now - self.window_start < self.window && self.counts.get(peer).is_some_and(|count| *count >= self.allowed)
    }
}

/// Tokens that come back at a steady rate, up to a store that serves bursts.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    per_s: u64,
    burst: u64,
    /// Thousandths of a token.
    milli_tokens: u64,
    at: Millis,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(per_s: u64, burst: u64, now: Millis) -> TokenBucket {
        TokenBucket { per_s, burst, milli_tokens: burst.saturating_mul(1000), at: now }
    }

    /// Takes `count` tokens, or none when there are fewer.
    pub fn take(&mut self, count: u64, now: Millis) -> bool {
        self.refill(now);
        let wanted = count.saturating_mul(1000);
        let is_enough = self.milli_tokens >= wanted;
        if is_enough {
            self.milli_tokens -= wanted;
        }
        is_enough
    }

    /// Puts tokens back that were taken.
    pub fn give_back(&mut self, count: u64) {
        let given = count.saturating_mul(1000);
        self.milli_tokens = self.milli_tokens.saturating_add(given).min(self.burst.saturating_mul(1000));
    }

    /// How many tokens there are.
    pub fn available(&mut self, now: Millis) -> u64 {
        self.refill(now);
        self.milli_tokens / 1000
    }

    /// Whether all tokens have come back, so that nothing is lost by forgetting the bucket.
    pub fn is_full(&mut self, now: Millis) -> bool {
        self.available(now) >= self.burst
    }

    fn refill(&mut self, now: Millis) {
        let gained = (now - self.at).0.saturating_mul(self.per_s);
        self.milli_tokens = self.milli_tokens.saturating_add(gained).min(self.burst.saturating_mul(1000));
        self.at = self.at.max(now);
    }
}

/// A bucket for each peer.
#[derive(Debug)]
pub struct PeerBuckets {
    per_s: u64,
    burst: u64,
    keys_max: usize,
    buckets: BTreeMap<PeerId, TokenBucket>,
    overflow: TokenBucket,
}

impl PeerBuckets {
    /// A bucket of `burst` tokens, `per_s` of which come back in a second, for each of at most `keys_max` peers.
    #[must_use]
    pub fn new(per_s: u32, burst: u32, keys_max: usize) -> PeerBuckets {
        let (per_s, burst) = (u64::from(per_s), u64::from(burst));
        let overflow = TokenBucket::new(per_s, burst, Millis(0));
        PeerBuckets { per_s, burst, keys_max, buckets: BTreeMap::new(), overflow }
    }

    /// Takes `count` tokens of the peer, or none when it has fewer.
    pub fn take(&mut self, peer: PeerId, count: u64, now: Millis) -> bool {
        if self.buckets.len() >= self.keys_max && !self.buckets.contains_key(&peer) {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            if self.buckets.len() >= self.keys_max {
                return self.overflow.take(count, now);
            }
        }
        let fresh = TokenBucket::new(self.per_s, self.burst, now);
        self.buckets.entry(peer).or_insert(fresh).take(count, now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_peer_has_its_allowance_again_in_each_window() {
        let mut limit = RateLimit::new(2, Millis(100), 10);
        let (a, b) = (PeerId::random(), PeerId::random());
        assert!(limit.admit(a, Millis(1000)) && limit.admit(a, Millis(1001)));
        assert!(limit.is_spent(&a, Millis(1002)) && !limit.is_spent(&b, Millis(1002)));
        assert!(!limit.admit(a, Millis(1002)));
        assert!(limit.admit(b, Millis(1002)));
        assert!(!limit.is_spent(&a, Millis(1100)));
        assert!(limit.admit(a, Millis(1100)));
    }

    #[test]
    fn made_up_names_share_one_allowance() {
        let mut limit = RateLimit::new(3, Millis(100), 5);
        let admitted = (0..100).filter(|_| limit.admit(PeerId::random(), Millis(500))).count();
        assert_eq!(admitted, 5 + 3);
        assert!(limit.counts.len() <= 5);

        let mut buckets = PeerBuckets::new(1, 3, 5);
        let admitted = (0..100).filter(|_| buckets.take(PeerId::random(), 1, Millis(500))).count();
        assert_eq!(admitted, 5 + 3);
        assert!(buckets.take(PeerId::random(), 3, Millis(9000)), "full buckets are forgotten");
        assert!(buckets.buckets.len() <= 5);
    }

    proptest! {
        #[test]
        fn a_bucket_gives_at_most_its_burst_and_its_rate(takes in proptest::collection::vec((0_u64..300, 1_u64..5), 1..200)) {
            let (per_s, burst) = (20, 10);
            let mut bucket = TokenBucket::new(per_s, burst, Millis(0));
            let mut given: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (gap, count) in takes {
                now += gap;
                if bucket.take(count, Millis(now)) {
                    given.push((now, count));
                } else {
                    // Refused only when the plain account, the tokens given since some moment, says so.
                    let is_due = (0..given.len()).any(|from| {
                        let sum: u64 = given[from..].iter().map(|(_, count)| count).sum();
                        (sum + count) * 1000 > burst * 1000 + (now - given[from].0) * per_s
                    });
                    prop_assert!(is_due || count > burst);
                }
                for from in 0..given.len() {
                    let sum: u64 = given[from..].iter().map(|(_, count)| count).sum();
                    prop_assert!(sum * 1000 <= burst * 1000 + (now - given[from].0) * per_s);
                }
            }
        }
    }
}
