//! How many streams are open, by peer.
//!
//! Invariant: a stream counts from before it is handed on until it is dropped.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use libp2p::PeerId;

/// Streams of one peer, in both directions. A connection has 256 streams, and direct requests take a part of them.
pub const STREAMS_PER_PEER_MAX: usize = 128;
/// Streams of all peers.
const STREAMS_MAX: usize = 512;

/// The streams that are open.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenStreams(Arc<Mutex<BTreeMap<PeerId, usize>>>);

/// One of them, as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenStream {
    of: PeerId,
    all: OpenStreams,
}

impl OpenStreams {
    /// Counts one more stream; none when the peer, or all together, have as many as there may be.
    pub(crate) fn take(&self, of: PeerId) -> Option<OpenStream> {
        let mut open = self.locked();
        let (all, known) = (open.values().sum::<usize>(), open.get(&of).copied().unwrap_or_default());
        if all >= STREAMS_MAX || known >= STREAMS_PER_PEER_MAX {
            return None;
        }
        open.insert(of, known + 1);
        Some(OpenStream { of, all: self.clone() })
    }

    /// Whether the peer has one.
    pub(crate) fn is_open_to(&self, peer: &PeerId) -> bool {
        self.locked().contains_key(peer)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<PeerId, usize>> {
        // What is behind the lock is valid after every single operation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.all.locked();
        match open.get_mut(&self.of) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_and_all_peers_have_so_many_and_what_ends_counts_no_longer() {
        let (open, peer) = (OpenStreams::default(), PeerId::random());
        let mut taken: Vec<OpenStream> = std::iter::from_fn(|| open.take(peer)).collect();
        assert_eq!(taken.len(), STREAMS_PER_PEER_MAX);
        drop(taken.pop());
        taken.push(open.take(peer).unwrap());
        while let Some(more) = open.take(PeerId::random()) {
            taken.push(more);
        }
        assert_eq!(taken.len(), STREAMS_MAX);
        assert!(open.is_open_to(&peer));
        drop(taken);
        assert!(!open.is_open_to(&peer) && open.locked().is_empty());
    }
}
