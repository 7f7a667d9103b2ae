//! What carries connections: TCP with Noise and Yamux beside QUIC, or channels inside the process.
//!
//! Invariant: every connection is encrypted and its peer proven, whatever carries it.

use std::{
    pin::Pin,
    sync::Arc,
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
use crate::{addresses::DialFilter, config::TransportKind};

pub(crate) type BoxedTransport = Boxed<(PeerId, StreamMuxerBox)>;

/// A site that does not take a connection within this is as good as down for a request that is placed now.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams of one connection, in both directions: twice what honest nodes have open. Each may hold 256 KiB that wait to be
/// read, so a connection costs at most 64 MiB, for the few seconds until its requests are cut off.
const STREAMS_MAX: usize = 256;

/// Builds the transport. Of each connection no more is read than `throttle` allows, beside unthrottled streams.
///
/// # Errors
/// When the key cannot be used for Noise.
pub(crate) fn build(
    kind: TransportKind,
    keypair: &Keypair,
    throttle: Throttle,
    dials: &Arc<DialFilter>,
) -> Result<BoxedTransport, noise::Error> {
    let transport = match kind {
        TransportKind::TcpAndQuic => tcp_and_quic(keypair, Arc::clone(dials)),
        TransportKind::Memory => memory(keypair),
    }?;
    let throttled = move |muxer| ThrottledMuxer::new(muxer, throttle);
    Ok(transport.map(move |(peer, muxer), _| (peer, StreamMuxerBox::new(throttled(muxer)))).boxed())
}

fn multiplexer() -> yamux::Config {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(STREAMS_MAX);
    config
}

fn tcp_and_quic(keypair: &Keypair, dials: Arc<DialFilter>) -> Result<BoxedTransport, noise::Error> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(upgrade::Version::V1Lazy)
        .authenticate(noise::Config::new(keypair)?)
        .multiplex(multiplexer())
        .timeout(DIAL_TIMEOUT)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let quic = quic::tokio::Transport::new(quic::Config::new(keypair))
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let inner = tcp.or_transport(quic).map(|either, _| either.into_inner()).boxed();
    Ok(Dialling { inner, dials }.boxed())
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

/// Dials what the filter allows, wherever the address comes from: adverts, the DHT, or the peer itself.
///
/// It dials from a fresh port always. By default libp2p dials from the listening port, which helps to punch holes through
/// NATs; but two nodes that dial each other at once, as all do while a grid forms, then make one TCP connection with two
/// dialling ends, which stalls until it times out.
struct Dialling {
    inner: BoxedTransport,
    dials: Arc<DialFilter>,
}

impl Transport for Dialling {
    type Output = <BoxedTransport as Transport>::Output;
    type Error = <BoxedTransport as Transport>::Error;
    type ListenerUpgrade = <BoxedTransport as Transport>::ListenerUpgrade;
    type Dial = <BoxedTransport as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<Self::Error>> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Result<Self::Dial, TransportError<Self::Error>> {
        if !self.dials.allows(&address) {
            return Err(TransportError::MultiaddrNotSupported(address));
        }
        self.inner.dial(address, DialOpts { port_use: PortUse::New, ..options })
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        Pin::new(&mut self.inner).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use libp2p::core::Endpoint;

    use super::*;

    #[tokio::test]
    async fn nothing_is_dialled_that_the_filter_does_not_allow() {
        let throttle = Throttle { bytes_per_s: 1, streams_per_s: 1 };
        let keypair = Keypair::generate_ed25519();
        let mut transport = build(TransportKind::TcpAndQuic, &keypair, throttle, &Arc::default()).unwrap();
        let options = || DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
        for (address, is_dialled) in [
            ("/ip4/192.168.77.7/tcp/80", false),
            ("/ip4/127.0.0.1/udp/80/quic-v1", false),
            ("/ip4/8.8.8.8/tcp/80", true),
            ("/ip4/8.8.8.8/udp/80/quic-v1", true),
        ] {
            // The future that would connect is dropped.
            let dial = transport.dial(address.parse().unwrap(), options());
            assert_eq!(dial.is_ok(), is_dialled, "{address}");
        }
    }
}
