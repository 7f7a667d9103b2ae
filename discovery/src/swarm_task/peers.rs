//! The nodes that this one is connected to: more are dialled when there are too few, and unused connections are closed when
//! there are too many.
//!
//! Without trimming, every node ends up connected to every other, since look-ups in the DHT meet them all; that costs
//! CPU for nothing. Invariant: a connection that gossip or an open request uses, or that was used in the last
//! seconds, is never trimmed; and dials for company back off, so that a node that meets no member costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use broker::{ids::Network, time::Millis};
use libp2p::{Multiaddr, PeerId, StreamProtocol};
use rand::seq::{IndexedRandom as _, IteratorRandom as _};

use crate::{
    addresses::Range,
    clock::millis,
    identity::peer_of_site,
    shared::{Shared, with_peer},
    wire::{apart_words, names::spoken_by},
};

/// What is known of the nodes that this one met.
pub(crate) struct Peers {
    shared: Arc<Shared>,
    connected: BTreeMap<PeerId, Connected>,
    /// Where members of the grid listen that were met.
    addresses: BTreeMap<PeerId, Vec<Multiaddr>>,
    dial_again_at: Millis,
    back_off: Millis,
}

/// A node that is connected.
struct Connected {
    /// Where it has come from, or was found.
    range: Range,
    since: Millis,
    last_used: Millis,
    /// The network of its newest connection of which it is known: one more through a relay hides it from nobody.
    network: Option<Network>,
    /// The network of the peer, or of the relay through which it is reached.
    way: Option<Network>,
    /// The credential by which it belongs to the grid, empty in an open one; none until it has proven that.
    proof: Option<Vec<u8>>,
    /// Where it listens, by its own account; none until it has named its grid.
    listens_at: Option<Vec<Multiaddr>>,
    /// The versions of the protocol that it speaks, by its own account.
    versions: Vec<u16>,
}

/// With fewer neighbours than this a node looks for more.
const NEIGHBOURS_MIN: usize = 3;
const BACK_OFF_FIRST: Millis = Millis(500);
const BACK_OFF_MAX: Millis = Millis(30_000);
/// Dials in one go when there are too few neighbours.
const DIALS_AT_ONCE: usize = 4;
/// A connection used within this time is not trimmed.
const USED_LATELY: Millis = Millis(30_000);
/// The same while there are more than twice as many as are kept.
const USED_JUST_NOW: Millis = Millis(2_000);
const REMEMBERED_MAX: usize = 64;
pub(crate) const ADDRESSES_PER_PEER_MAX: usize = 8;
/// Versions of the protocol that are remembered of a peer.
const VERSIONS_PER_PEER_MAX: usize = 8;

impl Peers {
    pub(crate) fn new(shared: Arc<Shared>) -> Peers {
        let dial_again_at = shared.clock.now() + BACK_OFF_FIRST;
        Peers {
            shared,
            connected: BTreeMap::new(),
            addresses: BTreeMap::new(),
            dial_again_at,
            back_off: BACK_OFF_FIRST,
        }
    }

    /// Notes a new connection.
    pub(crate) fn opened(&mut self, peer: PeerId, range: Range, network: Option<Network>) {
        let now = self.shared.clock.now();
        let fresh = Connected {
            range,
            since: now,
            last_used: now,
            network: None,
            way: None,
            proof: None,
            listens_at: None,
            versions: Vec::new(),
        };
        let connected = self.connected.entry(peer).or_insert(fresh);
        connected.last_used = now;
        connected.network = network.or_else(|| connected.network.take());
    }

    /// Notes the network on the way to a peer that is connected.
    pub(crate) fn reached(&mut self, peer: &PeerId, way: Option<Network>) {
        if let Some(connected) = self.connected.get_mut(peer) {
            connected.way = way.or_else(|| connected.way.take());
        }
    }

    /// Notes that a peer belongs to the grid, as `proof` shows; false when that is no news.
    pub(crate) fn proven(&mut self, peer: PeerId, proof: Vec<u8>) -> bool {
        let Some(known) = self.connected.get_mut(&peer) else { return false };
        self.shared.set_connected(peer, true);
        known.proof.replace(proof).is_none()
    }

    /// Where a peer that is connected listens, if it has said so.
    pub(crate) fn listens_at(&self, peer: &PeerId) -> Option<Vec<Multiaddr>> {
        self.connected.get(peer)?.listens_at.clone()
    }

    /// Whether the peer is connected and belongs to the grid.
    pub(crate) fn is_member(&self, peer: &PeerId) -> bool {
        self.connected.get(peer).is_some_and(|known| known.proof.is_some())
    }

