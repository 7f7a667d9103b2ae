//! The members of a grid: a trait that the node implements, since this crate knows no credentials.
//!
//! A site shows its credential on every connection and, with a digest of its revocations, in every advert. Invariant: nothing of
//! a site that [`Members::check`] refuses is believed, stored or passed on; credentials are opaque here and bounded in size.

use broker::ids::SiteId;
use serde::{Deserialize, Serialize};

/// Longest credential that a site shows, in bytes; three signed links take some 1,200.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;

/// Why a site does not belong to the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMember {
    /// It shows no credential, or one that has expired, is revoked or is not understood: an honest site may not know better.
    #[error("it shows no credential that counts at present")]
    Lapsed,
    /// Its credential is made up, or another's.
    #[error("its credential is made up, or another's")]
    MadeUp,
}

/// What came of revocations that another site has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Learnt {
    /// How many were valid and new.
    pub news: usize,
    /// Whether one was false, which no honest site passes on. Those behind it were not looked at.
    pub is_false: bool,
}

/// Checks which sites belong to the grid. The task that owns the swarm calls it, so it must not wait: a look-up of an
/// earlier check is fine, and so are the few signatures of a site's first credential.
pub trait Members: Send + Sync + 'static {
    /// Whether the grid is closed: each side of a connection must first show a credential.
    fn is_closed(&self) -> bool;

    /// The credential that this site shows.
    fn credential(&self) -> Vec<u8>;

    /// Whether `site`, which shows `credential`, belongs to the grid at present.
    ///
    /// # Errors
    /// [`NotMember`] says why it does not.
    fn check(&self, site: &SiteId, credential: &[u8]) -> Result<(), NotMember>;

    /// A digest of all revocations that are known; the same for the same set, however it was learnt.
    fn revocations_digest(&self) -> u64;

    /// All revocations that are known, encoded, in a fixed order.
    fn revocations(&self) -> Vec<Vec<u8>>;

    /// Those that revoke this credential, or one that it was made with; before them what the holder may have to learn to believe them.
    fn revocations_of(&self, credential: &[u8]) -> Vec<Vec<u8>>;

    /// Takes in revocations that another site sent, which may be false, up to the first false one. It is called where it may
    /// block: for the signatures, and for the disk.
    fn learn_revocations(&self, revocations: &[Vec<u8>]) -> Learnt;
}

/// An open grid: every site belongs, nothing is shown or revoked.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenGrid;

impl Members for OpenGrid {
    fn is_closed(&self) -> bool {
        false
    }
    fn credential(&self) -> Vec<u8> {
        Vec::new()
    }
    fn check(&self, _: &SiteId, _: &[u8]) -> Result<(), NotMember> {
        Ok(())
    }
    fn revocations_digest(&self) -> u64 {
        0
    }
    fn revocations(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn revocations_of(&self, _: &[u8]) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn learn_revocations(&self, _: &[Vec<u8>]) -> Learnt {
        Learnt::default()
    }
}

/// The proof of membership that a site shows with its advert.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Badge {
    /// Its credential, as its node encodes it.
    pub credential: Vec<u8>,
    /// The digest of the revocations that it knows.
    pub revocations_digest: u64,
}
