//! The answer to a proof of membership. Invariant: what was read says at most [`REASONS_MAX`] reasons, and was at most
//! [`VERDICT_BYTES_MAX`] long.

use broker::trust::SUCCESSORS_MAX;
use serde::{Deserialize, Serialize};

use super::encoding::{DecodeError, EncodeError, decode, encode};

/// Longest verdict: the revocations of all links of one credential fit.
pub const VERDICT_BYTES_MAX: usize = 64 * 1024;
/// Most reasons of a verdict that are read: eight revocations, and before them all successors of the grid's root.
pub const REASONS_MAX: usize = SUCCESSORS_MAX + 8;

/// Whether a peer is a member, in the eyes of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// It is.
    pub is_member: bool,
    /// Why not, as far as it can be shown: revocations, and before them successors of the grid's root in the same form; unchecked.
    pub revocations: Vec<Vec<u8>>,
}

impl Verdict {
    /// As it travels.
    ///
    /// # Errors
    /// When it is too large to be written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, EncodeError> {
        encode(self)
    }

    /// Reads what has travelled; reasons above the most are left out.
    ///
    /// # Errors
    /// [`DecodeError`] when it is none, or too long.
    pub fn read(bytes: &[u8]) -> Result<Verdict, DecodeError> {
        let mut verdict: Verdict = decode::<_, VERDICT_BYTES_MAX>(bytes)?;
        verdict.revocations.truncate(REASONS_MAX);
        Ok(verdict)
    }
}
