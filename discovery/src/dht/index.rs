//! The DHT index: which keys a site provides, and which keys a reader looks at. Pure.
//!
//! A key stands for "sites of this shard have a host with this property". Properties are an attribute's value, the power of
//! two below a capacity, the name of a host, and merely being there. One key returns only 40 to 60 providers, so each
//! property is split into [`SHARDS`] keys by the hash of the site id; a reader walks shards in random order until it
//! has enough. The index is a hint: a provider counts only after its signed advert was read and looked at.
//!
//! Invariant: every site with hosts provides one of the keys that any query may fall back on, and a site has at most
//! [`KEYS_PER_SITE_MAX`] keys whatever it offers.

use std::{collections::BTreeSet, ops::Range};

use broker::{
    classes::{HostClass, Hosts, numbered},
    demand::Demand,
    ids::{HostId, SiteId},
    resources::ResourceName,
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
/// Most names of hosts and classes of a site that can be looked up in the index.
const HOST_KEYS_MAX: usize = 64;
/// Most keys a site provides, and therefore most that a node stores for one provider.
pub const KEYS_PER_SITE_MAX: usize = 1 + ATTRIBUTE_KEYS_MAX + CAPACITY_KEYS_MAX + HOST_KEYS_MAX;
/// How many powers of two above the asked capacity a reader looks at: up to 256 times what was asked.
const BUCKETS_READ: u32 = 8;

/// How many powers of two below the average of a total.
const BUCKETS_BELOW: u32 = 2;
/// Resources that hardly any host lacks.
const COMMON: [&str; 4] = ["cpu", "memory", "disk", "mhz"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Property<'a> {
    Present,
    Attribute(&'a str, &'a str),
    Capacity(&'a ResourceName, u32),
    /// Before single hosts, since it stands for more.
    Class(&'a HostId),
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
pub fn keys_of_site(grid: &GridId, site: &SiteId, hosts: &Hosts) -> Vec<RecordKey> {
    if hosts.is_empty() {
        return Vec::new();
    }
    let mut attributes = BTreeSet::new();
    let mut capacities = BTreeSet::new();
    let mut names = BTreeSet::new();
    for HostClass { host, members } in hosts.classes() {
        attributes.extend(host.attributes.iter().map(|(key, value)| Property::Attribute(key, value)));
        capacities.extend(
            host.capacity.iter().filter_map(|(name, amount)| Some(Property::Capacity(name, amount.0.checked_ilog2()?))),
        );
        names.insert(if members.is_some() { Property::Class(&host.id) } else { Property::Host(&host.id) });
    }
    let shard = shard_of(site);
    [Property::Present]
        .into_iter()
        .chain(attributes.into_iter().take(ATTRIBUTE_KEYS_MAX))
        .chain(capacities.into_iter().take(CAPACITY_KEYS_MAX))
        .chain(names.into_iter().take(HOST_KEYS_MAX))
        .map(|property| key_of(grid, &property, shard))
        .collect()
}

/// The keys to look at for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryKeys {
    /// Those of the request's first attribute, else of its scarcest resource, else none. One property is enough, since
    /// every provider's advert is read anyway; attributes come first because they usually cut most.
    pub precise: Vec<RecordKey>,
    /// Those of all sites, for when the precise ones do not suffice: every site with a fitting host is under one.
    pub fallback: Vec<RecordKey>,
}

/// The keys under which the sites with fitting hosts are found, in no particular order of shards.
#[must_use]
pub fn keys_of_query(grid: &GridId, demand: &Demand) -> QueryKeys {
    let scarcest = scarcest(demand);
    let precise: Vec<Property<'_>> = match (demand.attributes().iter().next(), &scarcest) {
        (Some((key, value)), _) => vec![Property::Attribute(key, value)],
        (None, Some((name, buckets))) => buckets.clone().map(|bucket| Property::Capacity(name, bucket)).collect(),
        (None, None) => Vec::new(),
    };
    QueryKeys { precise: in_all_shards(grid, &precise), fallback: keys_of_all(grid) }
}

/// The keys under which all sites with hosts are found.
#[must_use]
pub fn keys_of_all(grid: &GridId) -> Vec<RecordKey> {
    in_all_shards(grid, &[Property::Present])
}

fn in_all_shards(grid: &GridId, properties: &[Property<'_>]) -> Vec<RecordKey> {
    (0..SHARDS).flat_map(|shard| properties.iter().map(move |property| key_of(grid, property, shard))).collect()
}

/// The resource by which hosts are looked for, and the powers of two of capacities: one that hardly any host lacks comes
/// last, among others the one of which most is asked. Around what a host gives on average, since hosts may share a total
/// unevenly, but not below what each must have.
fn scarcest(demand: &Demand) -> Option<(ResourceName, Range<u32>)> {
    let asked = demand.resources().into_iter().filter_map(|name| {
        let average = demand.needed_in_sum(&name).0 / demand.seats() as u64;
        let lowest = (average >> BUCKETS_BELOW).max(demand.minimum_on_each(&name).0).checked_ilog2()?;
        Some((!COMMON.contains(&name.as_str()), average, name, lowest))
    });
    let (_, _, name, lowest) = asked.max()?;
    Some((name, lowest..(lowest + BUCKETS_READ).min(u64::BITS)))
}

/// The keys under which the sites of named hosts are found: at most so many of their names, and as many of their classes.
#[must_use]
pub fn keys_of_hosts<'h>(
    grid: &GridId,
    hosts: impl Iterator<Item = &'h HostId> + Clone,
    keys_max: usize,
) -> Vec<RecordKey> {
    let classes: BTreeSet<HostId> = hosts.clone().filter_map(numbered).map(|(class, _)| class).collect();
    let classes: Vec<Property<'_>> = classes.iter().map(Property::Class).collect();
    // Members of classes have no keys of their own, and each class has its first shards before another one has its last.
    let mut keys = in_all_shards(grid, &classes);
    keys.truncate(keys_max);
    keys.extend(hosts.map(|host| key_of(grid, &Property::Host(host), 0)).take(keys_max));
    keys
}

fn key_of(grid: &GridId, property: &Property<'_>, shard: u8) -> RecordKey {
    let shard = shard.to_string();
    match property {
        Property::Present => hashed(grid, &["present", &shard]),
        Property::Attribute(key, value) => hashed(grid, &["attribute", &shard, key, value]),
        Property::Capacity(name, bucket) => hashed(grid, &["capacity", &shard, name.as_str(), &bucket.to_string()]),
        // Few sites share a host's name, so these keys need no shards.
        Property::Host(host) => hashed(grid, &["host", host.as_str()]),
        // Many call their classes alike.
        Property::Class(class) => hashed(grid, &["class", &shard, class.as_str()]),
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

    use broker::{
        amount::Amount,
        host::Host,
        request::{Request, RequestDocument},
    };
    use proptest::prelude::*;

    use super::*;

    fn host(id: &str, cpu: u64, attribute: &str) -> Host {
        Host {
            id: HostId::new(id).unwrap(),
            capacity: BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(cpu))]),
            attributes: BTreeMap::from([("arch".to_owned(), attribute.to_owned())]),
            speed: broker::host::Speed::REFERENCE,
            tariff: Default::default(),
        }
    }

    fn grid() -> GridId {
        GridId::new("test").unwrap()
    }

    fn demand(document: RequestDocument) -> Demand {
        let document = RequestDocument { hosts: document.hosts.max(1), duration: Some(60), ..document };
        Request::try_from(document).unwrap().demand().clone()
    }

    fn amounts(cpu: u64) -> BTreeMap<ResourceName, Amount> {
        BTreeMap::from([(ResourceName::new("cpu").unwrap(), Amount(cpu))])
    }

    proptest! {
        #[test]
        fn a_fitting_host_is_always_under_a_key_of_the_query(
            cpu in 1_u64..1 << 20, asked in 1_u64..1 << 20, by_attribute: bool, site in "[a-z]{1,20}"
        ) {
            let site = SiteId::new(&site).unwrap();
            let host = host("h1", cpu, "x86_64");
            let attributes = if by_attribute { host.attributes.clone() } else { BTreeMap::new() };
            let demand = demand(RequestDocument { per_host: amounts(asked), attributes, ..RequestDocument::default() });
            let fits = demand.host_needs().are_met_by(&site, &host);
            let provided = keys_of_site(&grid(), &site, &Hosts::from_iter([host]));
            let read = keys_of_query(&grid(), &demand);
            let is_in_reach = by_attribute || cpu / asked < 128;
            prop_assert!(!fits || !is_in_reach || read.precise.iter().any(|key| provided.contains(key)));
            prop_assert!(read.fallback.iter().any(|key| provided.contains(key)));
        }

        #[test]
        fn a_host_with_about_its_share_of_a_total_is_under_a_key_of_the_query(
            cpu in 1_u64..1 << 20, hosts in 1_u32..40, asked in 1_u64..1 << 24, site in "[a-z]{1,20}"
        ) {
            let site = SiteId::new(&site).unwrap();
            let demand = demand(RequestDocument { hosts, total: amounts(asked), ..RequestDocument::default() });
            let provided = keys_of_site(&grid(), &site, &Hosts::from_iter([host("h1", cpu, "x86_64")]));
            let read = keys_of_query(&grid(), &demand);
            let share = asked / u64::from(hosts);
            prop_assert_eq!(share == 0, read.precise.is_empty());
            if (share / 4..=share * 16).contains(&cpu) && share > 0 {
                prop_assert!(read.precise.iter().any(|key| provided.contains(key)));
            }
        }
    }

    #[test]
    fn a_resource_that_few_hosts_have_is_looked_for_first() {
        let gpu = BTreeMap::from([(ResourceName::new("gpu").unwrap(), Amount(8))]);
        let total: BTreeMap<_, _> = gpu.iter().chain(&amounts(1 << 20)).map(|(n, a)| (n.clone(), *a)).collect();
        let both = keys_of_query(&grid(), &demand(RequestDocument { hosts: 4, total, ..RequestDocument::default() }));
        let alone =
            keys_of_query(&grid(), &demand(RequestDocument { hosts: 4, total: gpu, ..RequestDocument::default() }));
        assert_eq!(both.precise, alone.precise);
    }

    #[test]
    fn keys_of_another_grid_shard_or_property_differ() {
        let other = GridId::new("other").unwrap();
        let site = SiteId::new("s").unwrap();
        assert_ne!(advert_key(&grid(), &site), advert_key(&other, &site));
        let keys = keys_of_query(&grid(), &demand(RequestDocument::default()));
        assert_eq!(keys.precise, Vec::new());
        assert_eq!(keys.fallback.iter().map(|key| key.to_vec()).collect::<BTreeSet<_>>().len(), usize::from(SHARDS));
        assert_ne!(hashed(&grid(), &["ab", "c"]), hashed(&grid(), &["a", "bc"]));
    }

    #[test]
    fn the_keys_of_a_site_are_bounded() {
        let hosts: Hosts = (0..5000_u64).map(|i| host(&format!("h{i}"), 1 << (i % 48), &format!("arch{i}"))).collect();
        assert!(keys_of_site(&grid(), &SiteId::new("s").unwrap(), &hosts).len() <= KEYS_PER_SITE_MAX);
        assert!(keys_of_site(&grid(), &SiteId::new("s").unwrap(), &Hosts::default()).is_empty());
    }

    #[test]
    fn a_class_has_a_key_beside_many_hosts_and_is_found_by_each_of_its_names() {
        let site = SiteId::new("s").unwrap();
        let single = (0..HOST_KEYS_MAX).map(|number| host(&format!("h{number}"), 4, "x86_64"));
        let hosts: Hosts = single.chain((1..=9).map(|number| host(&format!("n-{number}"), 4, "x86_64"))).collect();
        let provided: BTreeSet<Vec<u8>> = keys_of_site(&grid(), &site, &hosts).iter().map(RecordKey::to_vec).collect();
        let named: Vec<HostId> = ["a-1", "b-1", "c-1", "n-7"].map(|id| HostId::new(id).unwrap()).to_vec();
        let keys = keys_of_hosts(&grid(), named.iter(), 96);
        assert!(keys.len() <= 2 * 96 && keys.iter().any(|key| provided.contains(&key.to_vec())));
        let other: Vec<HostId> = ["a-1", "n"].map(|id| HostId::new(id).unwrap()).to_vec();
        let keys = keys_of_hosts(&grid(), other.iter(), 96);
        assert!(!keys.iter().any(|key| provided.contains(&key.to_vec())));
    }

    #[test]
    fn sites_spread_over_all_shards() {
        let shards: BTreeSet<u8> = (0..500).map(|i| shard_of(&SiteId::new(&format!("site{i}")).unwrap())).collect();
        assert_eq!(shards.len(), usize::from(SHARDS));
    }
}