    /// Where a peer that is connected was met.
    pub(crate) fn range(&self, peer: &PeerId) -> Option<Range> {
        self.connected.get(peer).map(|known| known.range)
    }

    /// How many members of the grid are connected.
    pub(crate) fn members(&self) -> usize {
        self.connected.values().filter(|known| known.proof.is_some()).count()
    }

    /// The proofs of those that are connected.
    pub(crate) fn proofs(&self) -> impl Iterator<Item = (&PeerId, &[u8])> {
        self.connected.iter().filter_map(|(peer, known)| Some((peer, known.proof.as_deref()?)))
    }

    /// Notes that a peer belongs to the grid no longer.
    pub(crate) fn expelled(&mut self, peer: &PeerId) {
        if let Some(known) = self.connected.get_mut(peer) {
            known.proof = None;
        }
        self.shared.set_connected(*peer, false);
        self.forget(peer);
    }

    /// Whether the peer is connected, whether it has proven anything or not.
    pub(crate) fn is_connected(&self, peer: &PeerId) -> bool {
        self.connected.contains_key(peer)
    }

    /// The network from which a peer is connected.
    pub(crate) fn network_of(&self, peer: &PeerId) -> Option<Network> {
        self.connected.get(peer)?.network.clone()
    }

    /// The network from which a peer is connected, or of the relay through which it is.
    pub(crate) fn way_to(&self, peer: &PeerId) -> Option<Network> {
        let connected = self.connected.get(peer)?;
        connected.network.clone().or_else(|| connected.way.clone())
    }

    /// Notes that the last connection to a peer is gone.
    pub(crate) fn closed(&mut self, peer: &PeerId) {
        self.connected.remove(peer);
        self.shared.set_connected(*peer, false);
    }

    /// Notes that a connection is of use.
    pub(crate) fn used(&mut self, peer: &PeerId) {
        if let Some(connected) = self.connected.get_mut(peer) {
            connected.last_used = self.shared.clock.now();
        }
    }

    /// The peers that are connected.
    pub(crate) fn connected(&self) -> impl Iterator<Item = &PeerId> {
        self.connected.keys()
    }

    /// Peers that have not named their grid for longer than they may.
    pub(crate) fn not_introduced(&self) -> Vec<PeerId> {
        self.later_than(self.shared.config.intervals.introduction, |known| known.listens_at.is_none())
    }

    /// Peers that have not proven for longer than they may that they belong to the grid.
    pub(crate) fn not_proven(&self) -> Vec<PeerId> {
        self.later_than(self.shared.config.intervals.proof, |known| known.proof.is_none())
    }

    fn later_than(&self, may_take: Duration, lacks: impl Fn(&Connected) -> bool) -> Vec<PeerId> {
        let now = self.shared.clock.now();
        let is_late = |known: &Connected| lacks(known) && now - known.since > millis(may_take);
        self.connected.iter().filter(|(_, known)| is_late(known)).map(|(peer, _)| *peer).collect()
    }

    /// Notes the versions of direct requests among the protocols that a peer speaks.
    pub(crate) fn speaks(&mut self, peer: &PeerId, agent: &str, protocols: &[StreamProtocol]) {
        if let Some(connected) = self.connected.get_mut(peer) {
            connected.versions = spoken_by(&self.shared.config.grid, agent, protocols, VERSIONS_PER_PEER_MAX);
        }
    }

    /// Whose program is too old, in words, where a peer and this node speak no version that the other does.
    pub(crate) fn versions_apart(&self, peer: &PeerId) -> Option<String> {
        let of_peer = &self.connected.get(peer).filter(|known| known.listens_at.is_some())?.versions;
        apart_words(of_peer, &self.shared.dialect.spoken())
    }

    /// Notes that a peer has named its grid, and where it listens.
    pub(crate) fn introduced(&mut self, peer: &PeerId, addresses: &[Multiaddr]) {
        if let Some(known) = self.connected.get_mut(peer) {
            known.listens_at = Some(addresses.to_vec());
        }
    }

    /// Notes where a member listens; true when it was not known.
    pub(crate) fn met(&mut self, peer: PeerId, addresses: &[Multiaddr]) -> bool {
        let addresses: Vec<Multiaddr> = addresses.iter().map(|address| with_peer(address.clone(), peer)).collect();
        let before = self.addresses.insert(peer, addresses);
        let has_moved = before.as_ref() != self.addresses.get(&peer);
        if self.addresses.len() > REMEMBERED_MAX {
            let away = self.addresses.keys().find(|known| !self.connected.contains_key(known)).copied();
            if let Some(gone) = away.or_else(|| self.addresses.keys().next().copied()) {
                self.addresses.remove(&gone);
            }
        }
        // One that comes back elsewhere is found there after a restart of this node, and nowhere else.
        if has_moved {
            self.remember();
        }
        before.is_none()
    }

