//! Connections of other machines, over TLS.
//!
//! Invariant: at most [`HANDSHAKES_MAX`] handshakes are under way, each for at most [`HANDSHAKE_TIMEOUT`], so that who connects
//! and says nothing keeps nobody out for long; a handshake never holds up the ones behind it.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    },
    server::TlsStream,
};

/// Handshakes under way at a time; further connections wait in the system's queue.
const HANDSHAKES_MAX: usize = 256;
/// How long one may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after a connection could not be taken, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Why TLS is not offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: pem::Error,
    },
    /// Certificate and key do not fit each other, or are of a kind that is not supported.
    #[error("remote.cert and remote.key: {0}")]
    Pair(#[from] rustls::Error),
    /// The address.
    #[error("remote.listen: cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// Takes connections and hands them on once their handshake is done.
pub struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl TlsListener {
    /// Listens on `address` with the certificate chain and the key of these files (PEM).
    ///
    /// # Errors
    /// [`TlsError`].
    pub async fn open(address: SocketAddr, cert: &Path, key: &Path) -> Result<TlsListener, TlsError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::File { path, source }
        };
        let read = |path: &Path| fs::read(path).map_err(pem::Error::Io).map_err(at(path));
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(cert)?).collect();
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(at(key))?;
        // Two providers are in the tree, so none is the default one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain.map_err(at(cert))?, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tcp = TcpListener::bind(address).await.map_err(|source| TlsError::Listen { address, source })?;
        Ok(TlsListener { tcp, acceptor: TlsAcceptor::from(Arc::new(config)), handshakes: JoinSet::new() })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                accepted = self.tcp.accept(), if self.handshakes.len() < HANDSHAKES_MAX => match accepted {
                    Ok((stream, from)) => {
                        let handshake = self.acceptor.accept(stream);
                        self.handshakes.spawn(async move {
                            let done = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
                            Some((done.ok()?.ok()?, from))
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
