//! Keys, credentials and join tokens as files and texts: what the command line and the daemon keep of them.
//!
//! What they mean, and every check, is in [`broker::trust`]. Invariant: a secret is only ever in a file that nobody but its
//! owner can read; every file appears complete or not at all; nothing that exists is replaced without being asked.

mod files;
mod grid_file;
mod issue;
mod issued;
mod revocation_file;
mod secret;
mod signing;
mod token;
mod wallet;

use std::{io, path::PathBuf};

use broker::trust::TrustError;

pub use self::{
    files::{ROOT_KEY_FILE, load_or_create_key, random_bytes},
    grid_file::GridFile,
    issue::{Issuer, LIFE_OF_FOUNDER, Terms, accept, found, member},
    issued::{Issued, IssuedList},
    revocation_file::RevocationFile,
    secret::Secret,
    signing::{Signer, new_request_id},
    token::{ADDRESSES_MAX, Invitation, Token, TokenError},
    wallet::Wallet,
};

#[cfg(test)]
pub use self::issue::tests;

/// What is wrong with a file of keys or credentials.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// It cannot be read or written.
    #[error("{path}: cannot {action}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Others can read a secret.
    #[error("{path}: mode {mode:03o} lets others at the key; expected 600 (chmod 600 it, or make a new one)", path = .path.display())]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds something else.
    #[error("{path}: {detail}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected.
        detail: String,
    },
    /// It is there already.
    #[error("{path} exists already and is not replaced", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What was to be signed or read makes no sense.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}
