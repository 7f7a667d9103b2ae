//! The answer to nodes of version 6 of the protocol, which is not spoken any more: that their program is too old.
//!
//! Invariant: what is written here is what version 6 reads, as it was when it was given up; nothing is read.

use broker::protocol::LedgerVersion;

use super::{
    ask_version::{AskVersion, Written},
    encoding::{DecodeError, EncodeError, encode},
    message::{WireAnswer, WireRequest},
    version::DIALECT,
};

/// Version 6, to be answered and not spoken.
#[derive(Debug, Clone, Copy)]
pub struct OfBefore;

/// Its number.
const NUMBER: u16 = 6;
/// The first kind of request that is for the node, and which a refusal answers.
const FIRST_OF_NODE: u16 = 16;
const BUSY: u16 = 6;
const NOT_UNDERSTOOD: u16 = 7;
const REFUSED: u16 = 23;
/// A reason that version 6 does not know: it shows the words.
const UNKNOWN_REASON: [u8; 1] = [250];

impl AskVersion for OfBefore {
    fn number(&self) -> u16 {
        NUMBER
    }

    fn is_spoken(&self) -> bool {
        false
    }

    fn knows_request(&self, _: u16) -> bool {
        false
    }

    fn answer_bytes_max(&self, _: u16) -> Option<usize> {
        None
    }

    fn write_request(&self, _: &WireRequest) -> Written {
        Err(EncodeError::NOT_SPOKEN)
    }

    fn read_request(&self, kind: u16, _: &[u8]) -> Result<WireRequest, DecodeError> {
        Err(DecodeError::UnknownKind(kind))
    }

    fn write_answer(&self, answer: &WireAnswer) -> Written {
        match answer {
            WireAnswer::NotUnderstood { kind } if *kind >= FIRST_OF_NODE => {
                let words = format!(
                    "the program of the node that asks is too old: it speaks version {NUMBER} of the protocol between nodes, this site \
                     {DIALECT}; install the kolo of this site there, or a newer one"
                );
                // No hosts.
                Ok((REFUSED, encode(&(&UNKNOWN_REASON[..], words, LedgerVersion::default(), 0_u64))?))
            }
            WireAnswer::NotUnderstood { kind } => Ok((NOT_UNDERSTOOD, encode(kind)?)),
            _ => Ok((BUSY, Vec::new())),
        }
    }

    fn read_answer(&self, kind: u16, _: &[u8]) -> Result<WireAnswer, DecodeError> {
        Err(DecodeError::UnknownKind(kind))
    }
}
