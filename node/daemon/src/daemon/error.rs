//! Why a node does not run.

use std::{io, net::SocketAddr};

use kolo_seat::RunError;
use kolo_storage::{StoreError, data_dir::DataDirError};

use crate::{api::tls::TlsError, net::membership::MembershipError};

/// Why the daemon did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// What the node is to its grid.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The ledger's file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address of the API for other machines.
    #[error("remote.listen: cannot listen on {address}: {source}")]
    Remote {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The API's address.
    #[error("api: cannot listen on {address}: {source}; choose another with --api ADDRESS:PORT (port 0: any free one)")]
    Api {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The page for other machines.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Discovery did not start.
    #[error(transparent)]
    Discovery(#[from] discovery::StartError),
    /// A configured value that only discovery can judge.
    #[error("{key}: {detail}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// What users run.
    #[error("the runs of users: {0}")]
    Runs(RunError),
    /// A part of the node has ended that must not.
    #[error("{0}")]
    Stopped(String),
}
