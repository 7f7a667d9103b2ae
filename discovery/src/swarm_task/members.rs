//! Who this node talks to: peers of its grid, that have proven in a closed one that they belong to it, and that behave.
//!
//! Invariant: only a peer that was let in is a neighbour in gossip, in the routing table of the DHT, or shown as connected, and only
//! its requests are answered; it is let in while its credential counts, and no longer.

use std::sync::Arc;

use libp2p::{Multiaddr, PeerId, identify};
use tokio::task;
use tracing::{debug, info, warn};

use super::{behaviour::GOSSIP_SCORE_MIN, peers::ADDRESSES_PER_PEER_MAX, task::SwarmTask};
use crate::{
    addresses::ip_of,
    admission::{Offence, ProofEvent},
    counters::Counter,
    identity::site_of_peer,
    membership::NotMember,
    wire::names::{identify_protocol, proof_protocol},
};

impl SwarmTask {
    /// Tells others where this node listens.
    pub(crate) fn tell_addresses(&mut self) {
        let listeners: Vec<Multiaddr> = self.swarm.listeners().cloned().collect();
        let told = self.shared.set_listen(&listeners);
        let before: Vec<Multiaddr> = self.swarm.external_addresses().cloned().collect();
        for gone in before.iter().filter(|address| !told.contains(address)) {
            self.swarm.remove_external_address(gone);
        }
        for new in told.into_iter().filter(|address| !before.contains(address)) {
            self.swarm.add_external_address(new);
        }
        let connected: Vec<PeerId> = self.peers.connected().copied().collect();
        self.swarm.behaviour_mut().identify.push(connected);
    }

    /// Takes note of what a peer says of itself, if it is of this grid.
    pub(super) fn on_identified(&mut self, peer: PeerId, info: &identify::Info) {
        if info.protocol_version != identify_protocol(&self.shared.config.grid) {
            warn!(%peer, protocol = info.protocol_version, "disconnected: not of this grid");
            self.shared.count(Counter::StrangersDisconnected);
            // An error means that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
            return;
        }
        let (grid, is_closed) = (&self.shared.config.grid, self.shared.config.membership.is_closed());
        if !is_closed && !self.is_told_closed && proof_protocol(grid).is_ok_and(|proof| info.protocols.contains(&proof))
        {
            warn!(%peer, %grid, "this peer takes the grid for a closed one, and this node has joined it as an open one: if others do not talk to it, ask for a token, then kolo join FILE");
            self.is_told_closed = true;
        }
        if let Some(ip) = ip_of(&info.observed_addr) {
            self.shared.seen_as.note(peer, ip);
        }
        self.peers.speaks(&peer, &info.agent_version, &info.protocols);
        let addresses = &info.listen_addrs[..info.listen_addrs.len().min(ADDRESSES_PER_PEER_MAX)];
        self.peers.introduced(&peer, addresses);
        let apart = self.peers.versions_apart(&peer);
        if self.shared.apart.note(peer, apart.clone(), self.shared.clock.now())
            && let Some(why) = apart
        {
            warn!(%peer, %why, "this site and this node do not understand each other");
        }
        if self.peers.is_member(&peer) {
            self.meet(peer, addresses);
        }
    }

    /// Lets a peer in that has proven that it belongs to the grid.
    pub(super) fn on_proof(&mut self, event: ProofEvent) {
        match event {
            ProofEvent::Shown { peer, credential, checked: Ok(()) } => self.admit(peer, credential),
            ProofEvent::Shown { peer, checked: Err(why), .. } => {
                debug!(%peer, %why, "not let in");
                self.shared.count(Counter::ProofsRefused);
                if why == NotMember::MadeUp {
                    self.blame(peer, Offence::MadeUpProof);
                }
                // Its verdict is on its way; it goes by itself, or is disconnected in its time.
                if self.peers.is_member(&peer) {
                    self.expel(peer);
                }
            }
            ProofEvent::Refused { peer, revocations } => {
                warn!(%peer, "this site does not take this node for a member of the grid");
                // Anybody can send these, so one list is looked at at a time.
                if let Ok(turn) = Arc::clone(&self.looks_at_reasons).try_acquire_owned() {
                    let shared = Arc::clone(&self.shared);
                    task::spawn_blocking(move || {
                        if shared.config.membership.learn_revocations(&revocations).news > 0 {
                            shared.drop_non_members();
                        }
                        drop(turn);
                    });
                }
                self.disconnect(peer);
            }
        }
    }

