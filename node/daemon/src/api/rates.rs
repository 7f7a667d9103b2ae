//! How often callers without a token may call: an allowance for each address, for each user, and for all together.
//!
//! Invariant: at most [`CALLERS_MAX`] callers of a kind are remembered; those beyond share one allowance. An attacker with
//! many addresses is bounded by the allowance of all together, at the cost of other callers without a token.

use std::{net::IpAddr, sync::Mutex, time::Instant};

use broker::{time::Millis, trust::PublicKey};
use discovery::{Buckets, Rate, TokenBucket};
use kolo_runtime::lock::locked;

/// Most addresses, and most users, that are remembered.
const CALLERS_MAX: usize = 1_024;

/// What callers without a token have left.
pub struct Rates {
    /// When the buckets' time began.
    start: Instant,
    /// Of all addresses together, and of each one (IPv4) or /64 (IPv6).
    addresses: Mutex<(TokenBucket, Buckets<IpAddr>)>,
    /// Submissions on one account.
    accounts: Mutex<Buckets<PublicKey>>,
}

impl Rates {
    /// Nobody has called yet.
    pub fn new(now: Instant) -> Rates {
        let all = TokenBucket::new(Rate::per_s(100, 200), Millis(0));
        let each = Buckets::new(Rate::per_s(10, 60), CALLERS_MAX);
        let accounts = Buckets::new(Rate::in_10_s(4).at_once(20), CALLERS_MAX);
        Rates { start: now, addresses: Mutex::new((all, each)), accounts: Mutex::new(accounts) }
    }

    /// Whether a call of this cost may be made now from `prefix`; then it is counted.
    pub fn take(&self, prefix: IpAddr, cost: u32, now: Instant) -> bool {
        let (all, each) = &mut *locked(&self.addresses);
        let now = self.since_start(now);
        each.take(prefix, u64::from(cost), now) && all.take(u64::from(cost), now)
    }

    /// Whether so many requests may be submitted on `account` now; then they are counted.
    pub fn submit(&self, account: PublicKey, count: u64, now: Instant) -> bool {
        locked(&self.accounts).take(account, count, self.since_start(now))
    }

    fn since_start(&self, now: Instant) -> Millis {
        let since = now.saturating_duration_since(self.start);
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn an_address_gets_its_allowance_and_what_comes_back() {
        let start = Instant::now();
        let rates = Rates::new(start);
        assert!((0..60).all(|_| rates.take(address(1), 1, start)) && !rates.take(address(1), 1, start));
        assert!(rates.take(address(2), 60, start), "another address has its own");
        let later = start + Duration::from_millis(250);
        assert!(!rates.take(address(1), 3, later) && rates.take(address(1), 2, later));
        let full = start + Duration::from_hours(1);
        assert!(!rates.take(address(1), 61, full) && rates.take(address(1), 60, full));
    }

    #[test]
    fn all_together_are_bounded() {
        let start = Instant::now();
        let rates = Rates::new(start);
        let taken = (0..5_000).filter(|number| rates.take(address(*number), 1, start)).count();
        assert_eq!(taken, 200);
    }

    #[test]
    fn a_user_submits_at_a_rate_of_its_own() {
        let start = Instant::now();
        let rates = Rates::new(start);
        let [one, other] = [1, 2].map(|byte| PublicKey::from_bytes([byte; 32]));
        assert!((0..20).all(|_| rates.submit(one, 1, start)) && !rates.submit(one, 1, start));
        assert!(!rates.submit(other, 21, start) && rates.submit(other, 20, start), "all of them or none");
        assert!(rates.submit(one, 1, start + Duration::from_millis(2_500)));
    }
}
