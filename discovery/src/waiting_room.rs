//! Where inbound connections wait before their handshake, when others from the same address have misbehaved.
//!
//! Whoever is banned comes back under a fresh identity, and each time costs a handshake, the first streams of every
//! protocol and what it says until it is banned again. So an address from which several were banned is guarded for a
//! while: its connections are let in one after the other, at a rate that the node can spare. The others wait, unread and
//! without any cryptography. Nobody is refused for being new, and somebody who waits for an answer cannot come back at
//! once; a refusal would only make him faster. Who is next is drawn by lot among those that wait, and who gives way when
//! the room is full as well, so an honest node has the same chance as everybody else, however they crowd. Addresses of
//! which nothing bad is known never wait, open connections stay, and those that this node opens itself do not come here.
//!
//! Invariants: from a guarded prefix `per_s` handshakes a second, no two of them closer than half of that; at most
//! [`WAITING_MAX`] wait for one prefix, each no longer than [`WAIT_MAX`]; at most [`PREFIXES_MAX`] prefixes are remembered,
//! at some 100 bytes each.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use broker::time::Millis;
use futures::{FutureExt as _, future::BoxFuture};
use libp2p::{
    Multiaddr, Transport,
    core::transport::{DialOpts, ListenerId, TransportError, TransportEvent},
};
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use crate::{
    clock::Clock,
    counters::{Counter, Counters},
    prefix::Prefix,
    rate::TokenBucket,
    shared::millis,
    transport::{BoxedTransport, DIAL_TIMEOUT},
};

/// Connections of one prefix that wait; when there are more, one of them gives way.
const WAITING_MAX: usize = 64;
/// How long one waits. The other side gives up after five seconds, the handshake included.
const WAIT_MAX: Millis = Millis(4_000);
const _: () = assert!(WAIT_MAX.0 as u128 + 1_000 <= DIAL_TIMEOUT.as_millis());
/// Prefixes that are remembered; above it those of which nothing bad was heard lately are forgotten, and no new ones noted.
const PREFIXES_MAX: usize = 4096;

/// Points that are forgiven at once, and in a second.
const FORGIVEN: u64 = 128;
const FORGIVEN_PER_S: u64 = 8;

/// What is held against an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A peer there was banned.
    Banned,
    /// A peer there did not say which grid it is of.
    Silent,
}

impl Trouble {
    /// Three bans in a short time are more than an address with one faulty node brings. Silence is also what a node is
    /// met with that starts among many others on a busy machine, so much of it is forgiven.
    fn points(self) -> u64 {
        match self {
            Trouble::Banned => FORGIVEN / 2,
            Trouble::Silent => 1,
        }
    }
}

/// How an address is guarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuardTerms {
    /// Handshakes a second.
    pub(crate) per_s: u32,
    /// For how long after the last trouble.
    pub(crate) lasts: Duration,
}

/// One prefix that was in trouble.
#[derive(Debug)]
struct Guard {
    forgiven: TokenBucket,
    until: Millis,
    /// When the next one is let in.
    turn_at: Millis,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Millis,
    /// Dropped, it sends the connection away.
    call: oneshot::Sender<()>,
}

/// All prefixes; pure but for the lots.
#[derive(Debug)]
struct Room {
    pause: Millis,
    lasts: Millis,
    guards: BTreeMap<Prefix, Guard>,
    /// Until when some prefix is guarded.
    until: Millis,
    /// When somebody is to be called or sent away next; none while nobody waits.
    due: Option<Millis>,
}

/// What becomes of a connection that comes.
#[derive(Debug)]
enum Entry {
    Straight,
    Waits(oneshot::Receiver<()>),
}

impl Room {
    fn new(terms: GuardTerms) -> Room {
        let pause = Millis((1000 / u64::from(terms.per_s.max(1))).max(1));
        Room { pause, lasts: millis(terms.lasts), guards: BTreeMap::new(), until: Millis(0), due: None }
    }

