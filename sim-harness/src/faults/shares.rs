//! What the owners of some seeds let one user, one node or one network have, and the networks in which nodes are.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use broker::{resources::ResourceName, time::Span, trust::OwnerPolicy};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// So many nodes have a network together; the ones behind them have none that others know.
const NODES_A_NETWORK: usize = 2;

/// The shares of a seed.
#[derive(Debug, Clone)]
pub struct Shares {
    /// How much of a site one party may have, in percent.
    pub site_percent: u8,
    /// How much of each host's cores one user may have, in percent.
    pub host_percent: Option<u8>,
    /// Longest reservation, and how far ahead one may end.
    pub longest: Option<Span>,
    pub reach: Option<Span>,
}

impl Shares {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Shares> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let drawn = Shares {
            site_percent: [10, 25, 50, 70][random.random_range(0..4)],
            host_percent: [None, None, Some(60)][random.random_range(0..3)],
            longest: [None, Some(Span(8_000))][random.random_range(0..2)],
            reach: [None, Some(Span(20_000))][random.random_range(0..2)],
        };
        random.random_bool(0.5).then_some(drawn)
    }

    /// The rules of every owner.
    pub fn policy(&self) -> OwnerPolicy {
        let cores = || ResourceName::new("cpu").ok();
        OwnerPolicy {
            site_share_percent: Some(self.site_percent),
            user_share_percent: self.host_percent.and_then(|percent| Some((cores()?, percent))).into_iter().collect(),
            max_duration: self.longest,
            max_reach: self.reach,
            ..OwnerPolicy::default()
        }
    }

    /// The number of the network in which others meet a node; every third node is in none.
    pub fn network_of(&self, node: usize) -> Option<usize> {
        (node % (NODES_A_NETWORK + 1) < NODES_A_NETWORK).then_some(node / (NODES_A_NETWORK + 1))
    }
}