    /// Serves a peer that belongs to the grid.
    pub(super) fn admit(&mut self, peer: PeerId, proof: Vec<u8>) {
        let is_first = self.shared.is_alone();
        if !self.peers.proven(peer, proof) {
            return;
        }
        self.swarm.behaviour_mut().open(peer);
        if is_first {
            self.publisher.first_connected();
        }
        if let Some(listens_at) = self.peers.listens_at(&peer) {
            self.meet(peer, &listens_at);
        }
    }

    /// Takes note of a member of the grid that has said where it listens.
    fn meet(&mut self, peer: PeerId, addresses: &[Multiaddr]) {
        let dialled = |address: &&Multiaddr| self.shared.dials.allows(address);
        let addresses: Vec<Multiaddr> = addresses.iter().filter(dialled).cloned().collect();
        self.route_to(peer, &addresses);
        if self.peers.met(peer, &addresses) {
            self.shared.neighbour_met.notify_one();
        }
    }

    /// Takes a peer into the routing table of the DHT, unless it is banned. Others learn of it from there.
    fn route_to(&mut self, peer: PeerId, addresses: &[Multiaddr]) {
        if self.conduct.is_banned(&peer, self.shared.clock.now()) {
            return;
        }
        for address in addresses {
            self.swarm.behaviour_mut().kad.add_address(&peer, address.clone());
        }
    }

    /// Disconnects a peer that does not belong to the grid, or no longer.
    pub(super) fn expel(&mut self, peer: PeerId) {
        self.shared.count(Counter::NonMembersDisconnected);
        self.disconnect(peer);
    }

    /// Ends what there is with a peer: one of the two does not belong to the grid.
    fn disconnect(&mut self, peer: PeerId) {
        self.peers.expelled(&peer);
        self.swarm.behaviour_mut().shut(&peer);
        // An error means that it is gone already.
        let _ = self.swarm.disconnect_peer_id(peer);
    }

    /// Disconnects those whose credentials have been revoked, or have expired.
    pub(super) fn check_members(&mut self) {
        self.members_checked_at = self.shared.clock.now();
        let membership = &self.shared.config.membership;
        if !membership.is_closed() {
            return;
        }
        let belongs =
            |peer: &PeerId, proof: &[u8]| site_of_peer(peer).is_some_and(|site| membership.check(&site, proof).is_ok());
        let gone: Vec<PeerId> =
            self.peers.proofs().filter(|(peer, proof)| !belongs(peer, proof)).map(|(peer, _)| *peer).collect();
        for peer in gone {
            info!(%peer, "disconnected: its credential does not count any more");
            self.expel(peer);
        }
    }

    /// Notes an offence, and bans the peer when it is one too many.
    pub(super) fn blame(&mut self, peer: PeerId, offence: Offence) {
        // A node may receive nonsense in its own name, but must not ban itself.
        if peer == self.shared.identity.peer_id() {
            return;
        }
        self.shared.count(Counter::Offences);
        let now = self.shared.clock.now();
        let Some(ban) = self.conduct.note(peer, offence, now) else { return };
        warn!(%peer, why = offence.as_str(), seconds = (ban.until - now).0 / 1000, times = ban.times, "banned");
        self.shared.count(Counter::PeersBanned);
        let behaviour = self.swarm.behaviour_mut();
        behaviour.banned.block_peer(peer);
        behaviour.shut(&peer);
        self.peers.forget(&peer);
        self.shared.set_bans(self.conduct.bans(now));
    }

    /// Ends bans that are over, looks at the scores of gossip, and closes connections whose peer has not named its grid, or
    /// not proven that it belongs to it.
    pub(super) fn police(&mut self) {
        let gossip = &self.swarm.behaviour().gossip;
        let breaks_rules = |peer: &PeerId| gossip.peer_score(peer).is_some_and(|score| score <= GOSSIP_SCORE_MIN);
        let bad: Vec<PeerId> = self.peers.connected().filter(|peer| breaks_rules(peer)).copied().collect();
        for peer in bad {
            self.blame(peer, Offence::GossipRules);
        }
        for peer in self.peers.not_proven() {
            self.expel(peer);
        }
        for peer in self.peers.not_introduced() {
            self.shared.count(Counter::ConnectionsClosedSilent);
            // An error means that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        let now = self.shared.clock.now();
        self.conduct.forget(now);
        let blocked = &mut self.swarm.behaviour_mut().banned;
        let over = |peer: &&PeerId| !self.conduct.is_banned(peer, now);
        let pardoned: Vec<PeerId> = blocked.blocked_peers().iter().filter(over).copied().collect();
        for peer in pardoned {
            blocked.unblock_peer(peer);
        }
        self.shared.set_bans(self.conduct.bans(now));
    }
}
