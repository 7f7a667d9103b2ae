//! The modelled network: delays, loss, repetition, reordering, cut links, and nodes without descriptors for new connections.
//!
//! Invariant: what a node sends to itself is neither lost nor repeated; after the healing nothing is.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::options::Options;

/// Where the links of the grid are cut.
#[derive(Debug, Default)]
pub struct Network {
    /// Links that let nothing through, from and to.
    cut: BTreeSet<(usize, usize)>,
    /// Nodes without descriptors, each with the nodes that it has no connection with.
    starved: BTreeMap<usize, BTreeSet<usize>>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It is not sent: there is no connection, and no descriptor for a new one at one of the two.
    Unconnected,
    /// It arrives after this time, and perhaps a second time.
    Arrives { after_ms: u64, again_after_ms: Option<u64> },
}

impl Network {
    /// Cuts the links between `part` and the rest, in both directions or only out of `part`.
    pub fn cut(&mut self, sites: usize, part: &BTreeSet<usize>, is_one_way: bool) {
        for inside in part {
            for outside in (0..sites).filter(|site| !part.contains(site)) {
                self.cut.insert((*inside, outside));
                if !is_one_way {
                    self.cut.insert((outside, *inside));
                }
            }
        }
    }

    /// All links work again.
    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// A node has run out of descriptors, and has no connection with these others.
    pub fn starve(&mut self, node: usize, unconnected: BTreeSet<usize>) {
        self.starved.insert(node, unconnected);
    }

    /// A node has descriptors again; whether it had none.
    pub fn end_shortage(&mut self, node: usize) -> bool {
        self.starved.remove(&node).is_some()
    }

    /// Whether a node has run out of descriptors.
    pub fn is_starved(&self, node: usize) -> bool {
        self.starved.contains_key(&node)
    }

    fn is_unconnected(&self, one: usize, other: usize) -> bool {
        let lacks = |node: usize, with: usize| self.starved.get(&node).is_some_and(|others| others.contains(&with));
        lacks(one, other) || lacks(other, one)
    }

    /// Decides about a message of a kind of which `loss_percent` are lost, from `from` to `to`. Once `is_healed`, it
    /// arrives, and soon.
    pub fn fate(
        &self,
        random: &mut Xoshiro256PlusPlus,
        (options, loss_percent): (&Options, u64),
        (from, to): (usize, usize),
        is_healed: bool,
    ) -> Fate {
        if from == to {
            return Fate::Arrives { after_ms: 0, again_after_ms: None };
        }
        let after_ms = random.random_range(1..=options.delay_ms_max);
        if is_healed {
            return Fate::Arrives { after_ms, again_after_ms: None };
        }
        if self.is_unconnected(from, to) {
            return Fate::Unconnected;
        }
        let mut happens = |percent: u64| random.random_range(0..100) < percent;
        if self.cut.contains(&(from, to)) || happens(loss_percent) {
            return Fate::Lost;
        }
        let (is_late, is_repeated) = (happens(options.late_percent), happens(options.repeat_percent));
        let mut late = || random.random_range(1..=options.latest_ms);
        Fate::Arrives { after_ms: if is_late { late() } else { after_ms }, again_after_ms: is_repeated.then(late) }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_node_without_descriptors_reaches_only_those_that_it_has_a_connection_with() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let options = Options { delay_ms_max: 1, latest_ms: 1, ..Options::default() };
        let mut is_unconnected = |network: &Network, from, to, is_healed| {
            network.fate(&mut random, (&options, 0), (from, to), is_healed) == Fate::Unconnected
        };
        let mut network = Network::default();
        network.starve(0, BTreeSet::from([1]));
        for (from, to) in [(0, 1), (1, 0)] {
            assert!(is_unconnected(&network, from, to, false) && !is_unconnected(&network, from, to, true));
        }
        for (from, to) in [(0, 0), (0, 2), (2, 0), (1, 2)] {
            assert!(!is_unconnected(&network, from, to, false));
        }
        network.heal();
        assert!(
            network.is_starved(0) && is_unconnected(&network, 0, 1, false),
            "the end of a cut gives no descriptors"
        );
        assert!(network.end_shortage(0) && !network.end_shortage(0));
        assert!(!network.is_starved(0) && !is_unconnected(&network, 0, 1, false));
    }
}
