//! Who may connect: nobody who is banned, and from one address only so many, so fast.
//!
//! A connection is refused before its handshake when there are too many, from everywhere or from its address, or when they
//! come too fast; one that comes from an address where others have misbehaved has waited before (`waiting_room`, which this
//! tells of them). It is refused right after the handshake (which first proves who it is) when its peer is banned.
//! Invariants: `inbound_per_prefix_max` connections from one prefix (one IPv4 address, or the /64 of an IPv6 address) at a
//! time, whatever their peer ids, so many identities of one attacker are no more than one; at most [`PREFIXES_MAX`]
//! prefixes are remembered, at some 60 bytes each. Loopback and in-process addresses may be exempt, since there all honest
//! nodes of a machine share one.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        CloseConnection, ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm, ListenFailure, NetworkBehaviour,
        THandler, THandlerInEvent, THandlerOutEvent, ToSwarm, dummy,
    },
};

use crate::{
    clock::Clock,
    config::Limits,
    counters::{Counter, Counters},
    prefix::Prefix,
    rate::TokenBucket,
    waiting_room::{Trouble, WaitingRoom},
};

/// Prefixes whose rate is remembered; above it those that have been quiet are forgotten, and new ones share one bucket.
const PREFIXES_MAX: usize = 4096;

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Banned,
    TooMany,
    TooFast,
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Banned => "the peer is banned",
            Refused::TooMany => "too many connections from this address",
            Refused::TooFast => "connections come too fast",
            Refused::Full => "too many connections",
        })
    }
}

impl std::error::Error for Refused {}

/// The gate.
pub(crate) struct Gate {
    limits: Limits,
    clock: Clock,
    counters: Arc<Counters>,
    banned: BTreeSet<PeerId>,
    to_close: VecDeque<PeerId>,
    waker: Option<Waker>,
    /// Inbound connections, those in their handshake included.
    inbound: BTreeMap<ConnectionId, Prefix>,
    counts: BTreeMap<Prefix, u32>,
    rates: BTreeMap<Prefix, TokenBucket>,
    all: TokenBucket,
    /// Where those are that are connected.
    homes: BTreeMap<PeerId, Prefix>,
    /// Inbound connections whose handshake is over.
    established: u32,
    room: WaitingRoom,
}

impl Gate {
    pub(crate) fn new(limits: Limits, counters: Arc<Counters>, room: WaitingRoom) -> Gate {
        let clock = Clock::starting_now();
        let all = bucket(limits.inbound_per_s, clock);
        Gate {
            limits,
            clock,
            counters,
            banned: BTreeSet::new(),
            to_close: VecDeque::new(),
            waker: None,
            inbound: BTreeMap::new(),
            counts: BTreeMap::new(),
            rates: BTreeMap::new(),
            all,
            homes: BTreeMap::new(),
            established: 0,
            room,
        }
    }

    /// Closes all connections of the peer and takes no more.
    pub(crate) fn shut_out(&mut self, peer: PeerId) {
        if self.banned.insert(peer) {
            self.note(&peer, Trouble::Banned);
            self.to_close.push_back(peer);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    /// Holds something against the address of a connected peer.
    pub(crate) fn note(&self, peer: &PeerId, trouble: Trouble) {
        if let Some(home) = self.homes.get(peer) {
            self.room.note(*home, trouble);
        }
    }

    /// Holds something against an address.
    pub(crate) fn note_at(&self, home: &Multiaddr, trouble: Trouble) {
        if let Some(home) = Prefix::of(home) {
            self.room.note(home, trouble);
        }
    }

    /// Whether somebody misbehaves who comes back under fresh identities.
    pub(crate) fn is_guarding(&self) -> bool {
        self.room.is_guarding()
    }

    /// Lets in everybody but these.
    pub(crate) fn let_in_all_but(&mut self, banned: BTreeSet<PeerId>) {
        self.banned = banned;
    }

    fn check_peer(&self, peer: &PeerId) -> Result<(), ConnectionDenied> {
        if self.banned.contains(peer) { Err(self.refuse(Refused::Banned)) } else { Ok(()) }
    }

    fn refuse(&self, why: Refused) -> ConnectionDenied {
        self.counters.count(match why {
            Refused::Banned => Counter::ConnectionsRefusedBanned,
            Refused::TooMany => Counter::ConnectionsRefusedTooMany,
            Refused::TooFast => Counter::ConnectionsRefusedTooFast,
            Refused::Full => Counter::ConnectionsRefusedFull,
        });
        ConnectionDenied::new(why)
    }

    fn check_inbound(&mut self, id: ConnectionId, remote: &Multiaddr) -> Result<(), Refused> {
        let now = self.clock.now();
        if self.established >= self.limits.inbound_max() {
            return Err(Refused::Full);
        }
        let spared = |prefix: &Prefix| self.limits.loopback_exempt && prefix.is_loopback();
        if let Some(prefix) = Prefix::of(remote).filter(|prefix| !spared(prefix)) {
            let count = self.counts.get(&prefix).copied().unwrap_or(0);
            if count >= self.limits.inbound_per_prefix_max {
                return Err(Refused::TooMany);
            }
            if self.rates.len() >= PREFIXES_MAX && !self.rates.contains_key(&prefix) {
                self.rates.retain(|_, rate| !rate.is_full(now));
            }
            if self.rates.len() < PREFIXES_MAX || self.rates.contains_key(&prefix) {
                let fresh = bucket(self.limits.inbound_per_prefix_per_s, self.clock);
                if !self.rates.entry(prefix).or_insert(fresh).take(1, now) {
                    return Err(Refused::TooFast);
                }
            }
            if !self.all.take(1, now) {
                return Err(Refused::TooFast);
            }
            self.counts.insert(prefix, count + 1);
            self.inbound.insert(id, prefix);
        } else if !self.all.take(1, now) {
            return Err(Refused::TooFast);
        }
        Ok(())
    }

    fn gone(&mut self, id: ConnectionId) {
        let Some(prefix) = self.inbound.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&prefix) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&prefix);
            }
        }
    }
}

