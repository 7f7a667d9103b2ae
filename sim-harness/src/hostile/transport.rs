//! TCP and QUIC as honest nodes have them, read from as fast as bytes come.

use libp2p::{
    PeerId, Transport as _,
    core::{muxing::StreamMuxerBox, transport::Boxed, upgrade},
    identity::Keypair,
    noise, quic, tcp, yamux,
};

/// The transport of one identity.
pub fn build(keypair: &Keypair) -> Result<Boxed<(PeerId, StreamMuxerBox)>, noise::Error> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(upgrade::Version::V1Lazy)
        .authenticate(noise::Config::new(keypair)?)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let quic = quic::tokio::Transport::new(quic::Config::new(keypair))
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    Ok(tcp.or_transport(quic).map(|either, _| either.into_inner()).boxed())
}
