//! `[remote]`: the page and the API for browsers of other machines, over TLS, beside the local API.
//!
//! Invariant: there is no way to offer them to other machines without a certificate.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{ConfigError, file::RemoteSection, resolve::Layers};

/// Most names of one node.
const NAMES_MAX: usize = 64;

/// `[remote]` in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// Chain of certificates (PEM); absolute.
    pub cert: PathBuf,
    /// Private key (PEM); absolute.
    pub key: PathBuf,
    /// What browsers may call this node beside its addresses.
    pub names: Vec<String>,
}

/// The flags of `[remote]`.
#[derive(Debug, Clone, Default, Args)]
pub struct RemoteArgs {
    /// Address and port for browsers of other machines, over TLS [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    remote_listen: Option<String>,
    /// Certificate chain for it (PEM)
    #[arg(long, value_name = "FILE")]
    remote_cert: Option<PathBuf>,
    /// Private key for it (PEM)
    #[arg(long, value_name = "FILE")]
    remote_key: Option<PathBuf>,
    /// What browsers may call this node beside its addresses; may be repeated
    #[arg(long, value_name = "NAME")]
    remote_names: Option<Vec<String>>,
}

impl RemoteArgs {
    /// The flags as a written layer.
    pub(super) fn layer(&self) -> RemoteSection {
        RemoteSection {
            listen: self.remote_listen.clone(),
            cert: self.remote_cert.clone(),
            key: self.remote_key.clone(),
            names: self.remote_names.clone(),
        }
    }
}

impl Layers {
    /// What is in force of `[remote]`.
    pub(super) fn remote(&self) -> Result<Option<RemoteConfig>, ConfigError> {
        let listen = self.written("remote.listen", |file| file.remote.listen.clone());
        let cert = self.path("remote.cert", |file| file.remote.cert.clone())?;
        let key = self.path("remote.key", |file| file.remote.key.clone())?;
        let names = self.written("remote.names", |file| file.remote.names.clone());
        let Some(listen) = listen else {
            let alone = cert.or(key).map(|path| path.wrong("is of no use without remote.listen"));
            return alone.map_or(Ok(None), Err);
        };
        let address = listen.value.parse().map_err(|_| {
            listen.wrong(format!("{:?} is no address: expected one such as 0.0.0.0:7743", listen.value))
        })?;
        let (Some(cert), Some(key)) = (cert, key) else {
            return Err(listen.wrong("wants remote.cert and remote.key: other machines are served over TLS only"));
        };
        if let Some(names) = &names {
            let is_name = |name: &String| {
                !name.is_empty()
                    && name.len() < 256
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
            };
            if names.value.len() > NAMES_MAX || !names.value.iter().all(is_name) {
                return Err(names.wrong(format!("expected at most {NAMES_MAX} host names such as kolo.example.org")));
            }
        }
        let names = names.map(|names| names.value).unwrap_or_default();
        Ok(Some(RemoteConfig { address, cert: cert.value, key: key.value, names }))
    }
}
