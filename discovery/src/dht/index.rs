//! The DHT index: which keys a site provides, and which keys a reader looks at. Pure.
//!
//! A key stands for "sites of this shard have a host with this property". Properties are an attribute's value, the power of
//! two below a capacity, the name of a host, and merely being there. One key returns only 40 to 60 providers, so each
//! property is split into [`SHARDS`] keys by the hash of the site id; a reader walks shards in random order until it
//! has enough. The index is a hint: a provider counts only after its signed advert was read and looked at.
//!
//! Invariant: every site with hosts provides one of the keys that any query may fall back on, and a site has at most
//! [`KEYS_PER_SITE_MAX`] keys whatever it offers.

use std::collections::BTreeSet;

use broker::{
    amount::Amount,
    host::Host,
    ids::{HostId, SiteId},
    resources::{Amounts, Attributes, ResourceName},
};
use libp2p::kad::{KBucketKey, RecordKey};

use crate::config::GridId;

/// Into how many keys each property is split. Fixed, since writer and reader must agree without asking: 16 keys
/// of about 50 providers reach 800 sites a property, and a reader that wants 60 hosts rarely needs more than two.
pub const SHARDS: u8 = 16;
/// Most attribute keys of a site; further attributes of an odd site are found through other properties.
const ATTRIBUTE_KEYS_MAX: usize = 64;
/// Most capacity keys of a site.
const CAPACITY_KEYS_MAX: usize = 128;
/// Most host names of a site that can be looked up in the index.
const HOST_KEYS_MAX: usize = 64;
/// Most keys a site provides, and therefore most that a node stores for one provider.
pub const KEYS_PER_SITE_MAX: usize = 1 + ATTRIBUTE_KEYS_MAX + CAPACITY_KEYS_MAX + HOST_KEYS_MAX;
/// How many powers of two above the asked capacity a reader looks at: up to 256 times what was asked.
const BUCKETS_READ: u32 = 8;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Property<'a> {
    Present,
    Attribute(&'a str, &'a str),
    Capacity(&'a ResourceName, u32),
    Host(&'a HostId),
}

/// SHA-256, as Kademlia places keys.
pub(crate) fn sha256(bytes: Vec<u8>) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(KBucketKey::new(bytes).hashed_bytes());
    digest
}

/// The head of a site's hash, which decides its shard of anything that is split by site.
#[must_use]
pub fn head_of(site: &SiteId) -> u8 {
    sha256(site.as_str().as_bytes().to_vec())[0]
}

/// The shard of a site.
#[must_use]
pub fn shard_of(site: &SiteId) -> u8 {
    head_of(site) % SHARDS
}

/// The key of a site's signed advert record.
#[must_use]
pub fn advert_key(grid: &GridId, site: &SiteId) -> RecordKey {
    hashed(grid, &["advert", site.as_str()])
}

/// The keys that a site provides: its own shard of every property of its hosts.
#[must_use]
pub fn keys_of_site(grid: &GridId, site: &SiteId, hosts: &[Host]) -> Vec<RecordKey> {
    if hosts.is_empty() {
        return Vec::new();
    }
    let mut attributes = BTreeSet::new();
    let mut capacities = BTreeSet::new();
    for host in hosts {
        attributes.extend(host.attributes.iter().map(|(key, value)| Property::Attribute(key, value)));
        capacities.extend(
            host.capacity.iter().filter_map(|(name, amount)| Some(Property::Capacity(name, amount.0.checked_ilog2()?))),
        );
    }
    let shard = shard_of(site);
    [Property::Present]
        .into_iter()
        .chain(attributes.into_iter().take(ATTRIBUTE_KEYS_MAX))
        .chain(capacities.into_iter().take(CAPACITY_KEYS_MAX))
        .chain(hosts.iter().take(HOST_KEYS_MAX).map(|host| Property::Host(&host.id)))
        .map(|property| key_of(grid, &property, shard))
        .collect()
}

/// The keys to look at for a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryKeys {
    /// Those of the query's first attribute, else of its largest minimum, else none. One property is enough, since
    /// every provider's advert is read anyway; attributes come first because they usually cut most.
    pub precise: Vec<RecordKey>,
    /// Those of all sites, for when the precise ones do not suffice: every site with a fitting host is under one.
    pub fallback: Vec<RecordKey>,
}

