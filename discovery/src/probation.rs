//! Neighbours that have just come, and what they say that has to wait until they have behaved for a while. Pure.
//!
//! An attacker that comes under fresh identities is banned within moments. But what it made up until then would be
//! checked, believed and passed on by everybody, who would then try to reach sites that do not exist; and each of its
//! identities would enter the routing tables of the DHT, which makes nodes of a small grid look around anew. So such
//! messages and addresses wait until their bringer has been a neighbour for a while, and are forgotten when it goes or is
//! banned before; an honest one's come a moment later. Invariant: at most [`MESSAGES_PER_PEER_MAX`] messages of one
//! neighbour and [`BYTES_MAX`] bytes of all wait, and only of those that are connected.

use std::collections::BTreeMap;

use broker::time::Millis;
use libp2p::{Multiaddr, PeerId};

/// Messages of one neighbour that wait: what it may bring of newcomers in ten seconds.
const MESSAGES_PER_PEER_MAX: usize = 64;
/// Bytes of all that wait; one large site's advert has a quarter of it.
const BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
struct Newcomer {
    over_at: Millis,
    /// How many of its messages wait.
    waiting: usize,
    /// Where it listens, as it says.
    addresses: Vec<Multiaddr>,
}

#[derive(Debug)]
struct Waiting<T> {
    from: PeerId,
    message: T,
    bytes: usize,
}

/// The neighbours on probation, and what they said.
#[derive(Debug)]
pub(crate) struct Probation<T> {
    lasts: Millis,
    newcomers: BTreeMap<PeerId, Newcomer>,
    /// By the time when the probation of their bringer is over, then in the order in which they came.
    waiting: BTreeMap<(Millis, u64), Waiting<T>>,
    came: u64,
    bytes: usize,
}

impl<T> Probation<T> {
    /// Everybody is on probation for the time that it `lasts`.
    pub(crate) fn new(lasts: Millis) -> Probation<T> {
        Probation { lasts, newcomers: BTreeMap::new(), waiting: BTreeMap::new(), came: 0, bytes: 0 }
    }

    /// Notes a neighbour that was not connected before.
    pub(crate) fn begins(&mut self, peer: PeerId, now: Millis) {
        self.newcomers.insert(peer, Newcomer { over_at: now + self.lasts, waiting: 0, addresses: Vec::new() });
    }

    /// Notes where a neighbour listens; false when it is not on probation.
    pub(crate) fn listens_at(&mut self, peer: &PeerId, addresses: &[Multiaddr]) -> bool {
        let newcomer = self.newcomers.get_mut(peer);
        newcomer.map(|newcomer| newcomer.addresses = addresses.to_vec()).is_some()
    }

    /// The neighbours whose probation is over since this was asked last, and where they listen.
    pub(crate) fn over(&mut self, now: Millis) -> Vec<(PeerId, Vec<Multiaddr>)> {
        let is_over = |_: &PeerId, newcomer: &mut Newcomer| newcomer.over_at <= now && newcomer.waiting == 0;
        self.newcomers.extract_if(.., is_over).map(|(peer, newcomer)| (peer, newcomer.addresses)).collect()
    }

    /// Forgets a neighbour that has gone or was banned, and what it said.
    pub(crate) fn ends(&mut self, peer: &PeerId) {
        if self.newcomers.remove(peer).is_some_and(|newcomer| newcomer.waiting > 0) {
            self.waiting.retain(|_, waiting| waiting.from != *peer);
            self.bytes = self.waiting.values().map(|waiting| waiting.bytes).sum();
        }
    }

    /// Whether the neighbour is new.
    pub(crate) fn is_on(&self, peer: &PeerId, now: Millis) -> bool {
        self.newcomers.get(peer).is_some_and(|newcomer| newcomer.over_at > now)
    }

    /// Keeps a message of a neighbour that is new.
    ///
    /// # Errors
    /// The message, when there is no room for it.
    pub(crate) fn keep(&mut self, from: PeerId, message: T, bytes: usize) -> Result<(), T> {
        let Some(newcomer) = self.newcomers.get_mut(&from) else { return Err(message) };
        if newcomer.waiting >= MESSAGES_PER_PEER_MAX || self.bytes + bytes > BYTES_MAX {
            return Err(message);
        }
        newcomer.waiting += 1;
        self.bytes += bytes;
        self.came += 1;
        self.waiting.insert((newcomer.over_at, self.came), Waiting { from, message, bytes });
        Ok(())
    }

