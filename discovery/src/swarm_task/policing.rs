//! Banning who behaves badly, and letting go of who says nothing.
//!
//! Invariant: whoever is banned has no connection, and the list that others read is the one that is enforced.
//!
//! What one hostile connection can cost before it is cut off, by the default limits. Memory: 64 MiB of unread streams at
//! the very most (see `transport`), 4 KiB for each request being read and 16 MiB for all large ones together (see
//! `codec`). CPU: what the throttle lets through, 8 MiB and 1,000 streams a second; 20 invalid gossip messages, 10 invalid
//! requests or 1,000 requests above the share end in a ban. What one address costs: 64 connections and ten more a
//! second, at about 1 ms a handshake, and one a second once three were banned there (`waiting_room`). What all cost: 384
//! inbound connections, 200 handshakes a second, and the tables: 1 MiB of what newcomers said (`probation`), half a MiB of
//! points and bans (`conduct`), 0.6 MiB of budgets (`gossip`), 0.3 MiB of tokens (`serving`), `sites_max` sites in the view,
//! 16,384 index entries of made-up sites at some 200 bytes.

use std::{collections::BTreeSet, io};

use libp2p::{
    Multiaddr,
    request_response::OutboundFailure,
    swarm::{ConnectionError, ListenError},
};
use libp2p_connection_limits as connection_limits;
use tracing::{debug, warn};

use super::{PeerId, SwarmTask};
use crate::{
    behaviour::GOSSIP_SCORE_MIN,
    conduct::{BanTerms, Conduct, Offence},
    config::DiscoveryConfig,
    counters::Counter,
    frames::is_oversized_frame,
    waiting_room::Trouble,
};

/// The conduct of everybody, on the terms of `config`.
pub(super) fn conduct(config: &DiscoveryConfig) -> Conduct {
    Conduct::new(BanTerms {
        first: config.intervals.ban_first,
        longest: config.intervals.ban_longest,
        bans_max: config.limits.bans_max,
    })
}

/// What a failed answer of a peer says of it.
pub(super) fn offence_in_answer(failure: &OutboundFailure) -> Option<Offence> {
    match failure {
        OutboundFailure::Io(error) if error.kind() == io::ErrorKind::InvalidData => Some(Offence::InvalidAnswer),
        _ => None,
    }
}

impl SwarmTask {
    /// Notes an offence, and bans the peer when it is one too many.
    pub(super) fn blame(&mut self, peer: PeerId, offence: Offence) {
        // A node may well hear nonsense in its own name, but must not shut itself out.
        if peer == self.shared.identity.peer_id() {
            return;
        }
        self.shared.count(Counter::Offences);
        let now = self.shared.clock.now();
        let Some(ban) = self.conduct.note(peer, offence, now) else { return };
        warn!(%peer, why = offence.as_str(), seconds = (ban.until - now).0 / 1000, times = ban.times, "banned");
        self.shared.count(Counter::PeersBanned);
        let behaviour = self.swarm.behaviour_mut();
        behaviour.gate.shut_out(peer);
        behaviour.kad.remove_peer(&peer);
        self.peers.forget(&peer);
        self.gossip.neighbour_goes(&peer);
        self.shared.set_bans(self.conduct.bans(now));
    }

    /// Blames the peer when it has brought its connection to an end.
    pub(super) fn blame_for_end(&mut self, peer: PeerId, home: &Multiaddr, cause: Option<ConnectionError>) {
        if let Some(ConnectionError::IO(error)) = cause
            && is_oversized_frame(&error)
        {
            debug!(%peer, %error, "connection closed");
            self.shared.count(Counter::ConnectionsClosedOversized);
            self.blame(peer, Offence::OversizedFrame);
            // It is not connected any more, so the ban says nothing of its address.
            self.swarm.behaviour().gate.note_at(home, Trouble::Banned);
        }
    }

    /// Ends bans that are over, looks at the scores of gossip, and closes connections whose other side says nothing.
    pub(super) fn police(&mut self) {
        let gossip = &self.swarm.behaviour().gossip;
        let breaks_rules = |peer: &PeerId| gossip.peer_score(peer).is_some_and(|score| score <= GOSSIP_SCORE_MIN);
        let bad: Vec<PeerId> = self.peers.connected().filter(|peer| breaks_rules(peer)).copied().collect();
        for peer in bad {
            self.blame(peer, Offence::GossipRules);
        }
        for peer in self.peers.silent_for_long() {
            self.shared.count(Counter::ConnectionsClosedSilent);
            self.swarm.behaviour().gate.note(&peer, Trouble::Silent);
            // An error says that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        let now = self.shared.clock.now();
        self.conduct.forget(now);
        let bans = self.conduct.bans(now);
        let banned: BTreeSet<PeerId> = bans.iter().map(|ban| ban.peer).collect();
        self.swarm.behaviour_mut().gate.let_in_all_but(banned);
        self.shared.set_bans(bans);
    }

    /// Counts connections that were refused for want of room; the gate counts its own refusals.
    pub(super) fn on_refused(&mut self, error: &ListenError) {
        debug!(%error, "connection refused");
        if let ListenError::Denied { cause } = error
            && cause.downcast_ref::<connection_limits::Exceeded>().is_some()
        {
            self.shared.count(Counter::ConnectionsRefusedFull);
        }
    }
}
