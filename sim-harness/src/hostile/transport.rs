//! TCP and QUIC as honest nodes have them, read from as fast as bytes come.
//!
//! Invariant: a connection comes from where its attacker says. libp2p dials by TCP from what the system chooses, which on one machine is an
//! address of which no network is counted; by QUIC it dials from where it listens.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use discovery::Multiaddr;
use futures::{FutureExt as _, future::BoxFuture};
use libp2p::{
    PeerId, Transport,
    core::{
        muxing::StreamMuxerBox,
        transport::{Boxed, DialOpts, ListenerId, TransportError, TransportEvent},
        upgrade,
    },
    identity::Keypair,
    multiaddr::Protocol,
    noise, quic, tcp, yamux,
};
use tokio::net::{TcpSocket, TcpStream};

/// The transport of one identity that comes from an address of this machine.
pub fn build(keypair: &Keypair, from: Ipv4Addr) -> Result<Boxed<(PeerId, StreamMuxerBox)>, noise::Error> {
    let listening = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let tcp = TcpFrom { listening, from }
        .upgrade(upgrade::Version::V1Lazy)
        .authenticate(noise::Config::new(keypair)?)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let quic = quic::tokio::Transport::new(quic::Config::new(keypair))
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    Ok(tcp.or_transport(quic).map(|either, _| either.into_inner()).boxed())
}

/// Where an attacker from an address listens.
pub fn places(from: Ipv4Addr) -> [Multiaddr; 2] {
    let from = Multiaddr::from(from);
    [from.clone().with(Protocol::Tcp(0)), from.with(Protocol::Udp(0)).with(Protocol::QuicV1)]
}

/// The socket of an address by TCP; none of another one.
pub fn socket_of(address: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => ip.into(),
        Protocol::Ip6(ip) => IpAddr::from(ip),
        _ => return None,
    };
    match parts.next()? {
        Protocol::Tcp(port) => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

/// A connection by TCP from an address of this machine.
pub async fn connect(target: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(target).await
}

/// TCP that dials from one address.
struct TcpFrom {
    listening: tcp::tokio::Transport,
    from: Ipv4Addr,
}

impl Transport for TcpFrom {
    type Output = tcp::tokio::TcpStream;
    type Error = io::Error;
    type ListenerUpgrade = <tcp::tokio::Transport as Transport>::ListenerUpgrade;
    type Dial = BoxFuture<'static, io::Result<tcp::tokio::TcpStream>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<io::Error>> {
        self.listening.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.listening.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, _: DialOpts) -> Result<Self::Dial, TransportError<io::Error>> {
        let Some(target) = socket_of(&address) else { return Err(TransportError::MultiaddrNotSupported(address)) };
        let from = self.from;
        Ok(async move { connect(target, from).await.map(tcp::tokio::TcpStream) }.boxed())
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        Pin::new(&mut self.listening).poll(context)
    }
}
