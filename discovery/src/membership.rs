//! Who belongs to the grid: asked of the node, since this crate knows no credentials.
//!
//! A site shows a credential in every advert, and how its list of revocations digests. Invariant: nothing of a site that
//! [`Membership::is_member`] does not accept is believed, stored or passed on; what is shown is opaque here and bounded
//! in size.

use broker::ids::SiteId;
use serde::{Deserialize, Serialize};

use crate::wire::ANSWER_BYTES_MAX;

/// Longest credential that an advert shows, in bytes; three signed links take some 1,200.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;
/// Revocations in one answer, in bytes.
const PAGE_BYTES: usize = ANSWER_BYTES_MAX / 2;

/// Knows who belongs to the grid. Called from the task that owns the swarm, so it must not wait: looking up what was
/// checked before is fine, and so are the few signatures of a site seen for the first time.
pub trait Membership: Send + Sync + 'static {
    /// Whether only who shows a credential belongs, so that nobody else sees this site's schedules as a whole.
    fn is_closed(&self) -> bool;

    /// What this site shows of itself.
    fn credential(&self) -> Vec<u8>;

    /// Whether `site`, which shows `credential`, belongs to the grid at present.
    fn is_member(&self, site: &SiteId, credential: &[u8]) -> bool;

    /// A digest of all revocations that are known; the same for the same set, however it was learnt.
    fn revocations_digest(&self) -> u64;

    /// All revocations that are known, encoded, in a fixed order.
    fn revocations(&self) -> Vec<Vec<u8>>;

    /// Hears revocations of another site, which may be false; says how many were true and news. Called from a background
    /// task: it may take some milliseconds for the disk.
    fn hear_revocations(&self, revocations: &[Vec<u8>]) -> usize;
}

/// An open grid: anybody belongs, nothing is shown or revoked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everybody;

impl Membership for Everybody {
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
    fn hear_revocations(&self, _: &[Vec<u8>]) -> usize {
        0
    }
}

/// What an author shows of its membership beside what it says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Badge {
    /// Its credential, as its node encodes it.
    pub credential: Vec<u8>,
    /// The digest of the revocations that it knows.
    pub revocations_digest: u64,
}

/// The revocations from number `from` on that fit into an answer, and how many there are in all.
pub(crate) fn revocations_page(membership: &dyn Membership, from: u32) -> (Vec<Vec<u8>>, u32) {
    let all = membership.revocations();
    let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let mut bytes = 0;
    let fits = |revocation: &Vec<u8>| {
        bytes += revocation.len() + 8;
        bytes <= PAGE_BYTES
    };
    (all.into_iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).take_while(fits).collect(), total)
}
