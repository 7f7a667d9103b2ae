//! How often something may happen, in all or for each peer, author or prefix.
//!
//! Invariant: at most `keys_max` keys are remembered; those above share a single bucket, so that making up
//! names gains nothing.

use std::collections::BTreeMap;

use broker::time::Millis;

/// How fast tokens come back, and how many there are at most.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Millionths of a token in a millisecond.
    micro_per_ms: u64,
    burst: u64,
}

const MICRO: u64 = 1_000_000;

impl Rate {
    /// So many a second, of which `burst` may come at once.
    #[must_use]
    pub fn per_s(per_s: u32, burst: u32) -> Rate {
        Rate { micro_per_ms: u64::from(per_s) * MICRO / 1_000, burst: u64::from(burst) }
    }

    /// So many in ten seconds, all of which may come at once.
    #[must_use]
    pub fn in_10_s(count: u32) -> Rate {
        Rate { micro_per_ms: u64::from(count) * MICRO / 10_000, burst: u64::from(count) }
    }

    /// The same rate, with another number that may come at once.
    #[must_use]
    pub fn at_once(self, burst: u32) -> Rate {
        Rate { burst: u64::from(burst), ..self }
    }
}

/// Tokens that come back at a steady rate, up to a store that serves bursts.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    rate: Rate,
    micro_tokens: u64,
    /// What was charged above the tokens that were there; it comes back first.
    micro_debt: u64,
    at: Millis,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Rate, now: Millis) -> TokenBucket {
        TokenBucket { rate, micro_tokens: rate.burst.saturating_mul(MICRO), micro_debt: 0, at: now }
    }

    /// Takes `count` tokens, or none when there are fewer.
    pub fn take(&mut self, count: u64, now: Millis) -> bool {
        self.refill(now);
        let wanted = count.saturating_mul(MICRO);
        let is_enough = self.micro_tokens >= wanted;
        if is_enough {
            self.micro_tokens -= wanted;
        }
        is_enough
    }

    /// Takes `count` tokens for what has happened already; those that are not there are owed, at most as many as may come at once.
    pub fn charge(&mut self, count: u64, now: Millis) {
        self.refill(now);
        let wanted = count.saturating_mul(MICRO);
        let there = wanted.min(self.micro_tokens);
        self.micro_tokens -= there;
        let most = self.rate.burst.saturating_mul(MICRO);
        self.micro_debt = self.micro_debt.saturating_add(wanted - there).min(most);
    }

    /// Puts tokens back that were taken.
    pub fn give_back(&mut self, count: u64) {
        self.put_in(count.saturating_mul(MICRO));
    }

    /// Whether there is no token.
    pub fn is_empty(&mut self, now: Millis) -> bool {
        self.refill(now);
        self.micro_tokens < MICRO
    }

    /// Whether all tokens have come back, so that nothing is lost by forgetting the bucket.
    fn is_full(&mut self, now: Millis) -> bool {
        self.refill(now);
        self.micro_tokens >= self.rate.burst.saturating_mul(MICRO)
    }

    fn refill(&mut self, now: Millis) {
        self.put_in((now - self.at).0.saturating_mul(self.rate.micro_per_ms));
        self.at = self.at.max(now);
    }

    fn put_in(&mut self, micro_tokens: u64) {
        let most = self.rate.burst.saturating_mul(MICRO);
        let paid = micro_tokens.min(self.micro_debt);
        self.micro_debt -= paid;
        let micro_tokens = micro_tokens - paid;
        self.micro_tokens = self.micro_tokens.saturating_add(micro_tokens).min(most);
    }
}

/// A bucket for each key.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    keys_max: usize,
    buckets: BTreeMap<K, TokenBucket>,
    overflow: TokenBucket,
}

impl<K: Ord> Buckets<K> {
    /// Full buckets for at most `keys_max` keys.
    #[must_use]
    pub fn new(rate: Rate, keys_max: usize) -> Buckets<K> {
        Buckets { rate, keys_max, buckets: BTreeMap::new(), overflow: TokenBucket::new(rate, Millis(0)) }
    }

    /// Takes `count` tokens of the key, or none when it has fewer.
    pub fn take(&mut self, key: K, count: u64, now: Millis) -> bool {
        self.bucket(key, now).take(count, now)
    }

    /// Takes `count` tokens of the key for what has happened already.
    pub fn charge(&mut self, key: K, count: u64, now: Millis) {
        self.bucket(key, now).charge(count, now);
    }

    fn bucket(&mut self, key: K, now: Millis) -> &mut TokenBucket {
        if self.buckets.len() >= self.keys_max && !self.buckets.contains_key(&key) {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            if self.buckets.len() >= self.keys_max {
                return &mut self.overflow;
            }
        }
        let fresh = TokenBucket::new(self.rate, now);
        self.buckets.entry(key).or_insert(fresh)
    }

    /// Whether the key has no token.
    pub fn is_spent(&mut self, key: &K, now: Millis) -> bool {
        let is_full = self.buckets.len() >= self.keys_max;
        let bucket = self.buckets.get_mut(key).or_else(|| is_full.then_some(&mut self.overflow));
        bucket.is_some_and(|bucket| bucket.is_empty(now))
    }
}

#[cfg(test)]
mod tests {
    use libp2p::PeerId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_peer_has_its_share_and_gets_it_back_with_time() {
        let mut limit = Buckets::new(Rate::in_10_s(2), 10);
        let (a, b) = (PeerId::random(), PeerId::random());
        assert!(limit.take(a, 1, Millis(1000)) && limit.take(a, 1, Millis(1001)));
        assert!(limit.is_spent(&a, Millis(1002)) && !limit.is_spent(&b, Millis(1002)));
        assert!(!limit.take(a, 1, Millis(1002)));
        assert!(limit.take(b, 1, Millis(1002)));
        assert!(limit.is_spent(&a, Millis(5999)) && !limit.is_spent(&a, Millis(6000)));
        assert!(limit.take(a, 1, Millis(6000)) && !limit.take(a, 1, Millis(6001)));
    }

    #[test]
    fn what_was_charged_too_much_is_owed() {
        let mut buckets = Buckets::new(Rate::per_s(10, 20), 5);
        let peer = PeerId::random();
        buckets.charge(peer, 1_000, Millis(0));
        assert!(buckets.is_spent(&peer, Millis(2_000)), "20 are owed, no more, and come back within two seconds");
        assert!(!buckets.is_spent(&peer, Millis(2_100)));
        assert!(buckets.take(peer, 1, Millis(2_100)) && !buckets.take(peer, 1, Millis(2_100)));
        assert!(!buckets.is_spent(&PeerId::random(), Millis(0)));
    }

    #[test]
    fn made_up_names_share_one_bucket() {
        let mut buckets = Buckets::new(Rate::per_s(1, 3), 5);
        let admitted = (0..100).filter(|_| buckets.take(PeerId::random(), 1, Millis(500))).count();
        assert_eq!(admitted, 5 + 3);
        assert!(buckets.take(PeerId::random(), 3, Millis(9000)), "full buckets are forgotten");
        assert!(buckets.buckets.len() <= 5);
    }

    proptest! {
        #[test]
        fn a_bucket_gives_at_most_its_burst_and_its_rate(takes in proptest::collection::vec((0_u64..300, 1_u64..5), 1..200)) {
            let (per_s, burst) = (20, 10);
            let mut bucket = TokenBucket::new(Rate::per_s(20, 10), Millis(0));
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
