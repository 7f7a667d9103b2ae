//! Who has sent and received how much, by kind.
//!
//! Sizes are those of what Kolo and libp2p's protocols write; Noise, Yamux, TCP and IP headers come on top.
//! Invariant: of each kind, bytes sent by all nodes are bytes received and bytes lost.

use super::mesh::Share;

/// What messages are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Adverts and schedule changes, and their copies.
    Gossip,
    /// Holds, confirms, releases, final words; and schedules fetched for a plan.
    Direct,
    /// Keeping the view: exchanges of adverts, rechecks, repairs, pings.
    Upkeep,
    /// The DHT.
    Dht,
}

/// All kinds, in the order of printing.
pub const KINDS: [Kind; 4] = [Kind::Gossip, Kind::Direct, Kind::Upkeep, Kind::Dht];

/// What went through one node, or through all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Bytes sent, those that were lost included.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent that were lost.
    pub lost: u64,
    /// Messages received.
    pub messages: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Traffic {
    nodes: Vec<[Flow; KINDS.len()]>,
}

impl Traffic {
    /// Nothing yet.
    pub fn new(nodes: usize) -> Traffic {
        Traffic { nodes: vec![[Flow::default(); KINDS.len()]; nodes] }
    }

    /// A message passes, after it was lost `losses` times.
    pub fn passes(&mut self, kind: Kind, (from, to): (usize, usize), bytes: u64, losses: u32) {
        let again = bytes * u64::from(losses);
        let flow = &mut self.nodes[from][kind as usize];
        flow.sent += bytes + again;
        flow.lost += again;
        let flow = &mut self.nodes[to][kind as usize];
        flow.received += bytes;
        flow.messages += 1;
    }

    /// A message finds nobody.
    pub fn loses(&mut self, kind: Kind, from: usize, bytes: u64) {
        let flow = &mut self.nodes[from][kind as usize];
        flow.sent += bytes;
        flow.lost += bytes;
    }

    /// A node sends and receives alike, since everybody does the same.
    pub fn evenly(&mut self, kind: Kind, node: usize, bytes: u64, messages: u64) {
        let flow = &mut self.nodes[node][kind as usize];
        flow.sent += bytes;
        flow.received += bytes;
        flow.messages += messages;
    }

    /// A node's share in `messages` gossip messages with `bytes` together.
    pub fn gossips(&mut self, node: usize, share: &Share, (messages, bytes): (u64, u64)) {
        let flow = &mut self.nodes[node][Kind::Gossip as usize];
        flow.sent += u64::from(share.sent) * bytes;
        flow.received += u64::from(share.received) * bytes;
        flow.lost += u64::from(share.lost) * bytes;
        flow.messages += u64::from(share.received) * messages;
    }

    /// What went through one node.
    pub fn of(&self, node: usize, kind: Kind) -> Flow {
        self.nodes[node][kind as usize]
    }

    /// What went through all nodes.
    pub fn sum(&self, kind: Kind) -> Flow {
        self.nodes.iter().map(|flows| flows[kind as usize]).fold(Flow::default(), |sum, flow| Flow {
            sent: sum.sent + flow.sent,
            received: sum.received + flow.received,
            lost: sum.lost + flow.lost,
            messages: sum.messages + flow.messages,
        })
    }
}
