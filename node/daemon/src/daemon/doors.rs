//! Where the API and the page are served: on loopback, by a socket in the data directory to the node's own user, and over TLS for other
//! machines if the owner wants that. Any user of the machine may have the port on loopback first; the node starts without it then, and takes
//! it when it is free.
//!
//! Invariant: all serve the same routes; each tells them which one a call came through, and none takes the places of another. Whoever
//! connects costs one of a bounded number of places, and loses it after [`IDLE_TIMEOUT`] without a whole header, or when it takes nothing of
//! an answer for [`UNREAD_TIMEOUT`] (not by the socket); the body's time is bounded where it is read.

mod places;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

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
use kolo_config::{DEFAULT_API, NodeConfig};
use kolo_runtime::{listeners::who_listens, open_files::Shares, own_socket};
use kolo_storage::data_dir::{Announcement, DataDir, DataDirError};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::{JoinSet, spawn_blocking},
};
use tracing::{debug, error, info, warn};

use self::places::{DoorLimits, Place, Places};
use super::error::DaemonError;
use crate::api::{
    self,
    authority::Peer,
    local_port::LocalPort,
    state::{ApiState, Via},
    tls::Tls,
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
/// From one try to take the port to the next, while another program has it.
const TAKE_EVERY: Duration = Duration::from_secs(5);

/// Name of the door on loopback.
const LOCAL: &str = "local";

/// One of the three.
struct Door {
    name: &'static str,
    listener: Listener,
    /// Where a browser finds the page.
    address: SocketAddr,
    limits: DoorLimits,
}

enum Listener {
    Plain(TcpListener),
    Tls(TcpListener, Tls),
    /// In the data directory.
    Socket(UnixListener),
}

enum Stream {
    Plain(TcpStream),
    Tls(TcpStream, Tls),
    Socket(UnixStream),
}

impl Listener {
    /// The next who comes and from where; none when who comes is not let in.
    async fn accept(&self) -> io::Result<Option<(Stream, IpAddr)>> {
        Ok(match self {
            Listener::Plain(listener) => {
                let (stream, from) = listener.accept().await?;
                Some((Stream::Plain(stream), from.ip()))
            }
            Listener::Tls(listener, tls) => {
                let (stream, from) = listener.accept().await?;
                Some((Stream::Tls(stream, tls.clone()), from.ip()))
            }
            Listener::Socket(listener) => {
                let (stream, _) = listener.accept().await?;
                let is_own = own_socket::is_own(&stream);
                is_own.then_some((Stream::Socket(stream), Ipv4Addr::LOCALHOST.into()))
            }
        })
    }
}

/// What the node does where another program has its port on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Otherwise {
    /// It takes any other port, as its owner has chosen none.
    TakeAnother,
    /// It starts without: local callers have the socket.
    Wait,
    /// It does not start, since nobody could call it.
    Fail,
}

/// Open listeners.
pub struct Doors {
    all: Vec<Door>,
    /// That of the local one.
    pub port: LocalPort,
    /// What the local one will bear, while the node has not its port.
    awaited: Option<DoorLimits>,
    tls: Option<Tls>,
    /// Goes with the doors.
    announcement: Announcement,
}

impl Doors {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be listened on, or certificate or key are wrong.
    pub async fn open(config: &NodeConfig, data_dir: &DataDir, shares: Shares) -> Result<Doors, DaemonError> {
        let chosen = config.settings.api;
        let wanted = chosen.unwrap_or(DEFAULT_API);
        let failed = |source| DaemonError::Api { address: wanted, source };
        let (announcement, socket) = (data_dir.announcement(), data_dir.listen());
        let otherwise = match (chosen, &socket) {
            (None, _) => Otherwise::TakeAnother,
            (Some(_), Some(_)) => Otherwise::Wait,
            (Some(_), None) => Otherwise::Fail,
        };
        let (port, listener) = take_port(wanted, otherwise).await.map_err(failed)?;
        let (address, limits) = (port.address(), shared(shares.local));
        let awaited = listener.is_none().then_some(limits);
        let local = |listener| Door { name: LOCAL, listener: Listener::Plain(listener), address, limits };
        let mut all: Vec<Door> = listener.map(local).into_iter().collect();
        if let Some(listener) = socket {
            let listener = Listener::Socket(UnixListener::from_std(listener).map_err(failed)?);
            all.push(Door { name: "socket", listener, address, limits: shared(shares.socket) });
        }
        let mut tls = None;
        if let Some(remote) = &config.remote {
            let pair = tls.insert(Tls::open(&remote.cert, &remote.key)?).clone();
            let listen = |source| DaemonError::Remote { address: remote.address, source };
            let listener = TcpListener::bind(remote.address).await.map_err(listen)?;
            let address = listener.local_addr().map_err(listen)?;
            let (connections_max, per_prefix_max) = (shares.remote, PER_PREFIX_MAX);
            let limits = DoorLimits { connections_max, per_prefix_max, idle: IDLE_TIMEOUT };
            all.push(Door { name: "remote", listener: Listener::Tls(listener, pair), address, limits });
        }
        Ok(Doors { all, port, awaited, tls, announcement })
    }

    /// Tells local programs where the API is, if the node has its port.
    ///
    /// # Errors
    /// [`DataDirError`] when it cannot be written down.
    pub fn tell(&self, data_dir: &DataDir) -> Result<(), DataDirError> {
        match self.awaited {
            None => data_dir.write_api_address(self.port.address()),
            Some(_) => data_dir.forget_api_address(),
        }
    }

    /// What makes the connections of other machines private, if there are any.
    pub fn tls(&self) -> Option<Tls> {
        self.tls.clone()
    }

