//! What a look-up in the DHT costs in a grid of some size: look-ups are carried out on drawn tables of contacts.
//!
//! Every node knows, of each bucket (nodes whose id shares exactly so many leading bits with its own), up to k at random:
//! what the tables of nodes that run for a while converge to. A look-up asks the closest nodes that it has heard of, alpha
//! at a time, until the k closest have answered. Invariant: the ids, tables and keys follow from the seed.

use std::collections::BTreeSet;

use discovery::costs::DhtShape;

use super::geography::mix;

/// Look-ups that the average is taken of.
const SAMPLES: u64 = 64;

/// The cost of one look-up, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lookup {
    /// Nodes asked.
    pub asked: f64,
    /// Rounds of questions one after another.
    pub rounds: f64,
    /// Distances at which a node knows anybody: it looks for each of them now and then.
    pub buckets: f64,
}

struct Ids {
    /// Ascending.
    ids: Vec<u64>,
    seed: u64,
    copies: usize,
}

/// Measures look-ups among `nodes` nodes.
pub fn measure(nodes: usize, shape: DhtShape, seed: u64) -> Lookup {
    let ids: BTreeSet<u64> = (0..nodes as u64).map(|index| mix(seed ^ 0x6b61_6421, index)).collect();
    let ids = Ids { ids: ids.into_iter().collect(), seed, copies: shape.copies };
    let (mut asked, mut rounds, mut buckets) = (0, 0, 0);
    for sample in 0..SAMPLES {
        let start = mix(seed, sample) as usize % ids.ids.len().max(1);
        let (of_nodes, of_rounds) = ids.look_up(start, mix(!seed, sample), shape.parallel);
        asked += of_nodes;
        rounds += of_rounds;
        buckets += (0..u64::BITS).filter(|bits| !ids.bucket(start, *bits).is_empty()).count();
    }
    let mean = |sum: usize| sum as f64 / SAMPLES as f64;
    Lookup { asked: mean(asked), rounds: mean(rounds), buckets: mean(buckets) }
}

impl Ids {
    /// Positions of the nodes whose ids share exactly `bits` leading bits with that of the node at `own`.
    fn bucket(&self, own: usize, bits: u32) -> std::ops::Range<usize> {
        let Some(id) = self.ids.get(own) else { return 0..0 };
        let low_bits = u64::BITS - 1 - bits;
        let first = (id ^ (1 << low_bits)) >> low_bits << low_bits;
        let last = first | ((1 << low_bits) - 1);
        self.ids.partition_point(|id| *id < first)..self.ids.partition_point(|id| *id <= last)
    }

    /// The contacts of the node at `own`.
    fn contacts(&self, own: usize) -> Vec<usize> {
        let mut contacts = Vec::new();
        for bits in 0..u64::BITS {
            let bucket = self.bucket(own, bits);
            if bucket.len() <= self.copies {
                contacts.extend(bucket);
            } else {
                let drawn = (0..self.copies as u64)
                    .map(|draw| mix(self.seed ^ ((own as u64) << 8), (u64::from(bits) << 32) | draw));
                contacts.extend(drawn.map(|number| bucket.start + number as usize % bucket.len()));
            }
        }
        contacts
    }

    /// Nodes asked and rounds needed to find the closest nodes to `key` from the node at `start` on.
    fn look_up(&self, start: usize, key: u64, parallel: usize) -> (usize, usize) {
        let closest = |own: usize| {
            let mut known: Vec<(u64, usize)> =
                self.contacts(own).into_iter().map(|contact| (self.ids[contact] ^ key, contact)).collect();
            known.sort_unstable();
            known.dedup();
            known.truncate(self.copies);
            known
        };
        let mut heard: BTreeSet<(u64, usize)> = closest(start).into_iter().collect();
        let mut asked: BTreeSet<usize> = BTreeSet::from([start]);
        let (mut count, mut rounds) = (0, 0);
        loop {
            let next: Vec<usize> = heard
                .iter()
                .take(self.copies)
                .map(|(_, node)| *node)
                .filter(|node| !asked.contains(node))
                .take(parallel)
                .collect();
            if next.is_empty() {
                return (count, rounds);
            }
            rounds += 1;
            for node in next {
                asked.insert(node);
                count += 1;
                heard.extend(closest(node));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DhtShape = DhtShape { copies: 20, parallel: 3 };

    #[test]
    fn a_look_up_costs_little_more_in_a_large_grid() {
        let small = measure(100, SHAPE, 1);
        let large = measure(10_000, SHAPE, 1);
        assert!((19.0..40.0).contains(&small.asked), "{small:?}");
        assert!(large.asked > small.asked && large.asked < 1.5 * small.asked, "{small:?} {large:?}");
        assert!(large.buckets > small.buckets + 4.0, "{small:?} {large:?}");
        assert!(measure(1, SHAPE, 1).asked < 1.0);
    }

    #[test]
    fn buckets_part_the_nodes() {
        let ids: BTreeSet<u64> = (0..50).map(|index| mix(3, index)).collect();
        let ids = Ids { ids: ids.into_iter().collect(), seed: 3, copies: 20 };
        for own in 0..50 {
            let mut all: Vec<usize> = (0..u64::BITS).flat_map(|bits| ids.bucket(own, bits)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..50).filter(|other| *other != own).collect::<Vec<_>>());
        }
    }
}
