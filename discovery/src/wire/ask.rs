//! The versions of the protocol of direct requests that this node speaks.
//!
//! To change the protocol: a new kind of request is a new number in the present version, and a site that does not know it
//! says so. Whatever changes a known kind is a new version: a new number of the protocol ([`super::version`]) and a new [`AskVersion`], put in front of
//! [`ASK_VERSIONS`], where the one before stays until no node needs it any more; then [`OfBefore`] answers its nodes. Invariant: a number, of a version or of a kind, is never
//! used for something else again.

use super::{
    ask_7::Ask7,
    ask_version::AskVersion,
    frame::{framed, unframed},
    message::{WireAnswer, WireRequest},
    of_before::OfBefore,
};

/// The newest version.
const NEWEST: &dyn AskVersion = &Ask7;
/// What this node speaks, the newest first: two nodes use the first that both know.
pub const ASK_VERSIONS: &[&dyn AskVersion] = &[NEWEST, &OfBefore];

/// A request as it stands on a stream in the newest version; nothing when it cannot be written.
#[must_use]
pub fn request_bytes(request: &WireRequest) -> Vec<u8> {
    NEWEST.write_request(request).map_or_else(|_| Vec::new(), |(kind, body)| framed(kind, &body))
}

/// An answer as it stands on a stream in the newest version; nothing when it cannot be written.
#[must_use]
pub fn answer_bytes(answer: &WireAnswer) -> Vec<u8> {
    NEWEST.write_answer(answer).map_or_else(|_| Vec::new(), |(kind, body)| framed(kind, &body))
}

/// The answer that stands on a stream in the newest version; none when it is not one that is read.
#[must_use]
pub fn answer_in(bytes: &[u8]) -> Option<WireAnswer> {
    let (kind, body) = unframed(bytes)?;
    NEWEST.answer_bytes_max(kind).filter(|bytes_max| body.len() <= *bytes_max)?;
    NEWEST.read_answer(kind, body).ok()
}
