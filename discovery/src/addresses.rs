//! Which of its addresses a node tells others, and which of those that others tell it dials.
//!
//! Whatever a site advertises is dialled by others, so an address may point at a machine that only they can reach. Invariants: an
//! address of a loopback or private range is dialled only by a node that tells one of that range itself, or whose owner lists
//! it; addresses that belong to no machine are dialled only where the owner has typed them; and a node tells
//! no address of its own at which only itself, or only its network, finds it, unless it has no better one or was told to listen
//! exactly there.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::{PoisonError, RwLock},
};

use libp2p::{Multiaddr, multiaddr::Protocol};

/// Where the machine of an address can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Range {
    /// From everywhere.
    Public,
    /// Inside the machine.
    Loopback,
    /// On the same link.
    LinkLocal,
    /// 10.0.0.0/8.
    Private10,
    /// 172.16.0.0/12.
    Private172,
    /// 192.168.0.0/16.
    Private192,
    /// 100.64.0.0/10: the network of a provider.
    Provider,
    /// fc00::/7.
    UniqueLocal,
    /// Inside the process.
    Process,
    /// Nowhere that this program goes: names, unspecified, multicast, documentation, reserved.
    Nowhere,
}

/// The range of an address.
pub(crate) fn range_of(address: &Multiaddr) -> Range {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => range_of_v4(ip),
        Some(Protocol::Ip6(ip)) => range_of_v6(ip),
        Some(Protocol::Memory(_)) => Range::Process,
        _ => Range::Nowhere,
    }
}

fn range_of_v4(ip: Ipv4Addr) -> Range {
    match ip.octets() {
        [127, ..] => Range::Loopback,
        [169, 254, ..] => Range::LinkLocal,
        [10, ..] => Range::Private10,
        [172, 16..=31, ..] => Range::Private172,
        [192, 168, ..] => Range::Private192,
        [100, 64..=127, ..] => Range::Provider,
        // This network, protocols, documentation, benchmarks, multicast and reserved.
        [0, ..] | [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18..=19, ..] | [224..=255, ..] => {
            Range::Nowhere
        }
        _ => Range::Public,
    }
}

fn range_of_v6(ip: Ipv6Addr) -> Range {
    if let Some(ip) = ip.to_ipv4_mapped() {
        return range_of_v4(ip);
    }
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Range::Loopback,
        [0xfe80..=0xfebf, ..] => Range::LinkLocal,
        [0xfc00..=0xfdff, ..] => Range::UniqueLocal,
        // Protocols such as Teredo, documentation, and IPv4 inside of IPv6.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2002, ..] => Range::Nowhere,
        [0x2000..=0x3fff, ..] => Range::Public,
        _ => Range::Nowhere,
    }
}

/// The IP address at the head of an address, if it begins with one; an IPv4 address in its own form.
pub(crate) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(IpAddr::from(ip).to_canonical()),
        _ => None,
    }
}

/// Those of `listeners`, the addresses that a node listens on, that it tells others; `configured` is where it was told to listen.
pub(crate) fn told(configured: &[Multiaddr], listeners: &[Multiaddr]) -> Vec<Multiaddr> {
    let has = |wanted: Range| listeners.iter().any(|address| range_of(address) == wanted);
    let is_local = listeners.iter().all(|address| range_of(address) == Range::Loopback);
    let is_explicit = |address: &Multiaddr| configured.iter().any(|typed| ip_of(typed) == ip_of(address));
    let is_told = |address: &&Multiaddr| match range_of(address) {
        Range::Public | Range::Process => true,
        Range::Loopback => is_local,
        Range::LinkLocal => is_explicit(address),
        Range::Private10 | Range::Private172 | Range::Private192 | Range::Provider | Range::UniqueLocal => {
            !has(Range::Public) || is_explicit(address)
        }
        Range::Nowhere => false,
    };
    listeners.iter().filter(is_told).cloned().collect()
}

/// Addresses whose first bits are the same, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    first: IpAddr,
    bits: u32,
}

/// A text that is no [`AddressBlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an address and the length of its prefix, such as 10.0.0.0/8 or fd00::/8")]
pub struct NoAddressBlock;

impl FromStr for AddressBlock {
    type Err = NoAddressBlock;

    fn from_str(text: &str) -> Result<AddressBlock, NoAddressBlock> {
        let (first, bits) = text.split_once('/').ok_or(NoAddressBlock)?;
        let block = AddressBlock {
            first: first.parse().map_err(|_| NoAddressBlock)?,
            bits: bits.parse().map_err(|_| NoAddressBlock)?,
        };
        let bits_max = if block.first.is_ipv4() { 32 } else { 128 };
        if block.bits <= bits_max { Ok(block) } else { Err(NoAddressBlock) }
    }
}

