//! Opens streams to seats through the user's node.
//!
//! Invariant: who calls is shown as by every other call, to the named address only, and over TLS only to a node that is trusted.

use std::{io, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use discovery::{
    opening::{self, Answer},
    wire,
};
use hyper::{
    Method, Request, StatusCode,
    client::conn::http1,
    header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE},
};
use hyper_util::rt::TokioIo;
use kolo_api::{RUN_PROTOCOL, problem::Problem};
use kolo_runtime::own_socket;
use kolo_seat::opening::FromUser;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task, time,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto, pki_types::ServerName},
};

use crate::client::Client;

/// The call that is upgraded.
const PATH: &str = "/v1/run";
/// How long connection and upgrade may take.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the site may take to answer; more than the nodes give each other.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);
/// Longest problem that is read.
const PROBLEM_BYTES_MAX: usize = 64 << 10;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum NoStream {
    /// It will not be opened.
    #[error("{0}")]
    Refused(String),
    /// It may be opened later.
    #[error("{0}")]
    NotNow(String),
}

impl From<io::Error> for NoStream {
    fn from(error: io::Error) -> NoStream {
        NoStream::NotNow(error.to_string())
    }
}

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A stream to a keeper.
pub type Stream = Box<dyn Duplex>;

/// Opens a stream for what the user wants.
///
/// # Errors
/// [`NoStream`].
pub async fn open(client: &Client, wanted: &FromUser) -> Result<Stream, NoStream> {
    let bytes = wire::encode(wanted).map_err(|error| NoStream::Refused(error.to_string()))?;
    let upgraded = time::timeout(UPGRADE_TIMEOUT, upgrade(client)).await;
    let mut stream = upgraded.map_err(|_| NoStream::NotNow("the node does not answer".to_owned()))??;
    let answered = async {
        opening::send(&mut stream, &bytes).await?;
        opening::answer(&mut stream).await
    };
    let answer = time::timeout(ANSWER_TIMEOUT, answered).await;
    match answer.map_err(|_| NoStream::NotNow("the site does not answer".to_owned()))?? {
        Answer::Taken => Ok(stream),
        Answer::Refused(why) | Answer::Wanting(_, why) => Err(NoStream::Refused(why)),
        Answer::NotNow(why) => Err(NoStream::NotNow(why)),
    }
}

async fn upgrade(client: &Client) -> Result<Stream, NoStream> {
    let asking = client.clone();
    let shown = task::spawn_blocking(move || asking.authorization(&ureq::http::Method::GET, PATH, &[])).await;
    let shown = shown.map_err(io::Error::other)?.map_err(|error| NoStream::NotNow(error.to_string()))?;
    let address = client.address();
    if let Some(path) = client.socket() {
        let no_node = |error| NoStream::NotNow(format!("no node answers at {}: {error}", path.display()));
        let stream = own_socket::connect(path).map_err(no_node)?;
        stream.set_nonblocking(true)?;
        return handshake(UnixStream::from_std(stream)?, address, shown).await;
    }
    let dialled = client.dialled().filter(|_| !client.is_tls());
    let connected = match dialled {
        Some(dialled) => TcpStream::connect(dialled).await,
        None => TcpStream::connect(address).await,
    };
    let stream = connected.map_err(|error| NoStream::NotNow(format!("no node answers at {address}: {error}")))?;
    stream.set_nodelay(true)?;
    if client.is_tls() {
        let name = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|error| NoStream::Refused(error.to_string()))?;
        let secured = TlsConnector::from(Arc::new(trust(client)?)).connect(name, stream).await;
        let secured =
            secured.map_err(|error| NoStream::Refused(format!("the node at {address} is not trusted: {error}")))?;
        handshake(secured, address, shown).await
    } else {
        handshake(stream, address, shown).await
    }
}

fn trust(client: &Client) -> Result<ClientConfig, NoStream> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(client.authorities().iter().map(|one| one.der().to_vec().into()));
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| NoStream::Refused(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: &str,
    shown: Option<String>,
) -> Result<Stream, NoStream> {
    let not_now = |error: hyper::Error| NoStream::NotNow(error.to_string());
    let (mut sender, connection) = http1::handshake::<_, Body>(TokioIo::new(stream)).await.map_err(not_now)?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::builder().method(Method::GET).uri(PATH).header(HOST, address);
    let request = request.header(CONNECTION, "upgrade").header(UPGRADE, RUN_PROTOCOL);
    let request = shown.into_iter().fold(request, |request, value| request.header(AUTHORIZATION, value));
    let request = request.body(Body::empty()).map_err(|error| NoStream::Refused(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(not_now)?;
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let upgraded = hyper::upgrade::on(response).await.map_err(not_now)?;
        return Ok(Box::new(TokioIo::new(upgraded)));
    }
    let body = to_bytes(Body::new(response.into_body()), PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    let why = if problem.detail.is_empty() { format!("the node answers {status}") } else { problem.detail };
    let may_change = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    Err(if may_change { NoStream::NotNow(why) } else { NoStream::Refused(why) })
}
