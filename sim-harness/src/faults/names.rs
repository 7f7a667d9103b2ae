//! Names of sites, hosts, requests and resources of the simulated grid, and amounts of its two resources.
//!
//! Invariant: a site's name contains its index, and every name passes the checks of its type.

use broker::{
    amount::Amount,
    ids::{HostId, RequestId, SiteId},
    resources::{Amounts, ResourceName},
};

/// The site with this index.
pub fn site(index: usize) -> SiteId {
    SiteId::new(&format!("s{index}")).expect("a letter and a number are a short text without control characters")
}

/// The index of a site.
pub fn index_of(site: &SiteId) -> Option<usize> {
    site.as_str().strip_prefix('s')?.parse().ok()
}

/// The host of a site with this index.
pub fn host(index: usize) -> HostId {
    HostId::new(&format!("h{index}")).expect("a letter and a number are a short text without control characters")
}

/// The request with this number.
pub fn request(number: u64) -> RequestId {
    RequestId::new(&format!("r{number}")).expect("a letter and a number are a short text without control characters")
}

/// The resources that hosts have.
pub fn resource(name: &'static str) -> ResourceName {
    ResourceName::new(name).expect("called with lower-case words only")
}

/// Amounts of both resources.
pub fn amounts(cpu: u64, memory: u64) -> Amounts {
    Amounts::from([(resource("cpu"), Amount(cpu)), (resource("memory"), Amount(memory))])
}
