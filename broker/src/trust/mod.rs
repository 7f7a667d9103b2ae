//! Who may do what, and how each site checks it by itself: keys, signed statements, credentials, revocations, the owner's
//! policy, and the [`Gate`] that puts them together before the ledger looks for room.
//!
//! Pure: keys are given, the time comes in, nothing random is drawn. A grid is *open* (every key may use it; a user is a
//! key) or *closed* (it has a root key, and members show a [`Chain`] of credentials that begins there).
//! Invariants: nothing signed is read before its signature has been checked over its very bytes; no credential is worth
//! more than the one that made it; an entry point can neither alter a user's request nor submit one that its user did not sign.
//!
//! Reading order: [`key`], [`statement`], [`credential`], [`successor`], [`chain`], [`revocation`], [`request_statement`],
//! [`policy`], [`denial`], [`gate`].

pub(crate) mod asked;
mod cache;
pub mod chain;
pub mod credential;
pub mod denial;
pub mod gate;
pub mod key;
pub mod labels;
pub mod policy;
pub mod request_statement;
pub mod revocation;
pub mod statement;
pub mod successor;
pub mod testing;
#[cfg(test)]
mod tests;

use data_encoding::BASE32_NOPAD;

pub use self::{
    chain::{Chain, Holder},
    credential::{Credential, Limits, Role, Subject},
    denial::{Denial, Rule},
    gate::{Gate, Permit, SharedGate, Trust},
    key::{PublicKey, Signature},
    labels::Labels,
    policy::OwnerPolicy,
    request_statement::{Authorization, RequestStatement},
    revocation::{REVOCATIONS_MAX, Revocation, Revocations, SignedRevocation},
    statement::{SignedText, Statement},
    successor::{OVERLAP_MAX, Roots, SUCCESSORS_MAX, Successor},
};
use crate::time::Time;

/// Characters of the root's key at the end of a closed grid's id: 80 bits.
const ROOT_CHARACTERS: usize = 16;

