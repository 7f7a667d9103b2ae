//! Whose turn it is to test the link to this site.
//!
//! Invariant: one peer gets one turn in [`PEER_EVERY`], all peers together [`TURNS_MAX`] in [`WITHIN`].

use std::collections::VecDeque;

use broker::time::Millis;
use libp2p::PeerId;

/// Between two turns of the same peer.
const PEER_EVERY: Millis = Millis(60_000);
/// Turns of all peers within [`WITHIN`]: at most 2 GiB an hour.
const TURNS_MAX: usize = 30;
const WITHIN: Millis = Millis(3_600_000);

/// The turns of the last hour, oldest first.
#[derive(Debug, Default)]
pub(super) struct Turns(VecDeque<(Millis, PeerId)>);

impl Turns {
    /// Takes a turn for a peer.
    ///
    /// # Errors
    /// How long it has to wait for one.
    pub(super) fn take(&mut self, peer: PeerId, now: Millis) -> Result<(), Millis> {
        while self.0.front().is_some_and(|(at, _)| *at + WITHIN <= now) {
            self.0.pop_front();
        }
        let own = self.0.iter().rev().find(|(_, known)| *known == peer).map(|(at, _)| *at + PEER_EVERY);
        let all = self.0.front().filter(|_| self.0.len() >= TURNS_MAX).map(|(at, _)| *at + WITHIN);
        let free = own.max(all).filter(|free| *free > now);
        if let Some(free) = free {
            return Err(free - now);
        }
        self.0.push_back((now, peer));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_and_all_together_get_so_many() {
        let (mut turns, peer) = (Turns::default(), PeerId::random());
        assert_eq!(turns.take(peer, Millis(0)), Ok(()));
        assert_eq!(turns.take(peer, Millis(10_000)), Err(Millis(50_000)));
        assert_eq!(turns.take(peer, Millis(60_000)), Ok(()));
        let others = (0..100).filter(|_| turns.take(PeerId::random(), Millis(61_000)).is_ok()).count();
        assert_eq!(others, TURNS_MAX - 2);
        assert_eq!(turns.take(PeerId::random(), Millis(3_599_999)), Err(Millis(1)));
        assert_eq!(turns.take(peer, Millis(3_600_000)), Ok(()), "the first one is forgotten");
        assert_eq!(turns.0.len(), TURNS_MAX);
    }
}
