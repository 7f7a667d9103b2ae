//! Who may have a connection at a door.
//!
//! Invariant: a door never has more connections than [`DoorLimits`] says, from anywhere or from one address; who has one
//! counts until its [`Place`] is dropped.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use discovery::prefix_of;
use kolo_runtime::{lock::locked, metrics::DoorFigures, rare::Rare};
use tracing::warn;

/// What one door bears.
#[derive(Debug, Clone, Copy)]
pub struct DoorLimits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Of these from one address (IPv4) or one /64 (IPv6).
    pub per_prefix_max: usize,
    /// How long one may go without a call, and the header of a call may take.
    pub idle: Duration,
}

/// The places of one door.
pub struct Places {
    /// What the door bears.
    pub limits: DoorLimits,
    taken: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    figures: DoorFigures,
    refused: Rare,
    failed: Rare,
}

impl Places {
    /// All free.
    pub fn new(limits: DoorLimits, figures: DoorFigures) -> Places {
        Places { limits, taken: Arc::default(), figures, refused: Rare::default(), failed: Rare::default() }
    }

    /// Whoever came cannot be taken, because of `error`; it is counted and told.
    pub fn none_came(&mut self, error: &io::Error) {
        self.figures.failed.inc();
        if let Some(times) = self.failed.add(Instant::now()) {
            warn!(times, %error, "no connection to the API can be taken");
        }
    }

    /// Whoever came is of another user; it is counted and told.
    pub fn turned_away(&mut self) {
        self.figures.refused_address.inc();
        if let Some(refused) = self.refused.add(Instant::now()) {
            warn!(refused, "connections of other users to the API's socket were refused");
        }
    }

    /// A place for a connection from `from`; none when there is none left, which is counted and told.
    pub fn take(&mut self, from: IpAddr) -> Option<Place> {
        let prefix = prefix_of(from);
        let mut taken = locked(&self.taken);
        let (all, of_prefix) = (taken.values().sum::<usize>(), taken.get(&prefix).copied().unwrap_or(0));
        let counter = if all >= self.limits.connections_max {
            &self.figures.refused_full
        } else if of_prefix >= self.limits.per_prefix_max {
            &self.figures.refused_address
        } else {
            taken.insert(prefix, of_prefix + 1);
            self.figures.open.inc();
            return Some(Place { prefix, taken: Arc::clone(&self.taken), figures: self.figures.clone() });
        };
        counter.inc();
        if let Some(refused) = self.refused.add(Instant::now()) {
            warn!(
                refused,
                %from,
                "connections to the API were refused: this door bears {} at a time, {} from one address",
                self.limits.connections_max,
                self.limits.per_prefix_max
            );
        }
        None
    }
}

/// The right to have one connection, given back when it is dropped.
pub struct Place {
    prefix: IpAddr,
    taken: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    figures: DoorFigures,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        if let Some(count) = taken.get_mut(&self.prefix) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.prefix);
            }
        }
        self.figures.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_by_address_and_come_back() {
        let figures = DoorFigures::default();
        let mut places =
            Places::new(DoorLimits { connections_max: 3, per_prefix_max: 2, idle: Duration::ZERO }, figures.clone());
        let at = |ip: &str| ip.parse::<IpAddr>().unwrap();
        let one = places.take(at("192.0.2.1")).unwrap();
        let _two = places.take(at("::ffff:192.0.2.1")).unwrap();
        assert!(places.take(at("192.0.2.1")).is_none());
        let _three = places.take(at("2001:db8::1")).unwrap();
        assert!(places.take(at("192.0.2.2")).is_none());
        assert_eq!((figures.open.get(), figures.refused_address.get(), figures.refused_full.get()), (3, 1, 1));
        drop(one);
        let _again = places.take(at("2001:db8::2")).unwrap();
        assert!(places.take(at("2001:db8::3")).is_none());
        assert_eq!((figures.open.get(), figures.refused_full.get()), (3, 2));
    }
}
