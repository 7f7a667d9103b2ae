//! A protocol that only members are served.
//!
//! Streams that a peer opens are kept unread until it is let in, so that its first requests may follow its proof on the same
//! connection without a round trip between them. Invariants: of a peer that is not let in nothing is read on this protocol, so nothing is
//! answered, and no neighbour in gossip is made of it; at most [`HELD_MAX`] of its streams are kept, and what it has sent
//! on them waits in the buffers of the connection.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::{Deref, DerefMut},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour,
        NotifyHandler, SubstreamProtocol, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
        handler::{ConnectionEvent, FullyNegotiatedInbound},
    },
};

/// As many requests as an honest node sends to one peer at a time.
const HELD_MAX: usize = 64;

/// A protocol, and who is let in.
pub(crate) struct Gated<B> {
    inner: B,
    /// Everybody is let in when there is no list.
    members: Option<BTreeSet<PeerId>>,
    /// Connections whose peers are not let in.
    waiting: BTreeMap<PeerId, Vec<ConnectionId>>,
    opened: VecDeque<(PeerId, ConnectionId)>,
}

impl<B> Gated<B> {
    /// Serves nobody until [`Gated::open`], or everybody where `is_closed` is false.
    pub(crate) fn new(inner: B, is_closed: bool) -> Gated<B> {
        let members = is_closed.then(BTreeSet::new);
        Gated { inner, members, waiting: BTreeMap::new(), opened: VecDeque::new() }
    }

    /// Lets a peer in, on all its connections.
    pub(crate) fn open(&mut self, peer: PeerId) {
        if self.members.as_mut().is_some_and(|members| members.insert(peer)) {
            let connections = self.waiting.remove(&peer).unwrap_or_default();
            self.opened.extend(connections.into_iter().map(|connection| (peer, connection)));
        }
    }

    /// Lets a peer in no longer; connections that it has are for the caller to close.
    pub(crate) fn shut(&mut self, peer: &PeerId) {
        if let Some(members) = &mut self.members {
            members.remove(peer);
        }
    }

    fn handler<H: ConnectionHandler>(&mut self, inner: H, peer: PeerId, id: ConnectionId) -> GatedHandler<H> {
        let is_open = self.members.as_ref().is_none_or(|members| members.contains(&peer));
        if !is_open {
            self.waiting.entry(peer).or_default().push(id);
        }
        GatedHandler { inner, held: (!is_open).then(Vec::new) }
    }

    fn gone(&mut self, peer: &PeerId, id: ConnectionId) {
        if let Some(waiting) = self.waiting.get_mut(peer) {
            waiting.retain(|known| *known != id);
            if waiting.is_empty() {
                self.waiting.remove(peer);
            }
        }
    }
}

impl<B> Deref for Gated<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.inner
    }
}

impl<B> DerefMut for Gated<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for Gated<B> {
    type ConnectionHandler = GatedHandler<THandler<B>>;
    type ToSwarm = B::ToSwarm;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.inner.handle_pending_inbound_connection(id, local, remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let handler = self.inner.handle_established_inbound_connection(id, peer, local, remote)?;
        Ok(self.handler(handler, peer, id))
    }

    fn handle_pending_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        self.inner.handle_pending_outbound_connection(id, peer, addresses, role)
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port_use: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let handler = self.inner.handle_established_outbound_connection(id, peer, address, role, port_use)?;
        Ok(self.handler(handler, peer, id))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match &event {
            FromSwarm::ConnectionClosed(closed) => {
                self.gone(&closed.peer_id, closed.connection_id);
                if closed.remaining_established == 0 {
                    self.shut(&closed.peer_id);
                }
            }
            // Refused by a protocol that was asked after this one.
            FromSwarm::DialFailure(failure) => {
                if let Some(peer) = failure.peer_id {
                    self.gone(&peer, failure.connection_id);
                }
            }
            FromSwarm::ListenFailure(failure) => {
                if let Some(peer) = failure.peer_id {
                    self.gone(&peer, failure.connection_id);
                }
            }
            _ => {}
        }
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, id: ConnectionId, event: THandlerOutEvent<Self>) {
        self.inner.on_connection_handler_event(peer, id, event);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some((peer_id, connection)) = self.opened.pop_front() {
            let handler = NotifyHandler::One(connection);
            return Poll::Ready(ToSwarm::NotifyHandler { peer_id, handler, event: ToGated::Open });
        }
        self.inner.poll(context).map(|event| event.map_in(ToGated::Inner))
    }
}

/// What the handler of a connection is told.
#[derive(Debug)]
pub(crate) enum ToGated<E> {
    Open,
    Inner(E),
}

/// A connection; `held` has the streams that wait until its peer is let in.
pub(crate) struct GatedHandler<H: ConnectionHandler> {
    inner: H,
    held: Option<Vec<FullyNegotiatedInbound<H::InboundProtocol, H::InboundOpenInfo>>>,
}

impl<H: ConnectionHandler> ConnectionHandler for GatedHandler<H> {
    type FromBehaviour = ToGated<H::FromBehaviour>;
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = H::InboundProtocol;
    type OutboundProtocol = H::OutboundProtocol;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol, Self::InboundOpenInfo> {
        self.inner.listen_protocol()
    }

    fn connection_keep_alive(&self) -> bool {
        self.inner.connection_keep_alive()
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Self::OutboundOpenInfo, Self::ToBehaviour>> {
        self.inner.poll(context)
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::ToBehaviour>> {
        self.inner.poll_close(context)
    }

    fn on_behaviour_event(&mut self, event: Self::FromBehaviour) {
        match event {
            ToGated::Inner(event) => self.inner.on_behaviour_event(event),
            ToGated::Open => {
                for stream in self.held.take().unwrap_or_default() {
                    self.inner.on_connection_event(ConnectionEvent::FullyNegotiatedInbound(stream));
                }
            }
        }
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<
            '_,
            Self::InboundProtocol,
            Self::OutboundProtocol,
            Self::InboundOpenInfo,
            Self::OutboundOpenInfo,
        >,
    ) {
        match (event, &mut self.held) {
            (ConnectionEvent::FullyNegotiatedInbound(stream), Some(held)) => {
                // Dropping a stream resets it.
                if held.len() < HELD_MAX {
                    held.push(stream);
                }
            }
            (event, _) => self.inner.on_connection_event(event),
        }
    }
}
