//! The members of the grid, and the exchange of revocations.

mod credentials;
mod digests;
pub(crate) mod revocations;

pub use self::credentials::{Badge, CREDENTIAL_BYTES_MAX, Learnt, Members, NotMember, OpenGrid};
pub(crate) use self::digests::DifferingDigests;
