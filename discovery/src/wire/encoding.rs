//! The one place that knows how values become bytes and back (bincode), and the largest size of each kind of message.
//!
//! Invariant: bytes decode into exactly one value, and no length inside them allocates more than the limit.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

/// Largest advert envelope. 2,048 hosts of some 200 bytes.
pub const ADVERT_BYTES_MAX: usize = 512 * 1024;
/// Largest envelope with schedule changes. 512 changes of some 100 bytes.
pub const UPDATE_BYTES_MAX: usize = 64 * 1024;
/// Largest direct request of any version. A hold on 10,000 hosts of one site does not occur: one site offers 2,048.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// Largest answer.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Why bytes do not decode.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// They are not of this form, or too long.
    #[error("{0}")]
    Malformed(String),
    /// There is more than one value.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// The kind is none of this version.
    #[error("of kind {0}, which is not known")]
    UnknownKind(u16),
}

/// A value that has no form as bytes.
#[derive(Debug, thiserror::Error)]
#[error("cannot be encoded: {0}")]
pub struct EncodeError(Cow<'static, str>);

impl EncodeError {
    /// It would be of a version of the protocol that is answered only.
    pub const NOT_SPOKEN: EncodeError = EncodeError(Cow::Borrowed("this version of the protocol is not spoken"));
}

/// Encodes a value.
///
/// # Errors
/// Only for types that have no form as bytes; those that travel have one.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    bincode::serde::encode_to_vec(value, bincode::config::standard())
        .map_err(|error| EncodeError(error.to_string().into()))
}

/// Decodes exactly one value of at most `LIMIT` bytes; lengths inside that claim more are refused before they allocate.
///
/// # Errors
/// [`DecodeError`] when the bytes are not exactly one such value.
pub fn decode<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, DecodeError> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    let malformed = |error: bincode::error::DecodeError| DecodeError::Malformed(error.to_string());
    let (value, read) = bincode::serde::decode_from_slice(bytes, config).map_err(malformed)?;
    if read == bytes.len() { Ok(value) } else { Err(DecodeError::Trailing(bytes.len() - read)) }
}
