//! Connections of other machines, over TLS.
//!
//! Invariant: a handshake takes at most [`HANDSHAKE_TIMEOUT`], and never holds up another one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    },
    server::TlsStream,
};

use crate::runtime::lock::locked;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why TLS is not offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: pem::Error },
    /// Certificate and key do not fit each other, or are of a kind that is not supported.
    #[error("remote.cert and remote.key: {0}")]
    Pair(#[from] rustls::Error),
}

/// Makes connections private; clones share the certificate.
#[derive(Clone)]
pub struct Tls(Arc<Mutex<TlsAcceptor>>);

impl Tls {
    /// Reads the certificate chain and the key of these files (PEM).
    pub fn open(cert: &Path, key: &Path) -> Result<Tls, TlsError> {
        Ok(Tls(Arc::new(Mutex::new(acceptor(cert, key)?))))
    }

    /// Takes the pair of `other` from the next connection on.
    pub fn replace(&self, other: &Tls) {
        let acceptor = locked(&other.0).clone();
        *locked(&self.0) = acceptor;
    }

    /// The other side's half is done when this returns; none when it takes too long or says something else.
    pub async fn handshake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = locked(&self.0).clone();
        tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
    }
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
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
    Ok(TlsAcceptor::from(Arc::new(config)))
}
