//! Names of sites, hosts, requests and resources of the simulated grid, and amounts of its two resources.
//!
//! Invariant: a site's name contains its index, and every name passes the checks of its type.

use std::sync::LazyLock;

use broker::{
    amount::Amount,
    ids::{HostId, Network, RequestId, SiteId},
    resources::{Amounts, ResourceName},
    trust::{PublicKey, testing},
};
use ed25519_dalek::SigningKey;

/// The site with this index.
pub fn site(index: usize) -> SiteId {
    SiteId::new(&format!("s{index}")).expect("a letter and a number are a short text without control characters")
}

/// The index of a site.
pub fn index_of(site: &SiteId) -> Option<usize> {
    site.as_str().strip_prefix('s')?.parse().ok()
}

/// Keys of sites have numbers from here on; those of users have lower ones.
const SITE_KEYS: u64 = 1 << 40;

/// The keys of the first sites. To make one takes as long as to sign with it, and checks ask for them all the time.
static FIRST_KEYS: LazyLock<Vec<SigningKey>> = LazyLock::new(|| (0..64).map(make_key).collect());

fn make_key(index: usize) -> SigningKey {
    testing::key(SITE_KEYS + index as u64)
}

/// The key of the node of the site with this index.
pub fn signing_key(index: usize) -> SigningKey {
    FIRST_KEYS.get(index).cloned().unwrap_or_else(|| make_key(index))
}

/// The key that belongs to the name of a site.
pub fn key_of(site: &SiteId) -> Option<PublicKey> {
    index_of(site).map(|index| PublicKey::of(&signing_key(index)))
}

/// The host of a site with this index: where hosts are alike, this is also the name of one of a class.
pub fn host(index: usize) -> HostId {
    HostId::new(&format!("h-{index}")).expect("a letter and a number are a short text without control characters")
}

/// The network with this number.
pub fn network(number: usize) -> Option<Network> {
    Network::new(&format!("203.0.{number}.0/24")).ok()
}

/// The request with this number.
pub fn request(number: u64) -> RequestId {
    RequestId::new(&format!("r{number}")).expect("a letter and a number are a short text without control characters")
}

/// The own job of an owner with this number.
pub fn own_job(number: u64) -> RequestId {
    RequestId::new(&format!("j{number}")).expect("a letter and a number are a short text without control characters")
}

/// Whether it names an own job, and no request of a user.
pub fn is_own_job(name: &RequestId) -> bool {
    name.as_str().starts_with('j')
}

/// The resources that hosts have.
pub fn resource(name: &'static str) -> ResourceName {
    ResourceName::new(name).expect("called with lower-case words only")
}

/// Amounts of both resources.
pub fn amounts(cpu: u64, memory: u64) -> Amounts {
    Amounts::from([(resource("cpu"), Amount(cpu)), (resource("memory"), Amount(memory))])
}
