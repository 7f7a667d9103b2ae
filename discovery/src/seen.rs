//! What others say this node's address is, as they see it: behind a router that translates addresses it is none of its own.
//!
//! Invariant: the word of at most [`PEERS_MAX`] peers, one address each; for people only, nothing is decided by it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use libp2p::{Multiaddr, PeerId, multiaddr::Protocol};

/// Peers whose word is kept.
const PEERS_MAX: usize = 64;
/// Addresses that are told.
const TOLD_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct SeenAs(Mutex<BTreeMap<PeerId, IpAddr>>);

impl SeenAs {
    /// Takes note of what a peer says.
    pub(crate) fn note(&self, peer: PeerId, address: IpAddr) {
        let mut by_peer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if by_peer.len() < PEERS_MAX || by_peer.contains_key(&peer) {
            by_peer.insert(peer, address);
        }
    }

    /// What most peers say comes first.
    pub(crate) fn told(&self) -> Vec<IpAddr> {
        let by_peer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        by_peer.values().for_each(|address| *counts.entry(*address).or_default() += 1);
        let mut told: Vec<(IpAddr, usize)> = counts.into_iter().collect();
        told.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        told.into_iter().take(TOLD_MAX).map(|(address, _)| address).collect()
    }
}

/// The IP address at the head of an address, if it begins with one.
pub(crate) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_most_comes_first_and_that_of_a_few_is_kept() {
        let seen = SeenAs::default();
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        for number in 0..=PEERS_MAX {
            seen.note(PeerId::random(), ip(if number % 3 == 0 { 1 } else { 2 }));
        }
        assert_eq!(seen.told(), [ip(2), ip(1)]);
        assert_eq!(seen.0.lock().unwrap().len(), PEERS_MAX);
        assert_eq!(ip_of(&"/ip4/192.0.2.1/tcp/1".parse().unwrap()), Some(ip(1)));
        assert_eq!(ip_of(&"/dns/kolo.example.org/tcp/1".parse().unwrap()), None);
    }
}