    /// Serves the API until `stopped` says so; one task a door.
    pub fn serve(self, api: &Arc<ApiState>, stopped: &watch::Receiver<bool>) -> JoinSet<()> {
        let (mut tasks, announcement) = (JoinSet::new(), Arc::new(self.announcement));
        for Door { name, listener, address, limits } in self.all {
            let (is_tls, is_socket) = (matches!(listener, Listener::Tls(..)), matches!(listener, Listener::Socket(_)));
            if is_tls {
                info!("the page and the API are served to other machines at https://{address}");
            }
            let places = Places::new(limits, api.metrics.door(name));
            let router = api::router(api.clone(), Via { address, is_tls, is_socket });
            let (stopped, announced) = (stopped.clone(), announcement.clone());
            tasks.spawn(async move {
                serve_door(listener, router, places, stopped).await;
                drop(announced);
            });
        }
        if let Some(limits) = self.awaited {
            let (port, places) = (self.port, Places::new(limits, api.metrics.door(LOCAL)));
            let via = Via { address: port.address(), is_tls: false, is_socket: false };
            let (router, api, stopped) = (api::router(api.clone(), via), api.clone(), stopped.clone());
            tasks.spawn(async move {
                let address = port.address();
                let tell = move || api.upkeep.data_dir.write_api_address(address);
                serve_when_free((port, TAKE_EVERY), (router, places), stopped, tell).await;
                drop(announcement);
            });
        }
        tasks
    }
}

/// The port on loopback, with its listener where the node has it.
///
/// # Errors
/// Those of the system; that another program has it only where the node is to [`Otherwise::Fail`].
async fn take_port(wanted: SocketAddr, otherwise: Otherwise) -> io::Result<(LocalPort, Option<TcpListener>)> {
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse && otherwise != Otherwise::Fail;
    let listener = match TcpListener::bind(wanted).await {
        Err(error) if is_taken(&error) => {
            let holder = who_listens(wanted);
            if otherwise == Otherwise::Wait {
                error!(
                    %wanted, holder,
                    "another program has the port of the API and the page: this node starts without, its own user has the socket, and \
                     the port is taken when it is free; end that program, or choose another port (api, --api)"
                );
                return Ok((LocalPort::new(wanted, Some(holder)), None));
            }
            let listener = TcpListener::bind(SocketAddr::new(wanted.ip(), 0)).await?;
            let address = listener.local_addr()?;
            warn!(%wanted, holder, %address, "another program has the usual port of the API and the page: this node takes another one");
            return Ok((LocalPort::in_place_of_usual(address, &holder), Some(listener)));
        }
        bound => bound?,
    };
    Ok((LocalPort::new(listener.local_addr()?, None), Some(listener)))
}

/// Waits until the node has its port, `tell`s so, and serves all who come there.
async fn serve_when_free(
    (port, every): (LocalPort, Duration),
    (router, places): (Router, Places),
    mut stopped: watch::Receiver<bool>,
    tell: impl FnOnce() -> Result<(), DataDirError> + Send + 'static,
) {
    let listener = tokio::select! {
        listener = once_free(&port, every) => listener,
        () = stop_said(&mut stopped) => return,
    };
    port.set_holder(None);
    info!(address = %port.address(), "the port of the API and the page is free: this node has it now");
    if let Ok(Err(error)) = spawn_blocking(tell).await {
        warn!(%error, "local programs are not told of the port");
    }
    serve_door(Listener::Plain(listener), router, places, stopped).await;
}

/// Tries to take the port again and again, however long another program has it.
async fn once_free(port: &LocalPort, every: Duration) -> TcpListener {
    let address = port.address();
    loop {
        tokio::time::sleep(every).await;
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => debug!(%error, %address, "the port is not free"),
        }
        if let Ok(holder) = spawn_blocking(move || who_listens(address)).await {
            port.set_holder(Some(holder));
        }
    }
}

/// The limits of a door whose callers all share an address.
fn shared(connections_max: usize) -> DoorLimits {
    DoorLimits { connections_max, per_prefix_max: connections_max, idle: IDLE_TIMEOUT }
}

/// Serves all who come, until `stopped` says so and those who are being served have their answers.
async fn serve_door(listener: Listener, router: Router, mut places: Places, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    // An error says that the node is gone already.
    let ending = stopped.clone();
    let mut stop = pin!(stop_said(&mut stopped));
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok(Some((stream, from))) => {
                    if let Some(place) = places.take(from) {
                        let (router, idle, peer) = (router.clone(), places.limits.idle, Peer(prefix_of(from)));
                        let calls = Calls { router, peer, stopped: ending.clone(), idle };
                        connections.spawn(serve_connection(stream, calls, place));
                    }
                }
                Ok(None) => places.turned_away(),
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

async fn serve_connection(stream: Stream, calls: Calls, _place: Place) {
    match stream {
        Stream::Plain(stream) if gives_up(&stream) => calls.serve(stream).await,
        Stream::Tls(stream, tls) if gives_up(&stream) => {
            if let Some(stream) = tls.handshake(stream).await {
                calls.serve(stream).await;
            }
        }
        Stream::Plain(_) | Stream::Tls(..) => {}
        // Who takes nothing of an answer here keeps out nobody but the same user.
        Stream::Socket(stream) => calls.serve(stream).await,
    }
}

/// Makes a connection end when its other side takes nothing for a while; whether that could be done.
fn gives_up(stream: &TcpStream) -> bool {
    let set = SockRef::from(stream).set_tcp_user_timeout(Some(UNREAD_TIMEOUT));
    if let Err(error) = &set {
        debug!(%error, "a connection is gone already");
    }
    set.is_ok()
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
