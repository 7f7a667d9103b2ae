//! The members of a grid: a trait that the node implements, since this crate knows no credentials.
//!
//! A site shows a credential and a digest of its revocations in every advert. Invariant: nothing of a site that
//! [`Members::is_member`] refuses is believed, stored or passed on; credentials are opaque here and bounded in size.

use broker::ids::SiteId;
use serde::{Deserialize, Serialize};

/// Longest credential that an advert shows, in bytes; three signed links take some 1,200.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;

/// Checks which sites belong to the grid. The task that owns the swarm calls it, so it must not wait: a look-up of an
/// earlier check is fine, and so are the few signatures of a site's first credential.
pub trait Members: Send + Sync + 'static {
    /// Whether the grid is closed: only sites with a credential belong, and only they are served schedules.
    fn is_closed(&self) -> bool;

    /// The credential that this site shows.
    fn credential(&self) -> Vec<u8>;

    /// Whether `site`, which shows `credential`, belongs to the grid at present.
    fn is_member(&self, site: &SiteId, credential: &[u8]) -> bool;

    /// A digest of all revocations that are known; the same for the same set, however it was learnt.
    fn revocations_digest(&self) -> u64;

    /// All revocations that are known, encoded, in a fixed order.
    fn revocations(&self) -> Vec<Vec<u8>>;

    /// Takes in revocations that another site sent, which may be false; returns how many were valid and new. A background
    /// task calls it: it may take some milliseconds for the disk.
    fn learn_revocations(&self, revocations: &[Vec<u8>]) -> usize;
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
    fn is_member(&self, _: &SiteId, _: &[u8]) -> bool {
        true
    }
    fn revocations_digest(&self) -> u64 {
        0
    }
    fn revocations(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn learn_revocations(&self, _: &[Vec<u8>]) -> usize {
        0
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
