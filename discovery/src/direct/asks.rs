//! Direct requests of this node: on the wire, or waiting for their peer's turn.
//!
//! Invariant: at most `asks_open_max` are on the wire and `asks_per_peer_max` to one peer, so that no connection reaches
//! its limit of streams (it would refuse); at most `asks_waiting_max` wait. A request whose caller has gone is not sent.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
};

use broker::protocol::{SiteAnswer, SiteRequest};
use libp2p::{
    Multiaddr, PeerId,
    request_response::{OutboundFailure, OutboundRequestId},
};
use tokio::sync::oneshot;

use crate::{
    command::{AskCommand, AskError},
    config::Limits,
    wire::{MANY_MAX, WireAnswer, WireRequest, request_bytes},
};

/// What [`Asks`] sends through: request-response, or a test's list.
pub(crate) trait Wire {
    fn send(&mut self, peer: &PeerId, request: WireRequest, addresses: Vec<Multiaddr>) -> OutboundRequestId;
}

type Reply = oneshot::Sender<Result<WireAnswer, AskError>>;

/// What several requests in one message may take, in bytes; a peer reads but a few larger ones at a time.
const MANY_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug, Default)]
struct Peer {
    /// Messages on the wire.
    open: usize,
    waiting: VecDeque<AskCommand>,
}

/// The requests of this node.
#[derive(Debug)]
pub(crate) struct Asks {
    limits: Limits,
    open: BTreeMap<OutboundRequestId, (PeerId, Vec<Reply>)>,
    /// Only peers with something open or something new.
    peers: BTreeMap<PeerId, Peer>,
    /// Peers with something new.
    is_new: BTreeSet<PeerId>,
    waiting: usize,
}

impl Asks {
    pub(crate) fn new(limits: Limits) -> Asks {
        Asks { limits, open: BTreeMap::new(), peers: BTreeMap::new(), is_new: BTreeSet::new(), waiting: 0 }
    }

    /// Takes a request for the next [`send`](Asks::send), or refuses it with "busy"; false when it was refused.
    pub(crate) fn submit(&mut self, ask: AskCommand) -> bool {
        let is_turn = self.peers.get(&ask.peer).is_none_or(|peer| peer.open < self.limits.asks_per_peer_max);
        if self.open.len() >= self.limits.asks_open_max || (!is_turn && self.waiting >= self.limits.asks_waiting_max) {
            // An error means that the caller has gone.
            let _ = ask.reply.send(Err(AskError::Busy));
            return false;
        }
        self.is_new.insert(ask.peer);
        self.peers.entry(ask.peer).or_default().waiting.push_back(ask);
        self.waiting += 1;
        true
    }

    /// Sends what was submitted, as far as it is its peer's turn: what goes to one peer and is small goes in one message. Returns how many
    /// requests have shared one.
    pub(crate) fn send(&mut self, wire: &mut impl Wire) -> u64 {
        let mut shared = 0;
        for peer in std::mem::take(&mut self.is_new) {
            shared += self.send_to(&peer, wire);
        }
        shared
    }

    fn send_to(&mut self, peer_id: &PeerId, wire: &mut impl Wire) -> u64 {
        let Some(peer) = self.peers.get_mut(peer_id) else { return 0 };
        let mut shared = 0;
        while peer.open < self.limits.asks_per_peer_max && self.open.len() < self.limits.asks_open_max {
            let before = peer.waiting.len();
            let group = next_group(&mut peer.waiting);
            self.waiting -= before - peer.waiting.len();
            let Some(Group { request, addresses, replies }) = group else { break };
            if replies.len() > 1 {
                shared += replies.len() as u64;
            }
            peer.open += 1;
            self.open.insert(wire.send(peer_id, request, addresses), (*peer_id, replies));
        }
        if peer.open == 0 && peer.waiting.is_empty() {
            self.peers.remove(peer_id);
        } else if peer.open == 0 {
            // It waits behind the total: no answer of this peer will be the occasion to send it.
            self.is_new.insert(*peer_id);
        }
        shared
    }

    /// Passes an answer or a failure on to its callers, and sends what waited for it. False when it is no answer to what was asked.
    pub(crate) fn finished(
        &mut self,
        id: OutboundRequestId,
        answer: Result<WireAnswer, AskError>,
        wire: &mut impl Wire,
    ) -> bool {
        let Some((peer_id, replies)) = self.open.remove(&id) else { return true };
        let is_answer = pass_on(answer, replies);
        if let Some(peer) = self.peers.get_mut(&peer_id) {
            peer.open -= 1;
        }
        self.send_to(&peer_id, wire);
        self.send(wire);
        is_answer
    }

    /// Whether something is open to the peer.
    pub(crate) fn is_open_to(&self, peer: &PeerId) -> bool {
        self.peers.contains_key(peer)
    }
}

/// A message to be sent, and who waits for its answers.
struct Group {
    request: WireRequest,
    addresses: Vec<Multiaddr>,
    replies: Vec<Reply>,
}

/// The first request that somebody waits for, with those behind it that may share its message.
fn next_group(waiting: &mut VecDeque<AskCommand>) -> Option<Group> {
    waiting.retain(|ask| !ask.reply.is_closed());
    let AskCommand { request, addresses, reply, .. } = waiting.pop_front()?;
    let mut replies = vec![reply];
    let may_share = |ask: &&AskCommand| ask.request.may_share();
    if !request.may_share() || waiting.front().filter(may_share).is_none() {
        return Some(Group { request, addresses, replies });
    }
    let mut bytes = request_bytes(&request).len();
    let mut requests: Vec<SiteRequest> = request.into_site().into_iter().collect();
    while let Some(next) = waiting.front().filter(may_share) {
        bytes += request_bytes(&next.request).len();
        if requests.len() == MANY_MAX || bytes > MANY_BYTES_MAX {
            break;
        }
        let Some(AskCommand { request, reply, .. }) = waiting.pop_front() else { break };
        requests.extend(request.into_site());
        replies.push(reply);
    }
    Some(Group { request: WireRequest::many(requests)?, addresses, replies })
}

/// Gives each caller its part of the answer; false when it is no answer to what was asked.
fn pass_on(answer: Result<WireAnswer, AskError>, replies: Vec<Reply>) -> bool {
    let is_one = replies.len() == 1;
    let (answers, is_answer): (Vec<_>, bool) = match answer {
        Ok(WireAnswer::Many(answers)) if !is_one && answers.len() == replies.len() => {
            // Whether it was worked on is not known.
            let of = |answer: Option<SiteAnswer>| answer.map(WireAnswer::Site).ok_or(AskError::Interrupted);
            (answers.into_iter().map(of).collect(), true)
        }
        Ok(answer) if !is_one && !matches!(answer, WireAnswer::Busy | WireAnswer::NotUnderstood { .. }) => {
            let error = AskError::Protocol("answered with something else than so many answers".to_owned());
            (replies.iter().map(|_| Err(error.clone())).collect(), false)
        }
        answer => (replies.iter().map(|_| answer.clone()).collect(), true),
    };
    for (reply, answer) in replies.into_iter().zip(answers) {
        // An error means that the caller has gone.
        let _ = reply.send(answer);
    }
    is_answer
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
