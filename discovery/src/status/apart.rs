//! Peers of the grid that speak another version of the protocol, so that people hear of it. Invariant: at most [`PEERS_MAX`] are
//! remembered, each for [`REMEMBERED`] after it was last met.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::{ids::SiteId, time::Millis};
use libp2p::PeerId;

use crate::identity::site_of_peer;

const PEERS_MAX: usize = 64;
const REMEMBERED: Millis = Millis(3_600_000);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Apart(Mutex<BTreeMap<PeerId, Words>>);

/// Which program is too old.
#[derive(Debug)]
struct Words {
    text: String,
    heard: Millis,
}

impl Apart {
    /// Notes what is said of a peer that was met, nothing when it is understood; true when that is news.
    pub(crate) fn note(&self, peer: PeerId, words: Option<String>, now: Millis) -> bool {
        let mut peers = self.peers();
        peers.retain(|_, words| now - words.heard < REMEMBERED);
        let Some(text) = words else {
            peers.remove(&peer);
            return false;
        };
        let is_news = peers.get(&peer).is_none_or(|known| known.text != text);
        if peers.len() < PEERS_MAX || peers.contains_key(&peer) {
            peers.insert(peer, Words { text, heard: now });
        }
        is_news
    }

    /// All that are remembered, with what is said of them.
    pub(crate) fn told(&self, now: Millis) -> Vec<(SiteId, String)> {
        let peers = self.peers();
        let lately = peers.iter().filter(|(_, words)| now - words.heard < REMEMBERED);
        lately.filter_map(|(peer, words)| Some((site_of_peer(peer)?, words.text.clone()))).collect()
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<PeerId, Words>> {
        // The map is valid after every single operation, so a panic elsewhere does not make it worthless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_told_once_and_remembered_for_a_while() {
        let (apart, peer) = (Apart::default(), PeerId::random());
        let note = |words: Option<&str>, now| apart.note(peer, words.map(str::to_owned), Millis(now));
        assert!(note(Some("too old"), 0) && !note(Some("too old"), 5));
        assert_eq!(apart.told(Millis(10)).len(), 1);
        assert!(!note(None, 20) && apart.told(Millis(20)).is_empty(), "it runs another program now");
        assert!(note(Some("too old"), 30));
        assert!(apart.told(Millis(30) + REMEMBERED).is_empty());
        for _ in 0..2 * PEERS_MAX {
            apart.note(PeerId::random(), Some("too old".to_owned()), Millis(40));
        }
        assert_eq!(apart.told(Millis(41)).len(), PEERS_MAX);
    }
}
