//! Reunion after a cut: gossip favours some of the peers that were cut off and are back, until one is in its mesh.
//!
//! When the network is cut, each side makes its mesh whole out of its own nodes. Gossipsub looks for new neighbours only when it
//! has too few, so once the network is whole again nothing would join the two meshes: changes of the other side would be
//! known only when they are fetched. A node favours two of several peers
//! that came back, until one of them is in its mesh.
//!
//! Invariant: at most [`FAVOURED_MAX`] peers are favoured at a time, and only such as were lost and came back within
//! [`BACK_LATELY`]; a few peers that come back are left to find their own neighbours, as after a restart. So a peer that comes
//! and goes gains no more than by grafting itself, and what is remembered is bounded.

use std::collections::{BTreeMap, BTreeSet};

use broker::time::Millis;
use libp2p::PeerId;
use rand::seq::IteratorRandom as _;

/// For how long a peer counts as back.
const BACK_LATELY: Millis = Millis(60_000);
/// Peers that are remembered as back.
const REMEMBERED_MAX: usize = 256;
/// Peers that are favoured at a time.
const FAVOURED_MAX: usize = 2;
/// For how long a peer is favoured before another one is tried, unless one gets into the mesh.
const FAVOURED_FOR: Millis = Millis(10_000);

/// Peers that were lost and are back; [`crate::health`] knows which are lost.
#[derive(Debug, Default)]
pub(crate) struct Reunion {
    back: BTreeMap<PeerId, Millis>,
    favoured: BTreeSet<PeerId>,
    favoured_until: Millis,
}

/// Peers that gossip favours from now on, and those that it favours no more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Favour {
    pub(crate) given: BTreeSet<PeerId>,
    pub(crate) taken: BTreeSet<PeerId>,
}

impl Reunion {
    /// Notes a connection with a peer that was lost.
    pub(crate) fn back(&mut self, peer: PeerId, now: Millis) {
        self.back.insert(peer, now);
        if self.back.len() > REMEMBERED_MAX {
            let oldest = self.back.iter().min_by_key(|(_, since)| **since).map(|(peer, _)| *peer);
            oldest.and_then(|oldest| self.back.remove(&oldest));
        }
    }

    /// Chooses the peers to favour, when at least `several` are back and none of them is in the mesh.
    pub(crate) fn choose(&mut self, several: usize, mesh: &BTreeSet<PeerId>, now: Millis) -> Favour {
        self.back.retain(|_, since| *since + BACK_LATELY > now);
        let is_joined = self.back.keys().any(|peer| mesh.contains(peer));
        if !self.favoured.is_empty() && !is_joined && now < self.favoured_until {
            return Favour::default();
        }
        let taken = std::mem::take(&mut self.favoured);
        if !is_joined && self.back.len() >= several {
            let others = self.back.keys().filter(|peer| !taken.contains(peer)).copied();
            self.favoured = others.sample(&mut rand::rng(), FAVOURED_MAX).into_iter().collect();
            self.favoured_until = now + FAVOURED_FOR;
        }
        Favour { given: self.favoured.clone(), taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(count: usize) -> Vec<PeerId> {
        (0..count).map(|_| PeerId::random()).collect()
    }

    /// All of them are back.
    fn back(peers: &[PeerId], now: Millis) -> Reunion {
        let mut reunion = Reunion::default();
        peers.iter().for_each(|peer| reunion.back(*peer, now));
        reunion
    }

    #[test]
    fn two_that_are_back_are_favoured_until_one_is_in_the_mesh() {
        let (all, nobody) = (peers(4), BTreeSet::new());
        let mut reunion = back(&all, Millis(1_000));
        let first = reunion.choose(4, &nobody, Millis(1_000));
        assert!(first.given.len() == FAVOURED_MAX && first.given.iter().all(|peer| all.contains(peer)));
        assert_eq!(reunion.choose(4, &nobody, Millis(10_999)), Favour::default());
        let second = reunion.choose(4, &nobody, Millis(11_000));
        assert!(second.taken == first.given && second.given.is_disjoint(&first.given), "none came into the mesh");
        let mesh = BTreeSet::from([all[0]]);
        assert_eq!(reunion.choose(4, &mesh, Millis(12_000)), Favour { taken: second.given, given: BTreeSet::new() });
        assert_eq!(reunion.choose(4, &mesh, Millis(13_000)), Favour::default());
    }

    #[test]
    fn a_few_that_are_back_are_not_favoured() {
        let (all, nobody) = (peers(4), BTreeSet::new());
        assert_eq!(back(&all[..3], Millis(0)).choose(4, &nobody, Millis(0)), Favour::default());
        assert_eq!(back(&all, Millis(0)).choose(4, &nobody, BACK_LATELY), Favour::default(), "long ago");
    }

    #[test]
    fn little_is_remembered() {
        let mut reunion = back(&peers(2 * REMEMBERED_MAX), Millis(5));
        assert_eq!(reunion.back.len(), REMEMBERED_MAX);
        reunion.choose(4, &BTreeSet::new(), BACK_LATELY + Millis(5));
        assert_eq!(reunion.back.len(), 0);
    }
}
