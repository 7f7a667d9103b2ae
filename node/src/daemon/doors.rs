//! Where the API and the page are served: on loopback, and over TLS for other machines if the owner wants that.
//!
//! Invariant: both serve the same routes; each tells them which one a call came through. Whoever connects costs one of a bounded
//! number of places, and loses it after [`IDLE_TIMEOUT`] without a whole header, or when it takes nothing of an answer for
//! [`UNREAD_TIMEOUT`]; the body's time is bounded where it is read.

mod places;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use discovery::prefix_of;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tracing::{debug, info};

use self::places::{DoorLimits, Place, Places};
use super::error::DaemonError;
use crate::{
    api::{
        self,
        authority::Peer,
        state::{ApiState, Via},
        tls::Tls,
    },
    config::NodeConfig,
    runtime::open_files::Shares,
};

/// How long a connection may go without a call, and the header of a call may take. Longer than the command line keeps a
/// connection that it does not use (15 s), so that none is closed just when it is used again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long somebody may take nothing of what was sent.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Connections from one address of another machine: a few browsers, each with up to six.
const PER_PREFIX_MAX: usize = 64;
/// Wait after no connection could be taken, mostly for want of file descriptors: those that are served give some back.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// One of the two.
struct Door {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    limits: DoorLimits,
}

/// Open listeners.
pub struct Doors {
    local: Door,
    remote: Option<Door>,
    /// Of the local one.
    pub address: SocketAddr,
}

impl Doors {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be listened on, or certificate or key are wrong.
    pub async fn open(config: &NodeConfig, shares: Shares) -> Result<Doors, DaemonError> {
        let failed = |source| DaemonError::Api { address: config.settings.api, source };
        let listener = TcpListener::bind(config.settings.api).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // All callers of this machine share an address.
        let limits = DoorLimits { connections_max: shares.local, per_prefix_max: shares.local, idle: IDLE_TIMEOUT };
        let local = Door { listener, address, tls: None, limits };
        let remote = match &config.remote {
            Some(remote) => {
                let tls = Tls::open(&remote.cert, &remote.key)?;
                let listen = |source| DaemonError::Remote { address: remote.address, source };
                let listener = TcpListener::bind(remote.address).await.map_err(listen)?;
                let address = listener.local_addr().map_err(listen)?;
                let (connections_max, per_prefix_max) = (shares.remote, PER_PREFIX_MAX);
                let limits = DoorLimits { connections_max, per_prefix_max, idle: IDLE_TIMEOUT };
                Some(Door { listener, address, tls: Some(tls), limits })
            }
            None => None,
        };
        Ok(Doors { local, remote, address })
    }

    /// What makes the connections of other machines private, if there are any.
    pub fn tls(&self) -> Option<Tls> {
        self.remote.as_ref().and_then(|door| door.tls.clone())
    }

    /// Serves the API until `stopped` says so; one task a door.
    pub fn serve(self, api: &Arc<ApiState>, stopped: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (name, door) in [("local", Some(self.local)), ("remote", self.remote)] {
            let Some(door) = door else { continue };
            let via = Via { address: door.address, is_tls: door.tls.is_some() };
            if via.is_tls {
                info!("the page and the API are served to other machines at https://{}", via.address);
            }
            let places = Places::new(door.limits, api.metrics.door(name));
            tasks.spawn(serve_door(door.listener, door.tls, api::router(api.clone(), via), places, stopped.clone()));
        }
        tasks
    }
}

/// Serves all who come, until `stopped` says so and those who are being served have their answers.
async fn serve_door(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    mut places: Places,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    // An error says that the node is gone already.
    let ending = stopped.clone();
    let mut stop = pin!(stop_said(&mut stopped));
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    if let Some(place) = places.take(from) {
                        let (tls, router, idle) = (tls.clone(), router.clone(), places.limits.idle);
                        let peer = Peer(prefix_of(from.ip()));
                        let calls = Calls { router, peer, stopped: ending.clone(), idle };
                        connections.spawn(serve_connection(stream, tls, calls, place));
                    }
                }
                // The one who came is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    places.none_came(&error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits until the doors are to be closed. An error says that the node is gone already.
async fn stop_said(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// What is needed to serve the calls of one connection.
struct Calls {
    router: Router,
    peer: Peer,
    stopped: watch::Receiver<bool>,
    idle: Duration,
}

async fn serve_connection(stream: TcpStream, tls: Option<Tls>, calls: Calls, _place: Place) {
    if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD_TIMEOUT)) {
        debug!(%error, "a connection is gone already");
        return;
    }
    match tls {
        None => calls.serve(stream).await,
        Some(tls) => {
            if let Some(stream) = tls.handshake(stream).await {
                calls.serve(stream).await;
            }
        }
    }
}

impl Calls {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Calls { router, peer, mut stopped, idle } = self;
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            router.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop_said(&mut stopped) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "a connection has ended");
        }
    }
}

#[cfg(test)]
mod tests;
