//! Direct requests of this node: on the wire, or waiting for their peer's turn.
//!
//! Invariant: at most `asks_open_max` are on the wire and `asks_per_peer_max` to one peer, so that no connection reaches
//! its limit of streams (it would refuse); at most `asks_waiting_max` wait. A request whose caller has gone is not sent.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use libp2p::{
    Multiaddr, PeerId,
    request_response::{OutboundFailure, OutboundRequestId},
};
use tokio::sync::oneshot;

use crate::{
    command::{AskCommand, AskError},
    config::Limits,
    wire::{WireAnswer, WireRequest},
};

/// What [`Asks`] sends through: request-response, or a test's list.
pub(crate) trait Wire {
    fn send(&mut self, peer: &PeerId, request: WireRequest, addresses: Vec<Multiaddr>) -> OutboundRequestId;
}

type Reply = oneshot::Sender<Result<WireAnswer, AskError>>;

#[derive(Debug, Default)]
struct Peer {
    open: usize,
    waiting: VecDeque<AskCommand>,
}

/// The requests of this node.
#[derive(Debug)]
pub(crate) struct Asks {
    limits: Limits,
    open: BTreeMap<OutboundRequestId, (PeerId, Reply)>,
    /// Only peers with something open; what waits for a peer waits behind something open to it, or behind the total.
    peers: BTreeMap<PeerId, Peer>,
    waiting: usize,
}

impl Asks {
    pub(crate) fn new(limits: Limits) -> Asks {
        Asks { limits, open: BTreeMap::new(), peers: BTreeMap::new(), waiting: 0 }
    }

    /// Sends the request, or lets it wait for its peer's turn, or refuses it with "busy"; false when it was refused.
    pub(crate) fn submit(&mut self, ask: AskCommand, wire: &mut impl Wire) -> bool {
        if self.open.len() >= self.limits.asks_open_max {
            return refuse(ask.reply);
        }
        let peer = self.peers.entry(ask.peer).or_default();
        if peer.open >= self.limits.asks_per_peer_max {
            if self.waiting >= self.limits.asks_waiting_max {
                return refuse(ask.reply);
            }
            peer.waiting.push_back(ask);
            self.waiting += 1;
            return true;
        }
        peer.open += 1;
        let id = wire.send(&ask.peer, ask.request, ask.addresses);
        self.open.insert(id, (ask.peer, ask.reply));
        true
    }

    /// Passes an answer or a failure on to its caller, and sends what waited for it.
    pub(crate) fn finished(
        &mut self,
        id: OutboundRequestId,
        answer: Result<WireAnswer, AskError>,
        wire: &mut impl Wire,
    ) {
        let Some((peer_id, reply)) = self.open.remove(&id) else { return };
        // An error means that the caller has gone.
        let _ = reply.send(answer);
        let Some(peer) = self.peers.get_mut(&peer_id) else { return };
        peer.open -= 1;
        while let Some(ask) = peer.waiting.pop_front() {
            self.waiting -= 1;
            if !ask.reply.is_closed() {
                peer.open += 1;
                let id = wire.send(&ask.peer, ask.request, ask.addresses);
                self.open.insert(id, (ask.peer, ask.reply));
                break;
            }
        }
        if peer.open == 0 {
            self.peers.remove(&peer_id);
        }
    }

    /// Whether something is open to the peer.
    pub(crate) fn is_open_to(&self, peer: &PeerId) -> bool {
        self.peers.contains_key(peer)
    }
}

fn refuse(reply: Reply) -> bool {
    // An error means that the caller has gone.
    let _ = reply.send(Err(AskError::Busy));
    false
}

/// What a failure of libp2p means to the caller.
pub(crate) fn ask_error(failure: &OutboundFailure) -> AskError {
    match failure {
        OutboundFailure::DialFailure => AskError::Unreachable,
        OutboundFailure::Timeout => AskError::TimedOut,
        OutboundFailure::ConnectionClosed => AskError::Interrupted,
        OutboundFailure::UnsupportedProtocols => AskError::NotUnderstood("a version of direct requests".to_owned()),
        OutboundFailure::Io(error) => match error.kind() {
            io::ErrorKind::InvalidData => AskError::Protocol(error.to_string()),
            io::ErrorKind::Unsupported => AskError::NotUnderstood(error.to_string()),
            _ => AskError::Interrupted,
        },
    }
}