    /// Forgets where a peer listens: it is not worth dialling again.
    pub(crate) fn forget(&mut self, peer: &PeerId) {
        if self.addresses.remove(peer).is_some() {
            self.remember();
        }
    }

    fn remember(&self) {
        let first = self.addresses.values().filter_map(|addresses| addresses.first().cloned());
        self.shared.set_worth_remembering(first.collect());
    }

    /// Addresses to dial because there are too few neighbours, when it is time.
    pub(crate) fn choose_to_dial(&mut self) -> Vec<Multiaddr> {
        let now = self.shared.clock.now();
        if self.members() >= NEIGHBOURS_MIN {
            self.back_off = BACK_OFF_FIRST;
            return Vec::new();
        }
        if now < self.dial_again_at {
            return Vec::new();
        }
        self.dial_again_at = now + self.back_off + Millis(rand::random_range(0..=self.back_off.0));
        self.back_off = Millis(self.back_off.0 * 2).min(BACK_OFF_MAX);
        let config = &self.shared.config;
        let advertised = self.shared.view.site_ids();
        let mut rng = rand::rng();
        let mut dials: Vec<Multiaddr> = advertised
            .into_iter()
            .filter(|site| site != self.shared.site() && !self.shared.is_connected(site))
            .sample(&mut rng, DIALS_AT_ONCE)
            .iter()
            .filter_map(|site| {
                let peer = peer_of_site(site)?;
                Some(with_peer(self.shared.addresses_of(site).first()?.clone(), peer))
            })
            .collect();
        // Bootstrap nodes only while no member is connected: they may be busy, and are known to the others.
        if self.shared.is_alone() {
            let told: Vec<&Multiaddr> = config.bootstrap.iter().chain(&config.known_peers).collect();
            dials.extend(told.sample(&mut rng, DIALS_AT_ONCE).map(|address| (*address).clone()));
        }
        dials
    }

    /// Peers to disconnect, those unused for longest first. `is_needed` tells whether something uses a peer.
    pub(crate) fn to_trim(&self, is_needed: impl Fn(&PeerId) -> bool) -> BTreeSet<PeerId> {
        let excess = self.connected.len().saturating_sub(self.shared.config.limits.connections_kept);
        if excess == 0 {
            return BTreeSet::new();
        }
        let now = self.shared.clock.now();
        let lately = if excess > self.shared.config.limits.connections_kept { USED_JUST_NOW } else { USED_LATELY };
        let mut idle: Vec<(Millis, PeerId)> = self
            .connected
            .iter()
            .filter(|(peer, known)| now - known.last_used > lately && !is_needed(peer))
            .map(|(peer, known)| (known.last_used, *peer))
            .collect();
        idle.sort_unstable();
        idle.into_iter().take(excess).map(|(_, peer)| peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shared_alone;

    #[test]
    fn a_second_connection_without_a_network_does_not_hide_that_of_the_first() {
        let mut peers = Peers::new(shared_alone());
        let peer = PeerId::random();
        let known = Some(Network::new("203.0.113.0/24").unwrap());
        peers.opened(peer, Range::Public, known.clone());
        peers.opened(peer, Range::Public, None);
        let relay = Some(Network::new("198.51.100.0/24").unwrap());
        peers.reached(&peer, relay.clone());
        assert_eq!((peers.network_of(&peer), peers.way_to(&peer)), (known.clone(), known), "not by its relay");
        let behind = PeerId::random();
        peers.opened(behind, Range::Public, None);
        peers.reached(&behind, relay.clone());
        assert_eq!((peers.network_of(&behind), peers.way_to(&behind)), (None, relay));
        peers.closed(&peer);
        assert!(!peers.is_connected(&peer));
        assert_eq!(peers.network_of(&peer), None);
    }

    #[test]
    fn where_a_member_was_met_last_is_remembered() {
        let shared = shared_alone();
        let mut peers = Peers::new(shared.clone());
        let peer = PeerId::random();
        for (port, is_new) in [(1, true), (2, false), (2, false), (3, false)] {
            let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/{port}").parse().unwrap();
            assert_eq!(peers.met(peer, std::slice::from_ref(&address)), is_new, "{port}");
            assert_eq!(shared.worth_remembering(), [with_peer(address, peer)]);
        }
        peers.forget(&peer);
        assert!(shared.worth_remembering().is_empty());
    }
}
