//! Peers that were cut off and are back: which of them gossip is to take into its mesh.
//!
//! When the network is cut, each side makes its mesh whole out of its own nodes. Gossipsub looks for new neighbours only when it
//! has too few, so once the network is whole again nothing would join the two meshes: changes of the other side would be
//! known only when they are asked for. A node that sees several peers come back of whom none is in its mesh favours two of
//! them, until one is.
//!
//! Invariant: at most [`FAVOURED_MAX`] peers are favoured at a time, and only such as were lost and came back within
//! [`BACK_LATELY`]; a few peers that come back are left to find their own neighbours, as after a restart. So whoever comes and
//! goes gains no more than by grafting itself, and what is remembered is bounded.

use std::collections::{BTreeMap, BTreeSet};

use broker::time::Millis;
use libp2p::PeerId;
use rand::seq::IteratorRandom as _;

/// For how long a peer counts as back.
const BACK_LATELY: Millis = Millis(60_000);
/// For how long it is remembered that a peer was lost: adverts are believed no longer by default.
const LOST_REMEMBERED: Millis = Millis(600_000);
/// Peers that are remembered, lost or back.
const REMEMBERED_MAX: usize = 256;
/// Peers that are favoured at a time.
const FAVOURED_MAX: usize = 2;
/// For how long they are, unless one gets into the mesh: others are tried then.
const FAVOURED_FOR: Millis = Millis(10_000);

/// Lost peers, and those that are back.
#[derive(Debug, Default)]
pub(super) struct Reunion {
    lost: BTreeMap<PeerId, Millis>,
    back: BTreeMap<PeerId, Millis>,
    favoured: BTreeSet<PeerId>,
    favoured_until: Millis,
}

/// Whom gossip is to favour from now on, and whom no more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Favour {
    pub(super) given: BTreeSet<PeerId>,
    pub(super) taken: BTreeSet<PeerId>,
}

impl Reunion {
    /// Notes that a peer does not answer any more.
    pub(super) fn lost(&mut self, peer: PeerId, now: Millis) {
        self.back.remove(&peer);
        remember(&mut self.lost, peer, now);
    }

    /// Notes that there is a connection with a peer; true when it was lost.
    pub(super) fn connected(&mut self, peer: PeerId, now: Millis) -> bool {
        let was_lost = self.lost.remove(&peer).is_some();
        if was_lost {
            remember(&mut self.back, peer, now);
        }
        was_lost
    }

    /// Chooses whom to favour, when at least `several` are back and none of them is in the mesh.
    pub(super) fn choose(&mut self, several: usize, mesh: &BTreeSet<PeerId>, now: Millis) -> Favour {
        self.lost.retain(|_, since| *since + LOST_REMEMBERED > now);
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

fn remember(peers: &mut BTreeMap<PeerId, Millis>, peer: PeerId, now: Millis) {
    peers.insert(peer, now);
    if peers.len() > REMEMBERED_MAX {
        let oldest = peers.iter().min_by_key(|(_, since)| **since).map(|(peer, _)| *peer);
        oldest.and_then(|oldest| peers.remove(&oldest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(count: usize) -> Vec<PeerId> {
        (0..count).map(|_| PeerId::random()).collect()
    }

    /// All of them, lost and back.
    fn back(peers: &[PeerId], now: Millis) -> Reunion {
        let mut reunion = Reunion::default();
        for peer in peers {
            reunion.lost(*peer, Millis(0));
            assert!(reunion.connected(*peer, now) && !reunion.connected(*peer, now));
        }
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
    fn a_few_that_are_back_or_that_were_never_lost_are_not_favoured() {
        let (all, nobody) = (peers(4), BTreeSet::new());
        assert_eq!(back(&all[..3], Millis(0)).choose(4, &nobody, Millis(0)), Favour::default());
        let mut strangers = Reunion::default();
        assert!(all.iter().all(|peer| !strangers.connected(*peer, Millis(0))));
        assert_eq!(strangers.choose(4, &nobody, Millis(0)), Favour::default());
        assert_eq!(back(&all, Millis(0)).choose(4, &nobody, BACK_LATELY), Favour::default(), "long ago");
    }

    #[test]
    fn little_is_remembered() {
        let mut reunion = back(&peers(2 * REMEMBERED_MAX), Millis(5));
        for peer in peers(2 * REMEMBERED_MAX) {
            reunion.lost(peer, Millis(6));
        }
        assert_eq!((reunion.lost.len(), reunion.back.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        reunion.choose(4, &BTreeSet::new(), LOST_REMEMBERED + Millis(6));
        assert_eq!((reunion.lost.len(), reunion.back.len()), (0, 0));
    }
}
