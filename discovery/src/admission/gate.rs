//! How many connections others may open, and how fast: in all, and from one prefix.
//!
//! A connection is refused before its handshake. Invariants: `inbound_per_prefix_max` connections from one prefix (one IPv4
//! address, or the /64 of an IPv6 address) at a time, whatever their peer ids, so many identities of one attacker are no
//! more than one; at most [`PREFIXES_MAX`] prefixes are remembered, at some 60 bytes each. Loopback and in-process
//! addresses may be exempt, since there all honest nodes of a machine share one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm, ListenFailure, NetworkBehaviour, THandler,
        THandlerInEvent, THandlerOutEvent, ToSwarm, dummy,
    },
};

use super::{
    prefix::Prefix,
    rate::{Buckets, Rate, TokenBucket},
};
use crate::{
    clock::Clock,
    config::Limits,
    counters::{Counter, Counters},
};

/// Prefixes whose rate is remembered.
const PREFIXES_MAX: usize = 4096;

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    TooMany,
    TooFast,
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::TooMany => "too many connections from this address",
            Refused::TooFast => "connections come too fast",
            Refused::Full => "too many connections",
        })
    }
}

impl std::error::Error for Refused {}

/// Refuses connections that others open when there are too many or they come too fast.
pub(crate) struct ConnectionGate {
    limits: Limits,
    clock: Clock,
    counters: Arc<Counters>,
    /// Inbound connections, those in their handshake included.
    inbound: BTreeMap<ConnectionId, Prefix>,
    counts: BTreeMap<Prefix, u32>,
    rates: Buckets<Prefix>,
    all: TokenBucket,
    /// Inbound connections whose handshake is over.
    established: u32,
}

impl ConnectionGate {
    pub(crate) fn new(limits: Limits, counters: Arc<Counters>) -> ConnectionGate {
        let clock = Clock::starting_now();
        let all = TokenBucket::new(rate(limits.inbound_per_s), clock.now());
        let rates = Buckets::new(rate(limits.inbound_per_prefix_per_s), PREFIXES_MAX);
        ConnectionGate {
            limits,
            clock,
            counters,
            inbound: BTreeMap::new(),
            counts: BTreeMap::new(),
            rates,
            all,
            established: 0,
        }
    }

    fn refuse(&self, why: Refused) -> ConnectionDenied {
        self.counters.count(match why {
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
        let spared = |prefix: &Prefix| self.limits.loopback_exempt && prefix.is_this_machine();
        if let Some(prefix) = Prefix::of(remote).filter(|prefix| !spared(prefix)) {
            let count = self.counts.get(&prefix).copied().unwrap_or(0);
            if count >= self.limits.inbound_per_prefix_max {
                return Err(Refused::TooMany);
            }
            if !self.rates.take(prefix, 1, now) || !self.all.take(1, now) {
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
fn rate(per_s: u32) -> Rate {
    Rate::per_s(per_s, per_s.saturating_mul(10))
}

impl NetworkBehaviour for ConnectionGate {
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
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(opened) => self.established += u32::from(opened.endpoint.is_listener()),
            FromSwarm::ConnectionClosed(ConnectionClosed { connection_id, endpoint, .. }) => {
                self.gone(connection_id);
                self.established = self.established.saturating_sub(u32::from(endpoint.is_listener()));
            }
            FromSwarm::ListenFailure(ListenFailure { connection_id, .. }) => self.gone(connection_id),
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(per_prefix_max: u32, per_s: u32) -> (ConnectionGate, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        let limits = Limits {
            inbound_per_prefix_max: per_prefix_max,
            inbound_per_prefix_per_s: per_s,
            inbound_per_s: 1000,
            ..Limits::default()
        };
        (ConnectionGate::new(limits, Arc::clone(&counters)), counters)
    }

    fn open(gate: &mut ConnectionGate, id: usize, from: &str) -> bool {
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
