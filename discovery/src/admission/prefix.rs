//! The part of an address that one owner usually has for himself: one IPv4 address, or the /64 of an IPv6 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use broker::ids::Network;
use libp2p::{Multiaddr, multiaddr::Protocol};

use crate::addresses::ip_of;

/// What limits by address count an address for: itself (IPv4, and this machine), or the /64 that one machine can choose
/// from (IPv6).
#[must_use]
pub fn prefix_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
        ip => ip,
    }
}

/// The network behind which a site's ledger counts the node at `address`: the /24 (IPv4) or the /48 (IPv6), as much as one owner easily
/// has. None for [this machine](is_this_machine) and for private networks, where addresses cost nothing and neighbours know each other, and through a relay.
pub(crate) fn network_of(address: &Multiaddr) -> Option<Network> {
    let is_relayed = address.iter().any(|part| matches!(part, Protocol::P2pCircuit));
    if is_relayed { None } else { network_on_way(address) }
}

/// Network from which a connection at `address` comes; through a relay it is the relay's.
pub(crate) fn network_on_way(address: &Multiaddr) -> Option<Network> {
    let text = match ip_of(address)? {
        ip if is_this_machine(ip) => return None,
        IpAddr::V4(ip) if ip.is_private() || ip.is_link_local() => return None,
        IpAddr::V4(ip) => format!("{}/24", Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << 8))),
        IpAddr::V6(ip) if ip.is_unique_local() || ip.is_unicast_link_local() => return None,
        IpAddr::V6(ip) => format!("{}/48", Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 80))),
    };
    Network::new(&text).ok()
}

/// Whether an address is of this machine: 127.0.0.0/16 or `::1`. The rest of 127.0.0.0/8, which nobody uses, counts as networks of
/// others, so that attacks from several of them can be tried on one machine.
fn is_this_machine(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => matches!(ip.octets(), [127, 0, ..]),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

/// Whom an address counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix(IpAddr);

impl Prefix {
    /// The prefix of an address; none when it does not begin with an IP address, as inside a process.
    pub(crate) fn of(address: &Multiaddr) -> Option<Prefix> {
        ip_of(address).map(|ip| Prefix(prefix_of(ip)))
    }

    /// Whether it is this machine.
    pub(crate) fn is_this_machine(self) -> bool {
        is_this_machine(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Option<Prefix> {
        Prefix::of(&address.parse().unwrap())
    }

    #[test]
    fn a_network_is_what_one_owner_easily_has_of_the_internet() {
        let network = |address: &str| network_of(&address.parse().unwrap()).map(String::from);
        assert_eq!(network("/ip4/203.0.113.7/tcp/1").as_deref(), Some("203.0.113.0/24"));
        assert_eq!(network("/ip6/::ffff:203.0.113.9/tcp/1").as_deref(), Some("203.0.113.0/24"));
        assert_eq!(network("/ip6/2001:db8:1:2::3/udp/1/quic-v1").as_deref(), Some("2001:db8:1::/48"));
        assert_eq!(network("/ip4/127.66.1.1/tcp/1").as_deref(), Some("127.66.1.0/24"));
        for nobodys in [
            "/ip4/127.0.0.1",
            "/ip4/127.0.9.1",
            "/ip4/192.168.1.2",
            "/ip4/169.254.1.2",
            "/ip6/::1",
            "/ip6/fd00::1",
            "/ip6/fe80::1",
        ] {
            assert_eq!(network(&format!("{nobodys}/tcp/1")), None, "{nobodys}");
        }
        assert_eq!(network("/memory/7"), None);
        let relayed = "/ip4/203.0.113.7/tcp/1/p2p-circuit";
        assert_eq!(network(relayed), None, "the address is the relay's");
        assert_eq!(network_on_way(&relayed.parse().unwrap()), Network::new("203.0.113.0/24").ok());
    }

    #[test]
    fn one_owner_has_one_prefix() {
        assert_eq!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8::2/udp/2/quic-v1"));
        assert_ne!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8:1::1/tcp/1"));
        assert_eq!(of("/ip6/::ffff:192.0.2.1/tcp/1"), of("/ip4/192.0.2.1/tcp/2"));
        assert_ne!(of("/ip4/192.0.2.1/tcp/1"), of("/ip4/192.0.2.2/tcp/1"));
        assert_eq!(of("/memory/7"), None);
        assert!(["/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"].iter().all(|own| of(own).unwrap().is_this_machine()));
        assert!(["/ip4/127.1.0.1/tcp/1", "/ip6/::2/tcp/1"].iter().all(|other| !of(other).unwrap().is_this_machine()));
    }
}
