//! How this program asks others over TLS.
//!
//! Invariant: whoever is asked has a certificate that somebody trusted has signed.

use std::sync::Arc;

use tokio_rustls::rustls;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// TLS with who has a certificate that one of `authorities` has signed.
pub fn trusting(authorities: Vec<Certificate<'static>>) -> TlsConfig {
    // Two providers are in the tree, so none is the default one; this is the one that the node serves with.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    TlsConfig::builder().root_certs(RootCerts::from(authorities)).unversioned_rustls_crypto_provider(provider).build()
}

/// The authorities that the system trusts, or why there are none.
///
/// # Errors
/// A text for people.
pub fn system_authorities() -> Result<Vec<Certificate<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or_else(|| "it has none".to_owned(), ToString::to_string);
        return Err(format!("the system's certificates cannot be read: {why}"));
    }
    Ok(found.certs.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
}