    fn note(&mut self, prefix: Prefix, trouble: Trouble, now: Millis) {
        if self.guards.len() >= PREFIXES_MAX && !self.guards.contains_key(&prefix) {
            self.guards.retain(|_, guard| guard.matters(now));
            if self.guards.len() >= PREFIXES_MAX {
                return;
            }
        }
        let fresh = || Guard {
            forgiven: TokenBucket::new(FORGIVEN_PER_S, FORGIVEN, now),
            until: Millis(0),
            turn_at: now,
            waiting: Vec::new(),
        };
        let guard = self.guards.entry(prefix).or_insert_with(fresh);
        if !guard.forgiven.take(trouble.points(), now) {
            guard.until = now + self.lasts;
            self.until = self.until.max(guard.until);
        }
    }

    /// Takes in a connection; how many were sent away for want of room.
    fn enter(&mut self, prefix: Prefix, now: Millis) -> (Entry, usize) {
        let Some(guard) = self.guards.get_mut(&prefix) else { return (Entry::Straight, 0) };
        if guard.waiting.is_empty() && (now >= guard.until || now >= guard.turn_at) {
            guard.turn_at = now + jittered(self.pause);
            return (Entry::Straight, 0);
        }
        let (call, called) = oneshot::channel();
        guard.forget_gone();
        guard.waiting.push(Waiting { since: now, call });
        let is_full = guard.waiting.len() > WAITING_MAX;
        if is_full {
            guard.draw();
        }
        self.due = Some(guard.due().min(self.due.unwrap_or(Millis(u64::MAX))));
        (Entry::Waits(called), usize::from(is_full))
    }

    /// Lets in those whose turn it is, and sends away who has waited for too long; how many.
    fn call(&mut self, now: Millis) -> usize {
        if self.due.is_none_or(|due| due > now) {
            return 0;
        }
        let mut sent_away = 0;
        for guard in self.guards.values_mut() {
            guard.forget_gone();
            let waited = guard.waiting.len();
            guard.waiting.retain(|waiting| now - waiting.since < WAIT_MAX);
            sent_away += waited - guard.waiting.len();
            if !guard.waiting.is_empty() && now >= guard.turn_at {
                // An error says that it has gone this moment.
                let _ = guard.draw().call.send(());
                guard.turn_at = now + jittered(self.pause);
            }
        }
        self.due = self.guards.values().filter(|guard| !guard.waiting.is_empty()).map(Guard::due).min();
        sent_away
    }
}

impl Guard {
    /// Those that have gone by themselves make room.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiting| !waiting.call.is_closed());
    }

    /// One of those that wait, of which there is one at least.
    fn draw(&mut self) -> Waiting {
        self.waiting.swap_remove(rand::random_range(0..self.waiting.len()))
    }

    fn due(&self) -> Millis {
        let first = self.waiting.iter().map(|waiting| waiting.since + WAIT_MAX).min();
        first.map_or(self.turn_at, |first| first.min(self.turn_at))
    }

    /// Whether forgetting it would change anything.
    fn matters(&mut self, now: Millis) -> bool {
        !self.waiting.is_empty() || now < self.until || !self.forgiven.is_full(now)
    }
}

/// A turn early or late, so that those who come to many nodes at once are not let in everywhere at the same moment.
fn jittered(pause: Millis) -> Millis {
    Millis(pause.0 / 2 + rand::random_range(0..=pause.0))
}

/// The room, shared by the transport, which has connections wait, and the gate, which hears who misbehaves.
#[derive(Debug, Clone)]
pub(crate) struct WaitingRoom {
    room: Arc<Mutex<Room>>,
    clock: Clock,
    counters: Arc<Counters>,
}

impl WaitingRoom {
    pub(crate) fn new(terms: GuardTerms, counters: Arc<Counters>) -> WaitingRoom {
        WaitingRoom { room: Arc::new(Mutex::new(Room::new(terms))), clock: Clock::starting_now(), counters }
    }

    /// Holds something against an address.
    pub(crate) fn note(&self, prefix: Prefix, trouble: Trouble) {
        self.room().note(prefix, trouble, self.clock.now());
    }

    /// Whether any address is guarded now.
    pub(crate) fn is_guarding(&self) -> bool {
        let until = self.room().until;
        self.clock.now() < until
    }

