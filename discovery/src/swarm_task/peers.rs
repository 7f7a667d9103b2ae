//! The nodes that this one is connected to: more are dialled when there are too few, and unused connections are closed when
//! there are too many.
//!
//! Without trimming, every node ends up connected to every other, since look-ups in the DHT meet them all; that costs
//! CPU for nothing. Invariant: a connection that gossip or an open request uses, or that was used in the last
//! seconds, is never trimmed; and dials for company back off, so that a lone node costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::time::Millis;
use libp2p::{Multiaddr, PeerId, StreamProtocol};
use rand::seq::{IndexedRandom as _, IteratorRandom as _};

use crate::{
    clock::millis,
    identity::peer_of_site,
    shared::{Shared, with_peer},
    wire::names::ask_number,
};

/// What is known of the nodes that this one met.
pub(crate) struct Peers {
    shared: Arc<Shared>,
    connected: BTreeMap<PeerId, Connected>,
    /// Where connected nodes listen, by their own account.
    addresses: BTreeMap<PeerId, Vec<Multiaddr>>,
    dial_again_at: Millis,
    back_off: Millis,
}

/// A node that is connected.
struct Connected {
    since: Millis,
    last_used: Millis,
    /// Whether it has named its grid.
    is_introduced: bool,
    /// The versions of direct requests that it speaks, by its own account.
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
/// Versions of direct requests that are remembered of a peer.
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

    /// Notes a new connection; true when there was none at all before.
    pub(crate) fn opened(&mut self, peer: PeerId) -> bool {
        let is_first = self.connected.is_empty();
        let now = self.shared.clock.now();
        let fresh = Connected { since: now, last_used: now, is_introduced: false, versions: Vec::new() };
        self.connected.entry(peer).or_insert(fresh).last_used = now;
        self.shared.set_connected(peer, true);
        is_first
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
        let may_take = millis(self.shared.config.intervals.introduction);
        let now = self.shared.clock.now();
        let is_late = |known: &Connected| !known.is_introduced && now - known.since > may_take;
        self.connected.iter().filter(|(_, known)| is_late(known)).map(|(peer, _)| *peer).collect()
    }

    /// Notes the versions of direct requests among the protocols that a peer speaks.
    pub(crate) fn speaks(&mut self, peer: &PeerId, protocols: &[StreamProtocol]) {
        let grid = &self.shared.config.grid;
        if let Some(connected) = self.connected.get_mut(peer) {
            let versions = protocols.iter().filter_map(|protocol| ask_number(grid, protocol));
            connected.versions = versions.take(VERSIONS_PER_PEER_MAX).collect();
        }
    }

    /// The versions of direct requests that a peer speaks and those that this node does, in words, when none is among both.
    pub(crate) fn versions_apart(&self, peer: &PeerId) -> Option<String> {
        let of_peer = &self.connected.get(peer).filter(|known| known.is_introduced)?.versions;
        let own: Vec<u16> = self.shared.dialect.asks.iter().map(|version| version.number()).collect();
        let are_apart = !of_peer.iter().any(|version| own.contains(version));
        are_apart.then(|| format!("the site speaks versions {of_peer:?} of direct requests, this node {own:?}"))
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.connected.is_empty()
    }

    /// Notes where a peer listens; true when it was not known.
    pub(crate) fn met(&mut self, peer: PeerId, addresses: &[Multiaddr]) -> bool {
        if let Some(connected) = self.connected.get_mut(&peer) {
            connected.is_introduced = true;
        }
        let addresses: Vec<Multiaddr> =
            addresses.iter().take(ADDRESSES_PER_PEER_MAX).map(|address| with_peer(address.clone(), peer)).collect();
        let is_new = self.addresses.insert(peer, addresses).is_none();
        if self.addresses.len() > REMEMBERED_MAX {
            let away = self.addresses.keys().find(|known| !self.connected.contains_key(known)).copied();
            if let Some(gone) = away.or_else(|| self.addresses.keys().next().copied()) {
                self.addresses.remove(&gone);
            }
        }
        if is_new {
            self.remember();
        }
        is_new
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
        if self.connected.len() >= NEIGHBOURS_MIN {
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
        // Bootstrap nodes only while there is no connection: they may be busy, and are known to the others.
        if self.connected.is_empty() {
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