    /// When the next message has waited for long enough.
    pub(crate) fn due(&self) -> Option<Millis> {
        self.waiting.keys().next().map(|(over_at, _)| *over_at)
    }

    /// The next message that has waited for long enough, and who brought it.
    pub(crate) fn take(&mut self, now: Millis) -> Option<(PeerId, T)> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let Waiting { from, message, bytes } = first.remove();
        self.bytes -= bytes;
        if let Some(newcomer) = self.newcomers.get_mut(&from) {
            newcomer.waiting -= 1;
        }
        Some((from, message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LASTS: Millis = Millis(1_000);

    #[test]
    fn what_a_newcomer_says_waits_and_goes_with_it() {
        let mut probation = Probation::new(LASTS);
        let (good, bad) = (PeerId::random(), PeerId::random());
        probation.begins(good, Millis(0));
        probation.begins(bad, Millis(100));
        let address: Multiaddr = "/ip4/192.0.2.1/tcp/1".parse().unwrap();
        assert!(probation.listens_at(&good, std::slice::from_ref(&address)) && probation.listens_at(&bad, &[]));
        assert!(!probation.listens_at(&PeerId::random(), &[]), "it was here before");
        for (who, says) in [(bad, "lie"), (good, "news"), (good, "more")] {
            assert_eq!(probation.keep(who, says, 1), Ok(()));
        }
        assert_eq!((probation.due(), probation.take(Millis(999))), (Some(LASTS), None));
        probation.ends(&bad);
        assert_eq!(probation.take(LASTS), Some((good, "news")));
        assert!(probation.over(LASTS).is_empty(), "what it said comes first");
        assert_eq!(probation.take(LASTS), Some((good, "more")));
        assert_eq!(probation.over(Millis(999)), []);
        assert_eq!(probation.over(LASTS), [(good, vec![address])]);
        assert_eq!(probation.over(LASTS), []);
        assert_eq!((probation.take(Millis(9_999)), probation.due(), probation.bytes), (None, None, 0));
        assert!(!probation.is_on(&good, LASTS) && !probation.is_on(&bad, Millis(100)));
    }

    #[test]
    fn there_is_room_for_so_many_messages_and_bytes() {
        let mut probation = Probation::new(LASTS);
        let peers = [(); 9].map(|()| PeerId::random());
        peers.iter().for_each(|peer| probation.begins(*peer, Millis(0)));
        let kept = (0..100).filter(|_| probation.keep(peers[0], (), 1).is_ok()).count();
        assert_eq!(kept, MESSAGES_PER_PEER_MAX);
        let large = BYTES_MAX / 4;
        assert_eq!(peers[1..].iter().filter(|peer| probation.keep(**peer, (), large).is_ok()).count(), 3);
        assert!(probation.keep(PeerId::random(), (), 1).is_err(), "only neighbours");
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list(steps in proptest::collection::vec((0_u64..300, 0_usize..4, 0_u8..4), 1..200)) {
            let peers = [(); 4].map(|()| PeerId::random());
            let mut probation = Probation::new(LASTS);
            // Since when each is a neighbour, and what waits: when it is due, who brought it, which one it is.
            let mut since: [Option<u64>; 4] = [None; 4];
            let mut plain: Vec<(u64, usize, usize)> = Vec::new();
            let mut now = 0;
            for (number, (gap, who, what)) in steps.into_iter().enumerate() {
                now += gap;
                plain.sort_by_key(|(due, _, _)| *due);
                while plain.first().is_some_and(|(due, _, _)| *due <= now) {
                    let (_, from, message) = plain.remove(0);
                    prop_assert_eq!(probation.take(Millis(now)), Some((peers[from], message)));
                }
                prop_assert_eq!(probation.take(Millis(now)), None);
                let is_on = since[who].is_some_and(|since| now < since + LASTS.0);
                prop_assert_eq!(probation.is_on(&peers[who], Millis(now)), is_on);
                match (what, since[who]) {
                    (0, None) => {
                        probation.begins(peers[who], Millis(now));
                        since[who] = Some(now);
                    }
                    (1, _) => {
                        probation.ends(&peers[who]);
                        since[who] = None;
                        plain.retain(|(_, from, _)| *from != who);
                    }
                    (_, Some(since)) if is_on => {
                        prop_assert_eq!(probation.keep(peers[who], number, 10), Ok(()));
                        plain.push((since + LASTS.0, who, number));
                    }
                    _ => {}
                }
                prop_assert_eq!(probation.bytes, 10 * plain.len());
            }
        }
    }
}