    /// Has the inbound connections of a transport wait.
    pub(crate) fn before(self, inner: BoxedTransport) -> Waited {
        Waited { inner, room: self, timer: None }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        // It is valid after every single operation, so a panic elsewhere does not spoil it.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, from: &Multiaddr) -> Entry {
        let Some(prefix) = Prefix::of(from) else { return Entry::Straight };
        let (entry, sent_away) = self.room().enter(prefix, self.clock.now());
        if matches!(entry, Entry::Waits(_)) {
            self.counters.count(Counter::ConnectionsWaited);
        }
        self.sent_away(sent_away);
        entry
    }

    /// Calls those whose turn it is; tells when to do so again.
    fn call(&self) -> Option<Millis> {
        let mut room = self.room();
        let sent_away = room.call(self.clock.now());
        let due = room.due;
        drop(room);
        self.sent_away(sent_away);
        due
    }

    fn sent_away(&self, count: usize) {
        if count > 0 {
            self.counters.add(Counter::ConnectionsRefusedWaiting, count as u64);
        }
    }
}

/// A transport whose inbound connections may have to wait.
pub(crate) struct Waited {
    inner: BoxedTransport,
    room: WaitingRoom,
    /// When somebody is to be called next.
    timer: Option<(Millis, Pin<Box<Sleep>>)>,
}

type Upgrade = <BoxedTransport as Transport>::ListenerUpgrade;

impl Transport for Waited {
    type Output = <BoxedTransport as Transport>::Output;
    type Error = io::Error;
    type ListenerUpgrade = BoxFuture<'static, io::Result<Self::Output>>;
    type Dial = <BoxedTransport as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<io::Error>> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Result<Self::Dial, TransportError<io::Error>> {
        self.inner.dial(address, options)
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        let this = &mut *self;
        let event = Pin::new(&mut this.inner).poll(context);
        if let Poll::Ready(event) = event {
            let entry = match &event {
                TransportEvent::Incoming { send_back_addr, .. } => this.room.enter(send_back_addr),
                _ => Entry::Straight,
            };
            return Poll::Ready(event.map_upgrade(|upgrade| when_called(entry, upgrade)));
        }
        while let Some(due) = this.room.call() {
            let timer = this.timer.take().filter(|(set_to, _)| *set_to == due);
            let pause = || Duration::from_millis((due - this.room.clock.now()).0.max(1));
            let (_, timer) = this.timer.insert(timer.unwrap_or_else(|| (due, Box::pin(sleep(pause())))));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.timer = None;
        }
        Poll::Pending
    }
}

