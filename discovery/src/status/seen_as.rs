//! This node's address as other nodes see it: behind a router that translates addresses it is none of its own.
//!
//! Invariant: one address of each of at most [`PEERS_MAX`] peers; for people only, nothing is decided by it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use libp2p::PeerId;

/// Peers whose report is kept.
const PEERS_MAX: usize = 64;
/// Addresses that are reported.
const REPORTED_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct SeenAs(Mutex<BTreeMap<PeerId, IpAddr>>);

impl SeenAs {
    /// Takes note of the address that a peer reports.
    pub(crate) fn note(&self, peer: PeerId, address: IpAddr) {
        let mut by_peer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if by_peer.len() < PEERS_MAX || by_peer.contains_key(&peer) {
            by_peer.insert(peer, address);
        }
    }

    /// The addresses, the one that most peers report first.
    pub(crate) fn most_reported(&self) -> Vec<IpAddr> {
        let by_peer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        by_peer.values().for_each(|address| *counts.entry(*address).or_default() += 1);
        let mut reported: Vec<(IpAddr, usize)> = counts.into_iter().collect();
        reported.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reported.into_iter().take(REPORTED_MAX).map(|(address, _)| address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_most_report_comes_first_and_few_reports_are_kept() {
        let seen = SeenAs::default();
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        for number in 0..=PEERS_MAX {
            seen.note(PeerId::random(), ip(if number % 3 == 0 { 1 } else { 2 }));
        }
        assert_eq!(seen.most_reported(), [ip(2), ip(1)]);
        assert_eq!(seen.0.lock().unwrap().len(), PEERS_MAX);
    }
}
