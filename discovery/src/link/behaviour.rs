//! The protocol of tests of links: hands streams on, in both directions, and reads nothing itself.
//!
//! Invariant: of one connection at most one stream that the peer has opened waits to be handed on.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol,
    core::{Endpoint, transport::PortUse, upgrade::ReadyUpgrade},
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour,
        NotifyHandler, SubstreamProtocol, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
        handler::{ConnectionEvent, FullyNegotiatedInbound, FullyNegotiatedOutbound},
    },
};
use tokio::sync::oneshot;

/// Where a stream goes that was opened; nothing comes when it could not be.
pub(crate) type Reply = oneshot::Sender<Stream>;

/// A peer has opened a stream.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) peer: PeerId,
    pub(crate) stream: Stream,
}

/// Opens streams, and hands on those that others open.
pub(crate) struct LinkTests {
    protocol: StreamProtocol,
    events: VecDeque<ToSwarm<Asked, Reply>>,
}

impl LinkTests {
    pub(crate) fn new(protocol: StreamProtocol) -> LinkTests {
        LinkTests { protocol, events: VecDeque::new() }
    }

    /// Opens a stream to a connected peer.
    pub(crate) fn open_stream(&mut self, peer_id: PeerId, reply: Reply) {
        self.events.push_back(ToSwarm::NotifyHandler { peer_id, handler: NotifyHandler::Any, event: reply });
    }

    fn handler(&self) -> LinkHandler {
        LinkHandler { protocol: self.protocol.clone(), wanted: VecDeque::new(), opened: None }
    }
}

impl NetworkBehaviour for LinkTests {
    type ConnectionHandler = LinkHandler;
    type ToSwarm = Asked;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler())
    }

    fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

    fn on_connection_handler_event(&mut self, peer: PeerId, _: ConnectionId, stream: THandlerOutEvent<Self>) {
        self.events.push_back(ToSwarm::GenerateEvent(Asked { peer, stream }));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// One connection.
pub(crate) struct LinkHandler {
    protocol: StreamProtocol,
    wanted: VecDeque<Reply>,
    opened: Option<Stream>,
}

impl ConnectionHandler for LinkHandler {
    type FromBehaviour = Reply;
    type ToBehaviour = Stream;
    type InboundProtocol = ReadyUpgrade<StreamProtocol>;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Reply;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol> {
        SubstreamProtocol::new(ReadyUpgrade::new(self.protocol.clone()), ())
    }

    fn poll(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Reply, Self::ToBehaviour>> {
        if let Some(reply) = self.wanted.pop_front() {
            let protocol = SubstreamProtocol::new(ReadyUpgrade::new(self.protocol.clone()), reply);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        let opened = self.opened.take().map(ConnectionHandlerEvent::NotifyBehaviour);
        opened.map_or(Poll::Pending, Poll::Ready)
    }

    fn on_behaviour_event(&mut self, reply: Reply) {
        self.wanted.push_back(reply);
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<'_, Self::InboundProtocol, Self::OutboundProtocol, (), Reply>,
    ) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: stream, .. }) => {
                // Dropping a stream resets it.
                self.opened.get_or_insert(stream);
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: stream, info: reply }) => {
                // An error means that nobody waits for it any more.
                let _ = reply.send(stream);
            }
            _ => {}
        }
    }
}
