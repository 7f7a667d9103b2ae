//! Where a node's sockets are.
//!
//! Invariant: no two nodes of a grid share a listening address, and a node finds its own free when it comes back.

use std::net::Ipv4Addr;

/// Nodes numbered in one block of 256 addresses.
const BLOCK: usize = 250;
/// The first block of addresses of nodes, and that of others which stand before them: no connection is dialled from there, so none can
/// take the port of a node that is down for a moment; and to a node all of them are its own machine.
pub const NODES: usize = 1;
pub const PROXIES: usize = 101;

/// Where a node listens.
#[derive(Debug, Clone)]
pub struct Place {
    /// Multiaddr for other nodes; port 0 is chosen by the system.
    pub listen: String,
    /// Multiaddr to announce instead, where a proxy is between the nodes.
    pub announce: Option<String>,
    /// Address and port of the API; port 0 is chosen by the system.
    pub api: String,
    /// The network namespace to run in, as the id of a process in it; none is the harness's own.
    pub namespace: Option<u32>,
}

impl Place {
    /// A node that others reach at `listen`, with its API on loopback.
    pub fn at(listen: String) -> Place {
        Place { listen, announce: None, api: "127.0.0.1:0".to_owned(), namespace: None }
    }

    /// A place on loopback for the node with number `index`.
    pub fn loopback(index: usize) -> Place {
        Place::at(format!("/ip4/{}/tcp/0", own_loopback(NODES, index)))
    }

    /// A place for the node with number `index` of those that share a process.
    pub fn in_process(index: usize) -> Place {
        Place::at(format!("/memory/{}", index + 1))
    }
}

/// A loopback address for the node with number `index`, counted from a block of addresses. Where the system has the whole of 127/8, each
/// node has an address of its own, and connections are dialled from 127.0.0.1.
pub fn own_loopback(block: usize, index: usize) -> Ipv4Addr {
    if cfg!(target_os = "linux") { numbered(127, 0, block * BLOCK + index) } else { Ipv4Addr::LOCALHOST }
}

/// The address `first.second.x.y` of the node with number `index`.
pub fn numbered(first: u8, second: u8, index: usize) -> Ipv4Addr {
    let octet = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(first, second, octet(index / BLOCK), octet(index % BLOCK + 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_thousand_nodes_have_a_thousand_addresses() {
        let addresses: BTreeSet<Ipv4Addr> = (0..1000).map(|index| own_loopback(NODES, index)).collect();
        assert_eq!(addresses.len(), 1000);
        assert!(addresses.iter().all(Ipv4Addr::is_loopback));
        assert_eq!(numbered(10, 1, 250).to_string(), "10.1.1.1");
    }
}