impl AddressBlock {
    fn contains(&self, ip: IpAddr) -> bool {
        match (self.first, ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                (first.to_bits() ^ ip.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => {
                (first.to_bits() ^ ip.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// What this node dials.
#[derive(Debug, Default)]
pub(crate) struct DialFilter {
    /// What the owner has typed, without peer ids.
    typed: Vec<Multiaddr>,
    blocks: Vec<AddressBlock>,
    /// The ranges that this node is in itself.
    own: RwLock<BTreeSet<Range>>,
}

impl DialFilter {
    /// Always dials `typed`, and addresses in `blocks`.
    pub(crate) fn new(typed: &[Multiaddr], blocks: &[AddressBlock]) -> DialFilter {
        let typed = typed.iter().map(without_peer).collect();
        DialFilter { typed, blocks: blocks.to_vec(), own: RwLock::default() }
    }

    /// Dials addresses of the ranges of `own` from now on.
    pub(crate) fn set_own<'a>(&self, own: impl Iterator<Item = &'a Multiaddr>) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = own.map(range_of).collect();
    }

    /// Whether this node dials an address that others tell it.
    pub(crate) fn allows(&self, address: &Multiaddr) -> bool {
        match range_of(address) {
            Range::Public | Range::Process => true,
            Range::Nowhere => self.is_typed(address),
            range => {
                let is_own = self.own.read().unwrap_or_else(PoisonError::into_inner).contains(&range);
                let is_listed = || ip_of(address).is_some_and(|ip| self.blocks.iter().any(|block| block.contains(ip)));
                is_own || is_listed() || self.is_typed(address)
            }
        }
    }

    fn is_typed(&self, address: &Multiaddr) -> bool {
        !self.typed.is_empty() && self.typed.contains(&without_peer(address))
    }
}

fn without_peer(address: &Multiaddr) -> Multiaddr {
    let mut address = address.clone();
    if matches!(address.iter().last(), Some(Protocol::P2p(_))) {
        address.pop();
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    fn all(texts: &[&str]) -> Vec<Multiaddr> {
        texts.iter().map(|text| address(text)).collect()
    }

    #[test]
    fn every_address_has_its_range() {
        let table = [
            ("/ip4/8.8.8.8/tcp/1", Range::Public),
            ("/ip4/172.15.0.1/tcp/1", Range::Public),
            ("/ip4/172.32.0.1/tcp/1", Range::Public),
            ("/ip4/192.0.1.1/tcp/1", Range::Public),
            ("/ip4/100.63.0.1/tcp/1", Range::Public),
            ("/ip4/100.128.0.1/udp/1/quic-v1", Range::Public),
            ("/ip4/127.1.2.3/tcp/1", Range::Loopback),
            ("/ip4/169.254.1.1/tcp/1", Range::LinkLocal),
            ("/ip4/10.255.0.1/tcp/1", Range::Private10),
            ("/ip4/172.16.0.1/tcp/1", Range::Private172),
            ("/ip4/172.31.0.1/tcp/1", Range::Private172),
            ("/ip4/192.168.0.1/tcp/1", Range::Private192),
            ("/ip4/100.64.0.1/tcp/1", Range::Provider),
            ("/ip4/0.0.0.0/tcp/1", Range::Nowhere),
            ("/ip4/192.0.2.1/tcp/1", Range::Nowhere),
            ("/ip4/198.51.100.1/tcp/1", Range::Nowhere),
            ("/ip4/203.0.113.1/tcp/1", Range::Nowhere),
            ("/ip4/198.19.0.1/tcp/1", Range::Nowhere),
            ("/ip4/224.0.0.1/tcp/1", Range::Nowhere),
            ("/ip4/255.255.255.255/tcp/1", Range::Nowhere),
            ("/ip6/2a00:1450::1/tcp/1", Range::Public),
            ("/ip6/2001:4860::1/tcp/1", Range::Public),
            ("/ip6/::1/tcp/1", Range::Loopback),
            ("/ip6/fe80::1/tcp/1", Range::LinkLocal),
            ("/ip6/fd12::1/tcp/1", Range::UniqueLocal),
            ("/ip6/::ffff:10.0.0.1/tcp/1", Range::Private10),
            ("/ip6/::/tcp/1", Range::Nowhere),
            ("/ip6/ff02::1/tcp/1", Range::Nowhere),
            ("/ip6/2001:db8::1/tcp/1", Range::Nowhere),
            ("/ip6/2001::1/tcp/1", Range::Nowhere),
            ("/ip6/2002:a00:1::/tcp/1", Range::Nowhere),
            ("/ip6/64:ff9b::7f00:1/tcp/1", Range::Nowhere),
            ("/dns4/kolo.example.org/tcp/1", Range::Nowhere),
            ("/dnsaddr/localhost", Range::Nowhere),
            ("/memory/7", Range::Process),
            ("/unix/socket", Range::Nowhere),
        ];
        for (text, range) in table {
            assert_eq!(range_of(&address(text)), range, "{text}");
        }
    }

    #[test]
    fn a_node_tells_where_others_find_it_and_nothing_else() {
        let everywhere = ["/ip4/0.0.0.0/tcp/1", "/ip6/::/tcp/1"];
        let table: [(&[&str], &[&str], &[&str]); 7] = [
            (&["/ip4/127.0.0.1/tcp/0"], &["/ip4/127.0.0.1/tcp/1"], &["/ip4/127.0.0.1/tcp/1"]),
            (&everywhere, &["/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"], &["/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"]),
            (
                &everywhere,
                &["/ip4/127.0.0.1/tcp/1", "/ip4/192.168.1.5/tcp/1", "/ip6/fe80::5/tcp/1"],
                &["/ip4/192.168.1.5/tcp/1"],
            ),
            (
                &everywhere,
                &["/ip4/127.0.0.1/tcp/1", "/ip4/172.17.0.1/tcp/1", "/ip4/8.8.8.8/tcp/1"],
                &["/ip4/8.8.8.8/tcp/1"],
            ),
            (
                &["/ip4/10.0.0.5/tcp/1", "/ip4/8.8.8.8/tcp/1", "/ip4/127.0.0.1/tcp/1"],
                &["/ip4/10.0.0.5/tcp/1", "/ip4/8.8.8.8/tcp/1", "/ip4/127.0.0.1/tcp/1"],
                &["/ip4/10.0.0.5/tcp/1", "/ip4/8.8.8.8/tcp/1"],
            ),
            (&["/ip6/fe80::5/tcp/1"], &["/ip6/fe80::5/tcp/1"], &["/ip6/fe80::5/tcp/1"]),
            (&["/memory/0"], &["/memory/7"], &["/memory/7"]),
        ];
        for (configured, listeners, expected) in table {
            assert_eq!(told(&all(configured), &all(listeners)), all(expected), "{listeners:?}");
        }
    }

    #[test]
    fn private_addresses_are_dialled_by_their_neighbours_only() {
        let elsewhere = ["/ip4/8.8.8.8/tcp/1", "/ip6/2a00:1450::1/tcp/1", "/memory/7"];
        let private = ["/ip4/127.0.0.1/tcp/22", "/ip4/192.168.7.1/tcp/80", "/ip4/10.1.2.3/tcp/1", "/ip6/fd12::1/tcp/1"];
        let never = ["/ip4/0.0.0.0/tcp/22", "/ip4/192.0.2.1/tcp/1", "/ip4/224.0.0.1/tcp/1", "/dns4/localhost/tcp/22"];
        let dialled = |filter: &DialFilter| -> Vec<&str> {
            private.into_iter().chain(never).filter(|text| filter.allows(&address(text))).collect()
        };
        let filter = DialFilter::default();
        assert!(elsewhere.iter().all(|text| filter.allows(&address(text))));
        assert_eq!(dialled(&filter), [""; 0]);
        filter.set_own(all(&["/ip4/192.168.1.5/tcp/1"]).iter());
        assert_eq!(dialled(&filter), [private[1]]);
        filter.set_own(all(&["/ip4/127.0.0.1/tcp/1", "/ip6/fd34::1/tcp/1"]).iter());
        assert_eq!(dialled(&filter), [private[0], private[3]]);
        let blocks = ["10.0.0.0/8", "192.0.2.0/24"].map(|text| text.parse().unwrap());
        assert_eq!(dialled(&DialFilter::new(&[], &blocks)), [private[2]]);
        let peer = libp2p::PeerId::random();
        let typed = [address(&format!("{}/p2p/{peer}", private[1])), address(never[1])];
        let filter = DialFilter::new(&typed, &[]);
        assert_eq!(dialled(&filter), [private[1], never[1]], "with the peer's id or without");
        assert!(filter.allows(&typed[0]));
    }

    #[test]
    fn blocks_contain_what_begins_alike() {
        let block = |text: &str| text.parse::<AddressBlock>();
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "255.0.0.1", "::1"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::/0", "fe80::1", "10.0.0.1"),
        ] {
            let [inside, outside] = [inside, outside].map(|ip| ip.parse().unwrap());
            let block = block(text).unwrap();
            assert!(block.contains(inside) && !block.contains(outside), "{text}");
        }
        for wrong in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/", "/8", "10.0.0.0/-1"] {
            assert_eq!(block(wrong), Err(NoAddressBlock), "{wrong}");
        }
    }
}
