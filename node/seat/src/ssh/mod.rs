//! The SSH server of a seat: how stock clients (ssh, scp, rsync, editors) use what is reserved.
//!
//! It runs as the command of a run, confined as any command, and speaks on its standard input and output: no port is opened, and it ends with
//! the window. Who may come in is in the signed order. Invariants: nobody else comes in; what a client sends and what it does not take fills
//! no memory ([`backlog`]); a client that is gone without a word is given up after 150 s.

mod backlog;
pub mod host_key;
mod sftp;
mod visitor;
mod work;

use std::{collections::BTreeMap, io, os::fd::AsFd as _, path::PathBuf, sync::Arc, time::Duration};

use kolo_trust::{
    TrustFileError, random_bytes,
    ssh_key::{self, KeyError},
};
use russh::{MethodKind, MethodSet, SshId, server};
use tokio::{
    io::AsyncWriteExt as _,
    net::unix::pipe::{Receiver, Sender},
};

use self::visitor::Visitor;

/// Most keys that one session lets in.
pub const KEYS_MAX: usize = 16;
/// How often a client that says nothing is asked for a sign of life.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// How many of those questions may stay without an answer: longer than the way to the user may be cut.
const UNANSWERED_MAX: usize = 4;

/// Where who comes in finds himself.
#[derive(Debug, Clone)]
pub struct Home {
    /// The directory that everything starts in.
    pub directory: PathBuf,
    /// The environment of everything that is started.
    pub variables: BTreeMap<String, String>,
}

/// Why the server ends before its client does.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// The client breaks off, or does not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] russh::Error),
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] TrustFileError),
}

/// Serves one client on the standard input and output, which let in who holds one of these keys.
///
/// # Errors
/// [`SshError`] when the client did not leave by itself.
pub fn serve(keys: &[String], home: Home) -> Result<(), SshError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve_one(keys, home));
    // What still runs is ended by the keeper.
    runtime.shutdown_background();
    served
}

async fn serve_one(keys: &[String], home: Home) -> Result<(), SshError> {
    let keys = keys.iter().map(|line| ssh_key::read(line)).collect::<Result<Vec<_>, KeyError>>()?;
    let host_key = ssh_key::private(&random_bytes::<32>()?);
    let from_client = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut to_client = Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    to_client.write_all(host_key::announcement(host_key.public_key())?.as_bytes()).await?;
    let config = server::Config {
        server_id: SshId::Standard("SSH-2.0-kolo".into()),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: Duration::ZERO,
        keys: vec![host_key],
        inactivity_timeout: None,
        keepalive_interval: Some(ASKED_EVERY),
        keepalive_max: UNANSWERED_MAX,
        ..server::Config::default()
    };
    let stream = tokio::io::join(from_client, to_client);
    let served = server::run_stream(Arc::new(config), stream, Visitor::new(keys, home)).await?.await;
    match served {
        // It has gone, with a word or without.
        Err(SshError::Protocol(russh::Error::IO(error))) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        served => served,
    }
}