/// The keys under which the sites with fitting hosts are found, in no particular order of shards.
#[must_use]
pub fn keys_of_query(grid: &GridId, per_host: &Amounts, attributes: &Attributes) -> QueryKeys {
    let minimum = per_host.iter().filter(|(_, amount)| **amount > Amount::ZERO).max_by_key(|(_, amount)| **amount);
    let precise: Vec<Property<'_>> = if let Some((key, value)) = attributes.iter().next() {
        vec![Property::Attribute(key, value)]
    } else if let Some((name, amount)) = minimum {
        let lowest = amount.0.ilog2();
        (lowest..(lowest + BUCKETS_READ).min(u64::BITS)).map(|bucket| Property::Capacity(name, bucket)).collect()
    } else {
        Vec::new()
    };
    let all_shards = |properties: &[Property<'_>]| {
        (0..SHARDS).flat_map(|shard| properties.iter().map(move |property| key_of(grid, property, shard))).collect()
    };
    QueryKeys { precise: all_shards(&precise), fallback: all_shards(&[Property::Present]) }
}

/// The key under which the site of a named host is found.
#[must_use]
pub fn key_of_host(grid: &GridId, host: &HostId) -> RecordKey {
    key_of(grid, &Property::Host(host), 0)
}

fn key_of(grid: &GridId, property: &Property<'_>, shard: u8) -> RecordKey {
    let shard = shard.to_string();
    match property {
        Property::Present => hashed(grid, &["present", &shard]),
        Property::Attribute(key, value) => hashed(grid, &["attribute", &shard, key, value]),
        Property::Capacity(name, bucket) => hashed(grid, &["capacity", &shard, name.as_str(), &bucket.to_string()]),
        // Few sites share a host's name, so these keys need no shards.
        Property::Host(host) => hashed(grid, &["host", host.as_str()]),
    }
}

fn hashed(grid: &GridId, parts: &[&str]) -> RecordKey {
    let mut text = Vec::new();
    for part in ["kolo-index/1", grid.as_str()].iter().chain(parts) {
        // Lengths keep ("ab", "c") and ("a", "bc") apart.
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part.as_bytes());
    }
    RecordKey::new(&sha256(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn host(id: &str, cpu: u64, attribute: &str) -> Host {
        Host {
            id: HostId::new(id).unwrap(),
            capacity: BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(cpu))]),
            attributes: BTreeMap::from([("arch".to_owned(), attribute.to_owned())]),
            speed: 1000,
            price: 0,
        }
    }

    fn grid() -> GridId {
        GridId::new("test").unwrap()
    }

    proptest! {
        #[test]
        fn a_fitting_host_is_always_under_a_key_of_the_query(
            cpu in 1_u64..1 << 20, asked in 1_u64..1 << 20, by_attribute: bool, site in "[a-z]{1,20}"
        ) {
            let site = SiteId::new(&site).unwrap();
            let host = host("h1", cpu, "x86_64");
            let per_host = BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(asked))]);
            let attributes = if by_attribute { host.attributes.clone() } else { BTreeMap::new() };
            let fits = host.could_ever_satisfy(&per_host, &attributes);
            let provided = keys_of_site(&grid(), &site, &[host]);
            let read = keys_of_query(&grid(), &per_host, &attributes);
            let is_in_reach = by_attribute || cpu / asked < 128;
            prop_assert!(!fits || !is_in_reach || read.precise.iter().any(|key| provided.contains(key)));
            prop_assert!(read.fallback.iter().any(|key| provided.contains(key)));
        }
    }

    #[test]
    fn keys_of_another_grid_shard_or_property_differ() {
        let other = GridId::new("other").unwrap();
        let site = SiteId::new("s").unwrap();
        assert_ne!(advert_key(&grid(), &site), advert_key(&other, &site));
        let keys = keys_of_query(&grid(), &BTreeMap::new(), &BTreeMap::new());
        assert_eq!(keys.precise, Vec::new());
        assert_eq!(keys.fallback.iter().map(|key| key.to_vec()).collect::<BTreeSet<_>>().len(), usize::from(SHARDS));
        assert_ne!(hashed(&grid(), &["ab", "c"]), hashed(&grid(), &["a", "bc"]));
    }

    #[test]
    fn the_keys_of_a_site_are_bounded() {
        let hosts: Vec<Host> =
            (0..5000_u64).map(|i| host(&format!("h{i}"), 1 << (i % 48), &format!("arch{i}"))).collect();
        assert!(keys_of_site(&grid(), &SiteId::new("s").unwrap(), &hosts).len() <= KEYS_PER_SITE_MAX);
        assert!(keys_of_site(&grid(), &SiteId::new("s").unwrap(), &[]).is_empty());
    }

    #[test]
    fn sites_spread_over_all_shards() {
        let shards: BTreeSet<u8> = (0..500).map(|i| shard_of(&SiteId::new(&format!("site{i}")).unwrap())).collect();
        assert_eq!(shards.len(), usize::from(SHARDS));
    }
}
