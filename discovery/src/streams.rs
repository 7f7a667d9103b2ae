//! A protocol of plain streams: hands them on, in both directions, and reads nothing itself.
//!
//! Invariant: of one connection a bounded number of streams that the peer has opened waits to be handed on, and the others are reset;
//! a stream is opened on the newest connection with its peer, so that an older one that a cut has broken is not waited for.

use std::{
    collections::{BTreeMap, VecDeque},
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
pub(crate) struct Opened {
    pub(crate) peer: PeerId,
    pub(crate) stream: Stream,
}

/// Opens streams, and hands on those that others open.
pub(crate) struct Streams {
    protocol: StreamProtocol,
    /// Streams of one connection that wait to be handed on, at most.
    waiting_max: usize,
    /// The connections of each peer, the newest last.
    connections: BTreeMap<PeerId, Vec<ConnectionId>>,
    events: VecDeque<ToSwarm<Opened, Reply>>,
}

impl Streams {
    pub(crate) fn new(protocol: StreamProtocol, waiting_max: usize) -> Streams {
        Streams { protocol, waiting_max, connections: BTreeMap::new(), events: VecDeque::new() }
    }

    /// Opens a stream to a connected peer; to another one there is none, which the reply tells by being dropped.
    pub(crate) fn open_stream(&mut self, peer_id: PeerId, reply: Reply) {
        if let Some(newest) = self.connections.get(&peer_id).and_then(|open| open.last()) {
            let handler = NotifyHandler::One(*newest);
            self.events.push_back(ToSwarm::NotifyHandler { peer_id, handler, event: reply });
        }
    }

    fn handler(&self) -> StreamHandler {
        let (waiting_max, opened) = (self.waiting_max, VecDeque::new());
        StreamHandler { protocol: self.protocol.clone(), wanted: VecDeque::new(), waiting_max, opened }
    }
}

impl NetworkBehaviour for Streams {
    type ConnectionHandler = StreamHandler;
    type ToSwarm = Opened;

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

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(opened) => {
                self.connections.entry(opened.peer_id).or_default().push(opened.connection_id);
            }
            FromSwarm::ConnectionClosed(closed) => {
                if let Some(open) = self.connections.get_mut(&closed.peer_id) {
                    open.retain(|known| *known != closed.connection_id);
                    if open.is_empty() {
                        self.connections.remove(&closed.peer_id);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, _: ConnectionId, stream: THandlerOutEvent<Self>) {
        self.events.push_back(ToSwarm::GenerateEvent(Opened { peer, stream }));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// One connection.
pub(crate) struct StreamHandler {
    protocol: StreamProtocol,
    wanted: VecDeque<Reply>,
    waiting_max: usize,
    opened: VecDeque<Stream>,
}

impl ConnectionHandler for StreamHandler {
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
        let opened = self.opened.pop_front().map(ConnectionHandlerEvent::NotifyBehaviour);
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
            // A further stream is dropped, which resets it.
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: stream, .. })
                if self.opened.len() < self.waiting_max =>
            {
                self.opened.push_back(stream);
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: stream, info: reply }) => {
                // An error means that nobody waits for it any more.
                let _ = reply.send(stream);
            }
            _ => {}
        }
    }
}