fn when_called(entry: Entry, upgrade: Upgrade) -> BoxFuture<'static, io::Result<<Waited as Transport>::Output>> {
    match entry {
        Entry::Straight => upgrade,
        Entry::Waits(called) => async move {
            let sent_away = |_| io::Error::new(io::ErrorKind::ConnectionRefused, "no turn for a handshake");
            called.await.map_err(sent_away)?;
            upgrade.await
        }
        .boxed(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: GuardTerms = GuardTerms { per_s: 2, lasts: Duration::from_secs(30) };
    const SHORTEST_PAUSE: u64 = 250;

    fn at(address: &str) -> Prefix {
        Prefix::of(&format!("/ip4/{address}/tcp/1").parse().unwrap()).unwrap()
    }

    fn guarded(prefix: Prefix, now: Millis) -> Room {
        let mut room = Room::new(TERMS);
        (0..3).for_each(|_| room.note(prefix, Trouble::Banned, now));
        room
    }

    fn goes_straight(room: &mut Room, prefix: Prefix, now: Millis) -> bool {
        matches!(room.enter(prefix, now).0, Entry::Straight)
    }

    #[test]
    fn an_address_is_guarded_after_its_third_ban_and_for_a_while() {
        let (bad, good) = (at("192.0.2.1"), at("192.0.2.2"));
        let mut room = Room::new(TERMS);
        for ban in 0..3 {
            assert!((0..10).all(|_| goes_straight(&mut room, bad, Millis(1000))), "after {ban} bans");
            room.note(bad, Trouble::Banned, Millis(1000));
        }
        let Entry::Waits(mut called) = room.enter(bad, Millis(1001)).0 else { panic!("it is guarded") };
        assert!((0..10).all(|_| goes_straight(&mut room, good, Millis(1001))), "others are not affected");
        assert_eq!(room.call(Millis(1002)), 0);
        assert!(called.try_recv().is_err());
        assert_eq!(room.call(Millis(2000)), 0);
        assert_eq!(called.try_recv(), Ok(()));
        assert!((0..10).all(|_| goes_straight(&mut room, bad, Millis(31_000))), "for thirty seconds");
        let silent = (0..129).filter(|_| {
            room.note(good, Trouble::Silent, Millis(2000));
            !goes_straight(&mut room, good, Millis(2000))
        });
        assert_eq!(silent.count(), 1, "the others are forgiven");
    }

    #[test]
    fn who_waits_among_many_has_the_same_chance_as_they() {
        let bad = at("192.0.2.1");
        let mut room = guarded(bad, Millis(0));
        let (mut waiting, mut honest_called, mut called) = (Vec::new(), 0, 0);
        // Forty a second come, four of them honest, and two are called.
        for tick in 0..40_000_u64 {
            let now = Millis(tick * 25);
            room.note(bad, Trouble::Banned, now);
            if let Entry::Waits(call) = room.enter(bad, now).0 {
                waiting.push((tick % 10 == 0, call));
            }
            room.call(now);
            waiting.retain_mut(|(is_honest, call)| match call.try_recv() {
                Ok(()) => {
                    (called, honest_called) = (called + 1, honest_called + u32::from(*is_honest));
                    false
                }
                Err(oneshot::error::TryRecvError::Empty) => true,
                Err(oneshot::error::TryRecvError::Closed) => false,
            });
        }
        assert!((1500..=2500).contains(&called), "{called}");
        assert!((100..=350).contains(&honest_called), "a tenth, give or take: {honest_called} of {called}");
    }

    #[test]
    fn made_up_prefixes_are_remembered_only_so_many() {
        let mut room = Room::new(TERMS);
        for number in 0..2 * u32::try_from(PREFIXES_MAX).unwrap() {
            room.note(
                Prefix::of(&Multiaddr::from(std::net::Ipv4Addr::from_bits(number))).unwrap(),
                Trouble::Silent,
                Millis(0),
            );
        }
        assert_eq!(room.guards.len(), PREFIXES_MAX);
        room.note(at("192.0.2.1"), Trouble::Banned, Millis(60_000));
        assert_eq!(room.guards.len(), 1, "what is forgiven is forgotten");
    }

    proptest! {
        #[test]
        fn who_waits_is_called_at_the_rate_or_sent_away(steps in proptest::collection::vec((0_u64..400, 0_u8..4), 1..400)) {
            let (bad, good) = (at("192.0.2.1"), at("192.0.2.2"));
            let mut room = guarded(bad, Millis(0));
            let (mut now, mut let_in, mut sent_away) = (0, Vec::new(), 0);
            let mut waiting: Vec<(u64, oneshot::Receiver<()>)> = Vec::new();
            for (gap, what) in steps {
                now += gap;
                sent_away += room.call(Millis(now));
                let mut ended = 0;
                waiting.retain_mut(|(since, call)| match call.try_recv() {
                    Ok(()) => { let_in.push(now); false }
                    Err(oneshot::error::TryRecvError::Empty) => { assert!(now - *since < WAIT_MAX.0); true }
                    Err(oneshot::error::TryRecvError::Closed) => { ended += 1; false }
                });
                prop_assert_eq!(ended, std::mem::take(&mut sent_away));
                prop_assert!(room.due.is_some() || waiting.is_empty(), "nobody is forgotten");
                match what {
                    // Somebody gives up by himself.
                    0 => { waiting.pop(); }
                    1 => prop_assert!(goes_straight(&mut room, good, Millis(now))),
                    _ => {
                        room.note(bad, Trouble::Banned, Millis(now));
                        let (entry, given_way) = room.enter(bad, Millis(now));
                        sent_away += given_way;
                        match entry {
                            Entry::Straight => let_in.push(now),
                            Entry::Waits(call) => waiting.push((now, call)),
                        }
                    }
                }
                prop_assert!(room.guards[&bad].waiting.len() <= WAITING_MAX);
            }
            prop_assert!(let_in.is_sorted_by(|earlier, later| earlier + SHORTEST_PAUSE <= *later), "{:?}", let_in);
        }
    }
}
