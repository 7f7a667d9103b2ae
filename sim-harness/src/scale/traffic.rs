//! Bytes and messages that each node has sent and received, by kind.
//!
//! Sizes are those of what Kolo and libp2p's protocols write; Noise, Yamux, TCP and IP headers come on top.
//! Invariant: of each kind, bytes sent by all nodes are bytes received and bytes lost.

use std::iter::Sum;

/// What messages are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Adverts and schedule changes, and their copies.
    Gossip,
    /// Holds, confirms, releases, outcomes; and schedules fetched for a plan.
    Direct,
    /// Keeping the view: exchanges of adverts, rechecks, repairs, pings.
    Upkeep,
    /// The DHT.
    Dht,
}

/// All kinds and their names, in the order of printing.
pub const KINDS: [(Kind, &str); 4] = [
    (Kind::Gossip, "gossip"),
    (Kind::Direct, "direct requests"),
    (Kind::Upkeep, "upkeep of the view"),
    (Kind::Dht, "DHT"),
];

/// Bytes and messages of one kind at one node, or at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Bytes sent, those that were lost included.
    pub sent: u64,
    pub received: u64,
    /// Bytes sent that were lost.
    pub lost: u64,
    /// Messages received.
    pub messages: u64,
}

impl Flow {
    /// Adds what passed as well.
    pub fn add(&mut self, other: Flow) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.messages += other.messages;
    }
}

impl Sum for Flow {
    fn sum<I: Iterator<Item = Flow>>(flows: I) -> Flow {
        let mut sum = Flow::default();
        flows.for_each(|flow| sum.add(flow));
        sum
    }
}

/// The flows of all nodes.
#[derive(Debug)]
pub struct Traffic(Vec<[Flow; KINDS.len()]>);

impl Traffic {
    /// Nothing yet.
    pub fn new(nodes: usize) -> Traffic {
        Traffic(vec![[Flow::default(); KINDS.len()]; nodes])
    }

    /// Adds a flow of a node.
    pub fn add(&mut self, kind: Kind, node: usize, flow: Flow) {
        self.0[node][kind as usize].add(flow);
    }

    /// A message passes.
    pub fn passes(&mut self, kind: Kind, (from, to): (usize, usize), bytes: u64) {
        self.add(kind, from, Flow { sent: bytes, ..Flow::default() });
        self.add(kind, to, Flow { received: bytes, messages: 1, ..Flow::default() });
    }

    /// A message is lost.
    pub fn loses(&mut self, kind: Kind, from: usize, bytes: u64) {
        self.add(kind, from, Flow { sent: bytes, lost: bytes, ..Flow::default() });
    }

    /// The flows of one kind, by node.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = Flow> {
        self.0.iter().map(move |flows| flows[kind as usize])
    }
}
