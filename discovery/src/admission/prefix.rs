//! The part of an address that one owner usually has for himself: one IPv4 address, or the /64 of an IPv6 address.

use std::net::{IpAddr, Ipv6Addr};

use libp2p::{Multiaddr, multiaddr::Protocol};

/// What limits by address count an address for: itself (IPv4, and this machine), or the /64 that one machine can choose
/// from (IPv6).
#[must_use]
pub fn prefix_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
        ip => ip,
    }
}

/// Whom an address counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix(IpAddr);

impl Prefix {
    /// The prefix of an address; none when it does not begin with an IP address, as inside a process.
    pub(crate) fn of(address: &Multiaddr) -> Option<Prefix> {
        match address.iter().next()? {
            Protocol::Ip4(ip) => Some(Prefix(prefix_of(ip.into()))),
            Protocol::Ip6(ip) => Some(Prefix(prefix_of(ip.into()))),
            _ => None,
        }
    }

    /// Whether it is this machine.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Option<Prefix> {
        Prefix::of(&address.parse().unwrap())
    }

    #[test]
    fn one_owner_has_one_prefix() {
        assert_eq!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8::2/udp/2/quic-v1"));
        assert_ne!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8:1::1/tcp/1"));
        assert_eq!(of("/ip6/::ffff:192.0.2.1/tcp/1"), of("/ip4/192.0.2.1/tcp/2"));
        assert_ne!(of("/ip4/192.0.2.1/tcp/1"), of("/ip4/192.0.2.2/tcp/1"));
        assert_eq!(of("/memory/7"), None);
        assert!(["/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"].iter().all(|own| of(own).unwrap().is_loopback()));
        assert!(!of("/ip6/::2/tcp/1").unwrap().is_loopback());
    }
}