/// Why something signed, or a chain of credentials, must not be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// A text that is no key, or no name of a grid.
    #[error("{what}: expected {expected}")]
    Text {
        /// What was to be read.
        what: &'static str,
        /// What would have been understood.
        expected: &'static str,
    },
    /// The text is longer than its kind allows.
    #[error("{kind}: {bytes} bytes, at most {limit} are accepted")]
    TooLarge {
        /// What it is.
        kind: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The signature does not belong to this text and this author.
    #[error("{kind}: the signature is not the author's")]
    BadSignature {
        /// What it is.
        kind: &'static str,
    },
    /// The text is signed but makes no sense.
    #[error("{kind}: {detail}")]
    Malformed {
        /// What it is.
        kind: &'static str,
        /// What was expected.
        detail: String,
    },
    /// It is of a later version, or says something that this one does not know.
    #[error("{kind}: {what} is not understood here")]
    NotUnderstood {
        /// What it is.
        kind: &'static str,
        /// The version or the key.
        what: String,
    },
    /// It is of another grid.
    #[error("{kind} is of grid {found}, expected {expected}")]
    WrongGrid {
        /// What it is.
        kind: &'static str,
        /// This grid.
        expected: String,
        /// Its grid.
        found: String,
    },
    /// A chain has no link, or too many.
    #[error("a chain of credentials has 1 to {max} links, this one has {0}", max = chain::LINKS_MAX)]
    Links(usize),
    /// A link is not signed by the subject of the one before, or the first not by the root.
    #[error("credential {link} of the chain is not signed by {signer}")]
    BrokenChain {
        /// Which, from 1.
        link: usize,
        /// Who should have signed it.
        signer: &'static str,
    },
    /// A link makes what its maker must not make.
    #[error("credential {link} of the chain: {detail}")]
    Exceeds {
        /// Which, from 1.
        link: usize,
        /// What it must not be.
        detail: String,
    },
    /// It has expired.
    #[error("{kind} expired at {at}", at = .at.in_utc())]
    Expired {
        /// What it is.
        kind: &'static str,
        /// When.
        at: Time,
    },
    /// An invitation is shown in place of a credential made with it, or the other way round.
    #[error("{0}")]
    Invitation(&'static str),
    /// An open grid has no root, so it has no invitations and no revocations.
    #[error("an open grid has neither members nor revocations")]
    OpenGrid,
    /// A revocation is neither signed by the root nor by an admin.
    #[error("only the root or an admin may revoke: {0}")]
    NotAnAdmin(&'static str),
    /// The root has revoked the admin that signed it.
    #[error("the admin who signed it is revoked")]
    IssuerRevoked,
    /// It leads to a root whose time is over.
    #[error(
        "root key {old}, which it leads to, was followed by {new} and counts since {at} no more: ask for a new invitation and use it \
         with kolo join FILE",
        old = .old.fingerprint(), new = .new.fingerprint(), at = .at.in_utc()
    )]
    RootFollowed {
        /// The root that it leads to.
        old: PublicKey,
        /// The newest root.
        new: PublicKey,
        /// From when on the old one counts no more.
        at: Time,
    },
    /// The root has another successor.
    #[error(
        "root key {old} was followed by {known}, as was known here first, and not by {other}: whoever has made the second one has \
         the old key; ask the founder of the grid which is right",
        old = .old.fingerprint(), known = .known.fingerprint(), other = .other.fingerprint()
    )]
    Rival {
        /// The root that was followed.
        old: PublicKey,
        /// The successor that is known here.
        known: PublicKey,
        /// The successor that is refused.
        other: PublicKey,
    },
    /// A successor of a key that is no root.
    #[error("successor: {} is not known as a root of this grid", .0.fingerprint())]
    UnknownRoot(PublicKey),
    /// The root was followed too often.
    #[error("the first root of a grid is followed by at most {max} others", max = successor::SUCCESSORS_MAX)]
    TooManyRoots,
    /// It has lapsed.
    #[error("the revocation has lapsed, as what it revokes has expired")]
    Lapsed,
}

/// The id of the closed grid that `root` is the root of: `name-` and the beginning of the key in base32, so that an id
/// names its root.
///
/// # Errors
/// [`TrustError::Text`] when `name` is not 1 to 32 of `a-z 0-9 -`.
pub fn closed_grid_id(name: &str, root: &PublicKey) -> Result<String, TrustError> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > 32 || !name.bytes().all(is_plain) {
        return Err(TrustError::Text { what: "name of the grid", expected: "1 to 32 of a-z 0-9 -" });
    }
    Ok(format!("{name}-{}", root_characters(root)))
}

/// Whether `grid_id` is the id of a closed grid with this root.
#[must_use]
pub fn names_root(grid_id: &str, root: &PublicKey) -> bool {
    grid_id.strip_suffix(&root_characters(root)).is_some_and(|rest| rest.len() > 1 && rest.ends_with('-'))
}

fn root_characters(root: &PublicKey) -> String {
    let mut text = BASE32_NOPAD.encode(root.as_bytes()).to_ascii_lowercase();
    text.truncate(ROOT_CHARACTERS);
    text
}

#[cfg(test)]
mod id_tests {
    use super::*;

    #[test]
    fn an_id_of_a_closed_grid_names_its_root_and_no_other() {
        let (root, other) = (testing::public(1), testing::public(2));
        let id = closed_grid_id("lab-7", &root).unwrap();
        assert!(id.starts_with("lab-7-") && id.len() == "lab-7-".len() + 16, "{id}");
        assert!(names_root(&id, &root) && !names_root(&id, &other));
        assert!(!names_root(&id["lab-7-".len()..], &root), "an id has a name as well");
        for bad in ["", "Lab", "a b", "ä", &"x".repeat(33)] {
            assert!(closed_grid_id(bad, &root).is_err(), "{bad}");
        }
    }
}