/// Ten seconds' worth of connections may come at once: a grid that starts, or a crowd behind one address.
fn bucket(per_s: u32, clock: Clock) -> TokenBucket {
    TokenBucket::new(u64::from(per_s), 10 * u64::from(per_s), clock.now())
}

impl NetworkBehaviour for Gate {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.check_inbound(id, remote).map_err(|why| self.refuse(why))
    }

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.check_peer(&peer)?;
        Ok(dummy::ConnectionHandler)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        peer.map_or(Ok(()), |peer| self.check_peer(&peer))?;
        Ok(Vec::new())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.check_peer(&peer)?;
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(opened) => {
                self.established += u32::from(opened.endpoint.is_listener());
                if let Some(home) = Prefix::of(opened.endpoint.get_remote_address()) {
                    self.homes.insert(opened.peer_id, home);
                }
            }
            FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id,
                connection_id,
                endpoint,
                remaining_established,
                ..
            }) => {
                self.gone(connection_id);
                self.established = self.established.saturating_sub(u32::from(endpoint.is_listener()));
                if remaining_established == 0 {
                    self.homes.remove(&peer_id);
                }
            }
            FromSwarm::ListenFailure(ListenFailure { connection_id, .. }) => self.gone(connection_id),
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Infallible, THandlerInEvent<Self>>> {
        if let Some(peer_id) = self.to_close.pop_front() {
            return Poll::Ready(ToSwarm::CloseConnection { peer_id, connection: CloseConnection::All });
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::waiting_room::GuardTerms;

    fn gate(per_prefix_max: u32, per_s: u32) -> (Gate, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        let limits = Limits {
            inbound_per_prefix_max: per_prefix_max,
            inbound_per_prefix_per_s: per_s,
            inbound_per_s: 1000,
            ..Limits::default()
        };
        let terms = GuardTerms { per_s: 1, lasts: Duration::from_secs(1) };
        let room = WaitingRoom::new(terms, Arc::clone(&counters));
        (Gate::new(limits, Arc::clone(&counters), room), counters)
    }

    fn open(gate: &mut Gate, id: usize, from: &str) -> bool {
        let (id, local) = (ConnectionId::new_unchecked(id), Multiaddr::empty());
        gate.handle_pending_inbound_connection(id, &local, &from.parse().unwrap()).is_ok()
    }

    #[test]
    fn one_prefix_gets_its_share_and_gives_it_back() {
        let (mut gate, counters) = gate(3, 1000);
        let from = |port: usize| format!("/ip6/2001:db8::{port:x}/tcp/{port}");
        assert!((0..3).all(|number| open(&mut gate, number, &from(number + 1))));
        assert!(!open(&mut gate, 3, &from(77)), "other addresses of the same /64 are the same owner's");
        assert!(open(&mut gate, 4, "/ip6/2001:db8:1::1/udp/9/quic-v1") && open(&mut gate, 5, "/ip4/192.0.2.1/tcp/9"));
        gate.gone(ConnectionId::new_unchecked(1));
        gate.gone(ConnectionId::new_unchecked(1));
        assert!(open(&mut gate, 6, &from(78)) && !open(&mut gate, 7, &from(79)));
        assert!((10..100).all(|number| open(&mut gate, number, "/ip4/127.0.0.1/tcp/5")), "loopback is exempt");
        assert_eq!(counters.get(Counter::ConnectionsRefusedTooMany), 2);
        (0..100).for_each(|id| gate.gone(ConnectionId::new_unchecked(id)));
        assert!(gate.counts.is_empty() && gate.inbound.is_empty());
    }

    #[test]
    fn one_prefix_opens_only_so_fast_even_when_it_closes_again() {
        let (mut gate, counters) = gate(100, 2);
        let opened = (0..50).filter(|id| {
            let is_open = open(&mut gate, *id, "/ip4/192.0.2.1/tcp/9");
            gate.gone(ConnectionId::new_unchecked(*id));
            is_open
        });
        assert!((20..=22).contains(&opened.count()));
        assert!(counters.get(Counter::ConnectionsRefusedTooFast) >= 28);
        assert!(open(&mut gate, 99, "/ip4/192.0.2.2/tcp/9"), "others are not affected");
    }
}
