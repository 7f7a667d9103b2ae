//! Keys, credentials and join tokens as files and texts: what the command line and the daemon keep of them.
//!
//! What they mean, and every check, is in [`broker::trust`]. Invariant: a secret is only ever in a file that nobody but its
//! owner can read; every file appears complete or not at all; nothing that exists is replaced without being asked.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

mod api_tokens;
mod error;
pub mod files;
mod grid_file;
mod issue;
mod issued;
mod revocation_file;
mod secret;
mod signing;
pub mod ssh_key;
mod succession;
mod take_back;
pub mod testing;
mod token;
mod token_key;
mod user_key;
mod wallet;

pub use self::{
    api_tokens::{ApiToken, ApiTokens, Scope, TokenRefusal},
    error::TrustFileError,
    files::{ROOT_KEY_FILE, load_or_create_key, random_bytes},
    grid_file::GridFile,
    issue::{Issuer, LIFE_OF_FOUNDER, Terms, accept, found, member},
    issued::{Issued, IssuedList},
    revocation_file::{RevocationFile, known_roots, told_as_revocation},
    secret::Secret,
    signing::{Signer, new_request_id},
    succession::{Renewed, Rotation, former_root_key_path},
    take_back::{TAKE_BACKS_MAX, TakeBack, TakeBacks},
    token::{ADDRESSES_MAX, Invitation, Token, TokenError},
    token_key::{TokenKey, body_hash},
    user_key::{AgentKey, UserKey},
    wallet::{Named, Wallet},
};
