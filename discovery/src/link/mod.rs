//! How fast the link between two sites is: each sends to the other, one after the other, what nobody needs.
//!
//! One side asks because its owner wants to know, the other takes part if its owner allows it. They use a protocol of their own,
//! so that no hold and no confirmation waits behind it but for the bandwidth itself. Invariant: nobody takes part in two tests
//! at a time; a test moves at most [`BYTES_MAX`] each way and ends, whatever the other side does; others start so many
//! (`turns`), and none where it is not allowed.

mod service;
mod transfer;
mod turns;

pub(crate) use self::service::Links;
pub use self::service::{LinkError, LinkSpeed};

/// Bytes that a test sends each way at most: a quarter of a second at 1 Gbit/s.
pub(crate) const BYTES_MAX: u64 = 32 << 20;
