//! What carries connections: TCP with Noise and Yamux beside QUIC, or channels inside the process.
//!
//! Invariant: every connection is encrypted and its peer proven, whatever carries it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use libp2p::{
    Multiaddr, PeerId, Transport,
    core::{
        muxing::StreamMuxerBox,
        transport::{Boxed, DialOpts, ListenerId, MemoryTransport, PortUse, TransportError, TransportEvent},
        upgrade,
    },
    identity::Keypair,
    noise, quic, tcp, yamux,
};

use super::throttle::{Throttle, ThrottledMuxer};
use crate::config::TransportKind;

pub(crate) type BoxedTransport = Boxed<(PeerId, StreamMuxerBox)>;

/// A site that does not take a connection within this is as good as down for a request that is placed now.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams of one connection, in both directions: twice what honest nodes have open. Each may hold 256 KiB that wait to be
/// read, so a connection costs at most 64 MiB, for the few seconds until its requests are cut off.
const STREAMS_MAX: usize = 256;

/// Builds the transport. Of each connection no more is read than `throttle` allows.
///
/// # Errors
/// When the key cannot be used for Noise.
pub(crate) fn build(
    kind: TransportKind,
    keypair: &Keypair,
    throttle: Throttle,
) -> Result<BoxedTransport, noise::Error> {
    let transport = match kind {
        TransportKind::TcpAndQuic => tcp_and_quic(keypair),
        TransportKind::Memory => memory(keypair),
    }?;
    Ok(transport.map(move |(peer, muxer), _| (peer, StreamMuxerBox::new(ThrottledMuxer::new(muxer, throttle)))).boxed())
}

fn multiplexer() -> yamux::Config {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(STREAMS_MAX);
    config
}

fn tcp_and_quic(keypair: &Keypair) -> Result<BoxedTransport, noise::Error> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(upgrade::Version::V1Lazy)
        .authenticate(noise::Config::new(keypair)?)
        .multiplex(multiplexer())
        .timeout(DIAL_TIMEOUT)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let quic = quic::tokio::Transport::new(quic::Config::new(keypair))
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    Ok(FromNewPort(tcp.or_transport(quic).map(|either, _| either.into_inner()).boxed()).boxed())
}

fn memory(keypair: &Keypair) -> Result<BoxedTransport, noise::Error> {
    Ok(MemoryTransport::default()
        .upgrade(upgrade::Version::V1Lazy)
        .authenticate(noise::Config::new(keypair)?)
        .multiplex(multiplexer())
        .timeout(DIAL_TIMEOUT)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)))
        .boxed())
}

/// Dials from a fresh port always. By default libp2p dials from the listening port, which helps to punch holes through
/// NATs; but two nodes that dial each other at once, as all do while a grid forms, then make one TCP connection with two
/// dialling ends, which stalls until it times out.
struct FromNewPort(BoxedTransport);

impl Transport for FromNewPort {
    type Output = <BoxedTransport as Transport>::Output;
    type Error = <BoxedTransport as Transport>::Error;
    type ListenerUpgrade = <BoxedTransport as Transport>::ListenerUpgrade;
    type Dial = <BoxedTransport as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<Self::Error>> {
        self.0.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.0.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Result<Self::Dial, TransportError<Self::Error>> {
        self.0.dial(address, DialOpts { port_use: PortUse::New, ..options })
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        Pin::new(&mut self.0).poll(context)
    }
}
