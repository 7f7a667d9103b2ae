//! Which sites belong to the grid, and which credentials have been revoked.

mod credentials;
mod digests;
pub(crate) mod revocations;

pub use self::credentials::{Badge, CREDENTIAL_BYTES_MAX, Members, OpenGrid};
pub(crate) use self::digests::DifferingDigests;
