//! Dialling a peer back that asks whether it can be reached.
//!
//! A node behind a router or a packet filter can open connections, but no other node can open one to it, and it does not
//! notice. So it asks others to dial the addresses of its signed advert and to report whether a connection could be made;
//! that connection is closed at once. Invariant: only for a peer that is served (in a closed grid a member), only addresses that
//! it has signed, that carry its id and are public or in the range that it was met in, one dial a peer in
//! [`DIAL_BACK_EVERY`], and [`DIAL_BACKS_MAX`] at a time.

use std::collections::{BTreeMap, VecDeque};

use broker::time::Millis;
use libp2p::{
    Multiaddr, PeerId,
    swarm::{
        ConnectionId, DialError, NetworkBehaviour, Swarm,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::sync::oneshot;
use tracing::debug;

use crate::{
    addresses::{Range, range_of},
    identity::site_of_peer,
    shared::{Shared, peer_of_address},
};

/// Dials at the same time; each ends with the time limit of a dial.
const DIAL_BACKS_MAX: usize = 8;
/// Between two dials back to the same peer.
const DIAL_BACK_EVERY: Millis = Millis(10_000);
/// Dials within [`DIAL_BACK_EVERY`], to all peers.
const DIALLED_MAX: usize = 64;
/// Addresses of a peer that are dialled; more would take longer than the asker waits.
const ADDRESSES_MAX: usize = 8;

/// Where the outcome of a dial goes; none when there was no dial.
type Reply = oneshot::Sender<Option<bool>>;

/// The dials back that were asked for, are under way, or ended lately.
#[derive(Default)]
pub(crate) struct DialBacks {
    asked: VecDeque<(PeerId, Reply)>,
    open: BTreeMap<ConnectionId, Reply>,
    dialled_at: VecDeque<(Millis, PeerId)>,
}

impl DialBacks {
    /// Asks for a dial back; none when too many are under way, or this peer had one just now.
    pub(crate) fn ask(&mut self, peer: PeerId, now: Millis) -> Option<oneshot::Receiver<Option<bool>>> {
        while self.dialled_at.front().is_some_and(|(at, _)| *at + DIAL_BACK_EVERY <= now) {
            self.dialled_at.pop_front();
        }
        let has_had_one = self.dialled_at.iter().any(|(_, known)| *known == peer);
        let is_full = self.asked.len() + self.open.len() >= DIAL_BACKS_MAX || self.dialled_at.len() >= DIALLED_MAX;
        if has_had_one || is_full {
            return None;
        }
        let (reply, outcome) = oneshot::channel();
        self.dialled_at.push_back((now, peer));
        self.asked.push_back((peer, reply));
        Some(outcome)
    }

    /// Begins the dials that were asked for.
    pub(crate) fn begin(
        &mut self,
        swarm: &mut Swarm<impl NetworkBehaviour>,
        shared: &Shared,
        met_in: impl Fn(&PeerId) -> Option<Range>,
    ) {
        while let Some((peer, reply)) = self.asked.pop_front() {
            let addresses = site_of_peer(&peer).map(|site| shared.addresses_of(&site)).unwrap_or_default();
            let from = met_in(&peer);
            let may_try = |address: &Multiaddr| may_try(address, &peer, from);
            let tells_some = !addresses.is_empty();
            let addresses: Vec<Multiaddr> = addresses.into_iter().filter(may_try).take(ADDRESSES_MAX).collect();
            if tells_some && addresses.is_empty() {
                // None of them is one at which others reach it. An error means that the asker does not wait any more.
                let _ = reply.send(Some(false));
                continue;
            }
            let options = DialOpts::peer_id(peer).condition(PeerCondition::Always).addresses(addresses).build();
            let connection = options.connection_id();
            self.open.insert(connection, reply);
            if let Err(error) = swarm.dial(options) {
                debug!(%peer, %error, "not dialled back");
                self.ended(connection, dial_outcome(&error));
            }
        }
    }

    /// Notes the end of a dial; true when it was one of these.
    pub(crate) fn ended(&mut self, connection: ConnectionId, outcome: Option<bool>) -> bool {
        let Some(reply) = self.open.remove(&connection) else { return false };
        // An error means that the asker does not wait any more.
        let _ = reply.send(outcome);
        true
    }
}

/// Whether an address is tried for a peer that was met in the range `from`: only addresses that carry its id, and that are public
/// or in the range where it is.
fn may_try(address: &Multiaddr, peer: &PeerId, from: Option<Range>) -> bool {
    let range = range_of(address);
    peer_of_address(address) == Some(*peer) && (range == Range::Public || Some(range) == from)
}

/// What a failed dial proves about the peer: that it cannot be reached; none when it proves nothing.
pub(crate) fn dial_outcome(error: &DialError) -> Option<bool> {
    // Somebody else lives at the address, even this node itself.
    let is_another = matches!(error, DialError::WrongPeerId { .. } | DialError::LocalPeerId { .. });
    (is_another || matches!(error, DialError::Transport(_))).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_the_network_of_others_tried() {
        let peer = PeerId::random();
        let with = |text: &str, peer: PeerId| text.parse::<Multiaddr>().unwrap().with_p2p(peer).unwrap();
        let public = with("/ip4/8.8.8.8/tcp/1", peer);
        let private = with("/ip4/192.168.1.1/tcp/80", peer);
        for from in [Range::Public, Range::Loopback, Range::Private10, Range::Private192] {
            assert!(may_try(&public, &peer, Some(from)));
            assert_eq!(may_try(&private, &peer, Some(from)), from == Range::Private192);
        }
        assert!(!may_try(&private, &peer, None));
        assert!(!may_try(&with("/ip4/8.8.8.8/tcp/1", PeerId::random()), &peer, Some(Range::Public)));
        assert!(!may_try(&"/ip4/8.8.8.8/tcp/1".parse().unwrap(), &peer, Some(Range::Public)));
    }

    #[test]
    fn one_peer_and_all_together_get_so_many_dials() {
        let mut dials = DialBacks::default();
        let peer = PeerId::random();
        let first = dials.ask(peer, Millis(0));
        assert!(first.is_some() && dials.ask(peer, Millis(9_999)).is_none());
        let others = (1..DIAL_BACKS_MAX).filter(|_| dials.ask(PeerId::random(), Millis(0)).is_some()).count();
        assert_eq!(others, DIAL_BACKS_MAX - 1);
        assert!(dials.ask(PeerId::random(), Millis(0)).is_none(), "too many under way");
        for number in 0..DIAL_BACKS_MAX {
            let (_, reply) = dials.asked.pop_front().unwrap();
            dials.open.insert(ConnectionId::new_unchecked(number), reply);
            assert!(dials.ended(ConnectionId::new_unchecked(number), Some(number == 0)));
        }
        assert!(!dials.ended(ConnectionId::new_unchecked(0), None), "no other connection is one of these");
        assert_eq!(first.unwrap().try_recv(), Ok(Some(true)));
        assert!(dials.ask(peer, Millis(10_000)).is_some());
        for _ in 0..2 * DIALLED_MAX {
            dials.asked.clear();
            let _ = dials.ask(PeerId::random(), Millis(10_000));
        }
        assert_eq!(dials.dialled_at.len(), DIALLED_MAX);
    }
}
