//! Opening connections: to nodes that are known, and back to one that asks whether it can be reached.
//!
//! Behind a router or a packet filter a node can open connections, but nobody can open one to it, and it does not notice. So
//! it asks others to try. They dial what its signed advert names, as they do whenever they have something to ask it, and
//! tell it whether a connection could be made; that connection is closed at once. Invariant: only for a peer that is
//! connected and has proven its key, only addresses that it has signed, one try a peer in [`DIAL_BACK_EVERY`], and
//! [`DIAL_BACKS_MAX`] at a time.

use std::collections::{BTreeMap, VecDeque};

use broker::time::Millis;
use libp2p::{
    Multiaddr, PeerId,
    swarm::{
        ConnectionId, DialError,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::sync::oneshot;
use tracing::debug;

use super::{SwarmTask, peers::ADDRESSES_PER_PEER_MAX};
use crate::{identity::site_of_peer, shared::peer_of_address};

/// Tries at the same time; each ends with the time limit of a dial.
const DIAL_BACKS_MAX: usize = 8;
/// Between two tries for the same peer.
const DIAL_BACK_EVERY: Millis = Millis(10_000);

/// Where the outcome of a try goes; none when there was no try.
type Reply = oneshot::Sender<Option<bool>>;

/// Tries to reach those who ask for it.
#[derive(Default)]
pub(crate) struct DialBacks {
    asked: VecDeque<(PeerId, Reply)>,
    open: BTreeMap<ConnectionId, Reply>,
    tried_at: VecDeque<(Millis, PeerId)>,
}

impl DialBacks {
    /// Asks for a try; nothing when too many are under way, or this peer has had one just now.
    pub(super) fn ask(&mut self, peer: PeerId, now: Millis) -> Option<oneshot::Receiver<Option<bool>>> {
        while self.tried_at.front().is_some_and(|(at, _)| *at + DIAL_BACK_EVERY <= now) {
            self.tried_at.pop_front();
        }
        let has_had_one = self.tried_at.iter().any(|(_, known)| *known == peer);
        let is_full = self.asked.len() + self.open.len() >= DIAL_BACKS_MAX || self.tried_at.len() >= TRIED_MAX;
        if has_had_one || is_full {
            return None;
        }
        let (reply, outcome) = oneshot::channel();
        self.tried_at.push_back((now, peer));
        self.asked.push_back((peer, reply));
        Some(outcome)
    }

    /// A dial has ended; true when it was one of these.
    pub(super) fn ended(&mut self, connection: ConnectionId, outcome: Option<bool>) -> bool {
        let Some(reply) = self.open.remove(&connection) else { return false };
        // An error says that the asker does not wait any more.
        let _ = reply.send(outcome);
        true
    }
}

/// Tries within [`DIAL_BACK_EVERY`], of all peers.
const TRIED_MAX: usize = 64;

/// What a dial that has failed says of the other side; none when it says nothing.
pub(super) fn outcome(error: &DialError) -> Option<bool> {
    // Somebody else lives at the address, even this node itself.
    let is_another = matches!(error, DialError::WrongPeerId { .. } | DialError::LocalPeerId { .. });
    (is_another || matches!(error, DialError::Transport(_))).then_some(false)
}

impl SwarmTask {
    /// Begins the tries that were asked for.
    pub(super) fn dial_back(&mut self) {
        while let Some((peer, reply)) = self.serving.dial_backs.asked.pop_front() {
            let addresses = site_of_peer(&peer).map(|site| self.shared.addresses_of(&site)).unwrap_or_default();
            // More of them than are dialled at once would take longer than the asker waits.
            let addresses: Vec<Multiaddr> = addresses.into_iter().take(ADDRESSES_PER_PEER_MAX).collect();
            let options = DialOpts::peer_id(peer).condition(PeerCondition::Always).addresses(addresses).build();
            let connection = options.connection_id();
            self.serving.dial_backs.open.insert(connection, reply);
            if let Err(error) = self.swarm.dial(options) {
                debug!(%peer, %error, "not dialled back");
                self.serving.dial_backs.ended(connection, outcome(&error));
            }
        }
    }

    /// A connection is there: when it was a try, it has served its purpose.
    pub(super) fn dial_back_made(&mut self, connection: ConnectionId) {
        if self.serving.dial_backs.ended(connection, Some(true)) {
            self.swarm.close_connection(connection);
        }
    }

    pub(super) fn dial_peer(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        self.peers.used(&peer);
        let options = DialOpts::peer_id(peer)
            .condition(PeerCondition::DisconnectedAndNotDialing)
            .addresses(addresses)
            .extend_addresses_through_behaviour()
            .build();
        // Connected already, or being dialled: that is what was wanted. No address: the request will say so.
        if let Err(error) = self.swarm.dial(options) {
            debug!(%peer, %error, "not dialled");
        }
    }

    pub(super) fn dial_bootstrap(&mut self) {
        let config = &self.shared.config;
        let addresses: Vec<Multiaddr> = config.bootstrap.iter().chain(&config.known_peers).cloned().collect();
        for address in &addresses {
            self.dial_address(address);
        }
    }

    pub(super) fn dial_address(&mut self, address: &Multiaddr) {
        if peer_of_address(address) == Some(self.shared.identity.peer_id()) {
            return;
        }
        if let Err(error) = self.swarm.dial(address.clone()) {
            debug!(%address, %error, "not dialled");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_and_all_together_get_so_many_tries() {
        let mut tries = DialBacks::default();
        let peer = PeerId::random();
        let first = tries.ask(peer, Millis(0));
        assert!(first.is_some() && tries.ask(peer, Millis(9_999)).is_none());
        let others = (1..DIAL_BACKS_MAX).filter(|_| tries.ask(PeerId::random(), Millis(0)).is_some()).count();
        assert_eq!(others, DIAL_BACKS_MAX - 1);
        assert!(tries.ask(PeerId::random(), Millis(0)).is_none(), "too many under way");
        for number in 0..DIAL_BACKS_MAX {
            let (_, reply) = tries.asked.pop_front().unwrap();
            tries.open.insert(ConnectionId::new_unchecked(number), reply);
            assert!(tries.ended(ConnectionId::new_unchecked(number), Some(number == 0)));
        }
        assert!(!tries.ended(ConnectionId::new_unchecked(0), None), "no other connection is one of these");
        assert_eq!(first.unwrap().try_recv(), Ok(Some(true)));
        assert!(tries.ask(peer, Millis(10_000)).is_some());
        for _ in 0..2 * TRIED_MAX {
            tries.asked.clear();
            let _ = tries.ask(PeerId::random(), Millis(10_000));
        }
        assert_eq!(tries.tried_at.len(), TRIED_MAX);
    }
}
