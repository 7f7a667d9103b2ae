//! How often callers without a token may call: an allowance for each address, for each user, and for all together.
//!
//! Invariant: at most [`CALLERS_MAX`] callers of a kind are remembered; beyond them the one that has most left goes. An
//! attacker with many addresses is bounded by the allowance of all together, at the cost of other callers without a token.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

use broker::trust::PublicKey;

use crate::runtime::lock::locked;

/// Most addresses, and most users, that are remembered.
const CALLERS_MAX: usize = 1_024;
/// Of one address (IPv4) or one /64 (IPv6).
const OF_ADDRESS: Allowance = Allowance { most: 60, every: Duration::from_millis(100) };
/// Of all addresses together.
const OF_ALL: Allowance = Allowance { most: 200, every: Duration::from_millis(10) };
/// Submissions on one account.
const OF_ACCOUNT: Allowance = Allowance { most: 20, every: Duration::from_secs(3) };

/// How much may be used at once, and how soon one comes back.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    most: u32,
    every: Duration,
}

/// What one caller has left. The time at which all is there again says everything: what has not come back yet is used.
#[derive(Debug, Clone, Copy)]
struct Left(Instant);

impl Left {
    /// Uses `cost` up if it is there.
    fn take(&mut self, cost: u32, allowance: Allowance, now: Instant) -> bool {
        let full_at = self.0.max(now) + allowance.every * cost;
        let is_there = full_at <= now + allowance.every * allowance.most;
        if is_there {
            self.0 = full_at;
        }
        is_there
    }
}

/// What callers of one kind have left.
struct Callers<K>(BTreeMap<K, Left>);

impl<K: Ord + Copy> Callers<K> {
    fn take(&mut self, who: K, cost: u32, allowance: Allowance, now: Instant) -> bool {
        if !self.0.contains_key(&who) && self.0.len() >= CALLERS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, left)| left.0).map(|(who, _)| *who);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        self.0.entry(who).or_insert(Left(now)).take(cost, allowance, now)
    }
}

/// What callers without a token have left.
pub struct Rates {
    addresses: Mutex<(Left, Callers<IpAddr>)>,
    accounts: Mutex<Callers<PublicKey>>,
}

impl Rates {
    /// Nobody has called yet.
    pub fn new(now: Instant) -> Rates {
        Rates {
            addresses: Mutex::new((Left(now), Callers(BTreeMap::new()))),
            accounts: Mutex::new(Callers(BTreeMap::new())),
        }
    }

    /// Whether a call of this cost may be made now from `prefix`; then it is counted.
    pub fn take(&self, prefix: IpAddr, cost: u32, now: Instant) -> bool {
        let (all, each) = &mut *locked(&self.addresses);
        each.take(prefix, cost, OF_ADDRESS, now) && all.take(cost, OF_ALL, now)
    }

    /// Whether a request may be submitted on `account` now; then it is counted.
    pub fn submit(&self, account: PublicKey, now: Instant) -> bool {
        locked(&self.accounts).take(account, 1, OF_ACCOUNT, now)
    }
}

#[cfg(test)]
mod tests {
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
    fn all_together_and_the_table_are_bounded() {
        let start = Instant::now();
        let rates = Rates::new(start);
        let taken = (0..5_000).filter(|number| rates.take(address(*number), 1, start)).count();
        assert_eq!(taken, 200);
        assert_eq!(locked(&rates.addresses).1.0.len(), CALLERS_MAX);
    }

    #[test]
    fn a_user_submits_at_a_rate_of_its_own() {
        let start = Instant::now();
        let rates = Rates::new(start);
        let [one, other] = [1, 2].map(|byte| PublicKey::from_bytes([byte; 32]));
        assert!((0..20).all(|_| rates.submit(one, start)) && !rates.submit(one, start) && rates.submit(other, start));
        assert!(rates.submit(one, start + Duration::from_secs(3)));
    }
}
