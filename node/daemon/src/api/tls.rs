//! Connections of other machines, over TLS.
//!
//! Invariant: a handshake takes at most [`HANDSHAKE_TIMEOUT`], and never holds up another one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use kolo_runtime::lock::locked;
use kolo_trust::{TrustFileError, files::read_private};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    },
    server::TlsStream,
};

/// Largest file of a key, in bytes.
const KEY_BYTES_MAX: u64 = 64 * 1024;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why TLS is not offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: pem::Error },
    /// A file holds no certificate.
    #[error("{}: there is no certificate in it (PEM)", .0.display())]
    NoCertificate(PathBuf),
    /// There is no key.
    #[error("{}: there is no such file; remote.key names the private key of remote.cert (PEM)", .0.display())]
    NoKey(PathBuf),
    /// The key cannot be read, or others can read it too.
    #[error(transparent)]
    Key(#[from] TrustFileError),
    /// Certificate and key do not fit each other, or are of a kind that is not supported.
    #[error("remote.cert and remote.key: {0}")]
    Pair(#[from] rustls::Error),
}

/// Makes connections private; clones share the certificate.
#[derive(Clone)]
pub struct Tls(Arc<Mutex<Pair>>);

/// A certificate with those that vouch for it, and what shows it.
#[derive(Clone)]
struct Pair {
    chain: Vec<CertificateDer<'static>>,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the certificate chain and the key of these files (PEM).
    pub fn open(cert: &Path, key: &Path) -> Result<Tls, TlsError> {
        Ok(Tls(Arc::new(Mutex::new(pair(cert, key)?))))
    }

    /// Takes the pair of `other` from the next connection on; whether it has another certificate.
    pub fn replace(&self, other: &Tls) -> bool {
        let (mut own, new) = (locked(&self.0), locked(&other.0).clone());
        let is_other = own.chain != new.chain;
        *own = new;
        is_other
    }

    /// The other side's half is done when this returns; none when it takes too long or says something else.
    pub async fn handshake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = locked(&self.0).acceptor.clone();
        tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
    }
}

fn pair(cert: &Path, key: &Path) -> Result<Pair, TlsError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { path, source }
    };
    let text = fs::read(cert).map_err(pem::Error::Io).map_err(at(cert))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(at(cert))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(cert.to_owned()));
    }
    let text = read_private(key, KEY_BYTES_MAX)?.ok_or_else(|| TlsError::NoKey(key.to_owned()))?;
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(at(key))?;
    // Two providers are in the tree, so none is the default one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), private)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Pair { chain, acceptor: TlsAcceptor::from(Arc::new(config)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_there_is_told_as_that() {
        let directory = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
        fs::write(&cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let error = Tls::open(&cert, &key).map(drop).unwrap_err().to_string();
        assert!(error.contains("key.pem: there is no such file"), "{error}");
    }
}
