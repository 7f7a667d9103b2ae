//! bincode with limits, and the largest size of each kind of message.
//!
//! Invariant: bytes decode into exactly one value, and no length inside them allocates more than the limit.

use serde::{Serialize, de::DeserializeOwned};

/// Largest advert envelope. 1,024 hosts of some 200 bytes.
pub const ADVERT_BYTES_MAX: usize = 256 * 1024;
/// Largest envelope with schedule changes. 512 changes of some 100 bytes.
pub const UPDATE_BYTES_MAX: usize = 64 * 1024;
/// Largest direct request of any version. A hold on 10,000 hosts of one site does not occur: one site offers 1,024.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// Largest answer that carries no schedules of a whole site.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Largest answer of all: the schedules of a site.
pub const SCHEDULES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why bytes do not decode.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// bincode refuses them.
    #[error("{0}")]
    Bincode(#[from] bincode::error::DecodeError),
    /// There is more than one value.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// The kind is none of this version.
    #[error("of kind {0}, which is not known")]
    UnknownKind(u16),
}

/// Encodes for the wire.
///
/// # Errors
/// Only for types that bincode cannot express; those of this crate can be.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, bincode::error::EncodeError> {
    bincode::serde::encode_to_vec(value, bincode::config::standard())
}

/// Decodes exactly one value of at most `LIMIT` bytes; lengths inside that claim more are refused before they allocate.
///
/// # Errors
/// [`DecodeError`] when the bytes are not exactly one such value.
pub fn decode<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, DecodeError> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    let (value, read) = bincode::serde::decode_from_slice(bytes, config)?;
    if read == bytes.len() { Ok(value) } else { Err(DecodeError::Trailing(bytes.len() - read)) }
}
