//! The proof of membership: in a closed grid each side of a connection shows its credential, once, and before all else.
//!
//! The connection has proven the peer's key, which is its site, so the credential of that site needs no challenge. Whoever
//! is refused is shown the revocations that are the reason, since it is too late to learn of them otherwise. Invariant: one
//! proof is read on a connection, of at most [`CREDENTIAL_BYTES_MAX`], and one verdict, of at most [`VERDICT_BYTES_MAX`].

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    identity::site_of_peer,
    membership::{CREDENTIAL_BYTES_MAX, Members, NotMember},
    wire::{VERDICT_BYTES_MAX, Verdict},
};
use futures::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, FutureExt as _, future::BoxFuture};
use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol,
    core::{Endpoint, transport::PortUse, upgrade::ReadyUpgrade},
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour,
        NotifyHandler, SubstreamProtocol, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
        handler::{ConnectionEvent, FullyNegotiatedInbound, FullyNegotiatedOutbound},
    },
};

/// What came of a proof.
#[derive(Debug)]
pub(crate) enum ProofEvent {
    /// A peer has shown this credential, which was checked.
    Shown { peer: PeerId, credential: Vec<u8>, checked: Result<(), NotMember> },
    /// A peer does not take this node for a member, because of these revocations, unchecked.
    Refused { peer: PeerId, revocations: Vec<Vec<u8>> },
}

/// Shows this node's credential on every connection, and checks what others show.
pub(crate) struct Proof {
    protocol: StreamProtocol,
    membership: Arc<dyn Members>,
    events: VecDeque<ToSwarm<ProofEvent, Verdict>>,
}

impl Proof {
    pub(crate) fn new(protocol: StreamProtocol, membership: Arc<dyn Members>) -> Proof {
        Proof { protocol, membership, events: VecDeque::new() }
    }

    fn handler(&self) -> ProofHandler {
        ProofHandler {
            protocol: self.protocol.clone(),
            credential: self.membership.credential(),
            is_begun: false,
            is_read: false,
            asking: None,
            reading: None,
            unanswered: None,
            answering: None,
        }
    }

    fn check(&self, peer: &PeerId, credential: &[u8]) -> Result<(), NotMember> {
        let site = site_of_peer(peer).ok_or(NotMember::MadeUp)?;
        self.membership.check(&site, credential)
    }
}

impl NetworkBehaviour for Proof {
    type ConnectionHandler = ProofHandler;
    type ToSwarm = ProofEvent;

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

    fn on_connection_handler_event(&mut self, peer: PeerId, id: ConnectionId, event: THandlerOutEvent<Self>) {
        let event = match event {
            FromProof::Shown(credential) => {
                let checked = self.check(&peer, &credential);
                let revocations = if checked == Err(NotMember::Lapsed) {
                    self.membership.revocations_of(&credential)
                } else {
                    Vec::new()
                };
                let verdict = Verdict { is_member: checked.is_ok(), revocations };
                let handler = NotifyHandler::One(id);
                self.events.push_back(ToSwarm::NotifyHandler { peer_id: peer, handler, event: verdict });
                ProofEvent::Shown { peer, credential, checked }
            }
            FromProof::Refused(revocations) => ProofEvent::Refused { peer, revocations },
        };
        self.events.push_back(ToSwarm::GenerateEvent(event));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// What a connection has brought.
#[derive(Debug)]
pub(crate) enum FromProof {
    Shown(Vec<u8>),
    Refused(Vec<Vec<u8>>),
}

type Running<T> = Option<BoxFuture<'static, io::Result<T>>>;

/// Both directions of the proof on one connection.
pub(crate) struct ProofHandler {
    protocol: StreamProtocol,
    credential: Vec<u8>,
    is_begun: bool,
    is_read: bool,
    asking: Running<Verdict>,
    reading: Running<(Vec<u8>, Stream)>,
    unanswered: Option<Stream>,
    answering: Running<()>,
}

impl ConnectionHandler for ProofHandler {
    type FromBehaviour = Verdict;
    type ToBehaviour = FromProof;
    type InboundProtocol = ReadyUpgrade<StreamProtocol>;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = ();

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol> {
        SubstreamProtocol::new(ReadyUpgrade::new(self.protocol.clone()), ())
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, (), Self::ToBehaviour>> {
        if !self.is_begun {
            self.is_begun = true;
            let protocol = SubstreamProtocol::new(ReadyUpgrade::new(self.protocol.clone()), ());
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        // Who is cut off while it shows or judges a proof is closed in its time.
        if let Some((credential, stream)) = finished(&mut self.reading, context) {
            self.unanswered = Some(stream);
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(FromProof::Shown(credential)));
        }
        finished(&mut self.answering, context);
        match finished(&mut self.asking, context) {
            Some(verdict) if !verdict.is_member => {
                let refused = FromProof::Refused(verdict.revocations);
                Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(refused))
            }
            _ => Poll::Pending,
        }
    }

    fn on_behaviour_event(&mut self, verdict: Verdict) {
        self.answering = self.unanswered.take().map(|stream| answer(stream, verdict).boxed());
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<'_, Self::InboundProtocol, Self::OutboundProtocol, (), ()>,
    ) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: stream, .. })
                if !self.is_read =>
            {
                self.is_read = true;
                self.reading = Some(read_proof(stream).boxed());
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: stream, .. }) => {
                self.asking = Some(ask(stream, std::mem::take(&mut self.credential)).boxed());
            }
            // A peer of another kind: it does not ask for a proof.
            _ => {}
        }
    }
}

/// The result of a future that has ended well; the future is dropped when it has ended.
fn finished<T>(running: &mut Running<T>, context: &mut Context<'_>) -> Option<T> {
    let Poll::Ready(result) = running.as_mut()?.poll_unpin(context) else { return None };
    *running = None;
    result.ok()
}

async fn read_all(stream: &mut (impl AsyncRead + Unpin + Send), bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// A proof that is too long is none: it is handed on, to be refused.
async fn read_proof(mut stream: Stream) -> io::Result<(Vec<u8>, Stream)> {
    Ok((read_all(&mut stream, CREDENTIAL_BYTES_MAX).await?, stream))
}

async fn answer(mut stream: Stream, verdict: Verdict) -> io::Result<()> {
    let bytes = verdict.to_bytes().map_err(io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.close().await
}

async fn ask(mut stream: Stream, credential: Vec<u8>) -> io::Result<Verdict> {
    stream.write_all(&credential).await?;
    stream.close().await?;
    let bytes = read_all(&mut stream, VERDICT_BYTES_MAX).await?;
    Verdict::read(&bytes).map_err(io::Error::other)
}
