//! The bundler: schedule updates that this node passes on, kept until its next bundle goes to the neighbours. Pure.
//!
//! A node does not pass every update on by itself: it collects those that it received and its own, and sends all of them
//! in one message, at a bounded [`Pace`]. What gossip costs a node so depends
//! on its neighbours and the interval, not on how many sites there are; only bytes and signatures grow with those.
//!
//! Invariants: an update whose signature was checked is noted, and is neither checked nor passed on again while it may
//! travel; at most `bytes_max` wait, and when there is more the oldest go: a receiver that misses them sees the gap and asks.

use std::collections::{BTreeSet, VecDeque};

use broker::{ids::SiteId, time::Millis};

use super::pace::Pace;
use crate::wire::bundle::{BUNDLE_BYTES_MAX, NAME_BYTES, append, bundled_bytes, empty};

/// Updates that wait to be passed on.
#[derive(Debug)]
pub struct Bundler {
    pace: Pace,
    bytes_max: usize,
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The name of the next bundle.
    name: u128,
    noted: Noted,
}

impl Bundler {
    /// An empty bundler, which sends one bundle an `interval` on average, of at most `bytes_max` waiting bytes. A noted update is
    /// known for at least `remembered`, or until `noted_max` others were noted. Bundles are numbered from `name`, a random number.
    #[must_use]
    pub fn new(interval: Millis, bytes_max: usize, (remembered, noted_max): (Millis, usize), name: u128) -> Bundler {
        let noted = Noted { life: remembered, each_max: noted_max.max(1), ..Noted::default() };
        Bundler { pace: Pace::new(interval), bytes_max, waiting: VecDeque::new(), bytes: 0, name, noted }
    }

    /// Whether the update with this number of `author` was noted.
    #[must_use]
    pub fn is_noted(&self, author: &SiteId, sequence: u64) -> bool {
        let update = (author.clone(), sequence);
        self.noted.present.contains(&update) || self.noted.past.contains(&update)
    }

    /// Notes an update of `author` whose signature was checked.
    pub fn note(&mut self, author: SiteId, sequence: u64, now: Millis) {
        let noted = &mut self.noted;
        if now - noted.since >= noted.life || noted.present.len() >= noted.each_max {
            noted.past = std::mem::take(&mut noted.present);
            noted.since = now;
        }
        noted.present.insert((author, sequence));
    }

    /// Adds an envelope to the next bundles; returns how many older ones were dropped for it.
    pub fn push(&mut self, envelope: Vec<u8>) -> usize {
        self.bytes += bundled_bytes(envelope.len());
        self.waiting.push_back(envelope);
        let mut dropped = 0;
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.bytes -= bundled_bytes(oldest.len());
            dropped += 1;
        }
        dropped
    }

    /// When the next bundle may go; none when nothing waits.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        (!self.waiting.is_empty()).then_some(self.pace.due())
    }

    /// Takes the next bundle, oldest first, as much as fits.
    pub fn take(&mut self, now: Millis) -> Option<Vec<u8>> {
        let mut bundle = empty(self.name);
        while let Some(next) = self.waiting.front()
            && (bundle.len() == NAME_BYTES || bundle.len() + bundled_bytes(next.len()) <= BUNDLE_BYTES_MAX)
            && let Some(next) = self.waiting.pop_front()
        {
            self.bytes -= bundled_bytes(next.len());
            append(&mut bundle, &next);
        }
        if bundle.len() == NAME_BYTES {
            return None;
        }
        self.name = self.name.wrapping_add(1);
        self.pace.sent(now);
        Some(bundle)
    }
}

/// The noted updates, in two halves: the older half is dropped when the younger one is full or old.
#[derive(Debug, Default)]
struct Noted {
    life: Millis,
    each_max: usize,
    since: Millis,
    present: BTreeSet<(SiteId, u64)>,
    past: BTreeSet<(SiteId, u64)>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::pace::BURST, *};
    use crate::wire::bundle::{bundle_of, unbundle};

    fn bundler(bytes_max: usize) -> Bundler {
        Bundler::new(Millis(100), bytes_max, (Millis(1000), 8), 40)
    }

    proptest! {
        #[test]
        fn what_waits_comes_out_whole_in_order_and_in_bundles_that_are_not_too_large(
            sizes in proptest::collection::vec(1_usize..20_000, 1..40)
        ) {
            let envelopes: Vec<Vec<u8>> = sizes.iter().zip(0_u8..).map(|(size, number)| vec![number; *size]).collect();
            let mut bundler = bundler(usize::MAX);
            for envelope in &envelopes {
                prop_assert_eq!(bundler.push(envelope.clone()), 0);
            }
            let mut got = Vec::new();
            while let Some(bundle) = bundler.take(Millis(0)) {
                prop_assert!(bundle.len() <= BUNDLE_BYTES_MAX);
                got.extend(unbundle(&bundle).unwrap().into_iter().map(<[u8]>::to_vec));
            }
            prop_assert_eq!(got, envelopes);
            prop_assert_eq!((bundler.bytes, bundler.due()), (0, None));
        }

        #[test]
        fn only_whole_envelopes_are_a_bundle(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1_usize..10) {
            if let Some(envelopes) = unbundle(&bytes) {
                let mut again = bytes[..NAME_BYTES].to_vec();
                envelopes.iter().for_each(|envelope| append(&mut again, envelope));
                prop_assert_eq!(again, bytes.clone());
            }
            let bundle = bundle_of(1, &[7; 20]);
            prop_assert_eq!(unbundle(&bundle[..bundle.len() - cut]), None);
            let with_nothing = [&bundle[..], &[0; 4]].concat();
            prop_assert_eq!(unbundle(&with_nothing), None);
        }

        #[test]
        fn above_the_limit_the_oldest_go(sizes in proptest::collection::vec(1_usize..50, 1..60)) {
            let mut bundler = bundler(200);
            let mut dropped = 0;
            for (number, size) in sizes.iter().enumerate() {
                dropped += bundler.push(vec![number as u8; *size]);
                prop_assert!(bundler.bytes <= 200);
                prop_assert_eq!(bundler.bytes, bundler.waiting.iter().map(|one| bundled_bytes(one.len())).sum::<usize>());
            }
            let kept: Vec<u8> = bundler.waiting.iter().map(|one| one[0]).collect();
            let expected: Vec<u8> = (dropped..sizes.len()).map(|number| number as u8).collect();
            prop_assert_eq!(kept, expected);
        }
    }

    #[test]
    fn some_bundles_go_at_once_after_a_quiet_time_and_then_one_an_interval() {
        let mut bundler = bundler(1000);
        assert_eq!(bundler.due(), None);
        for name in 40..40 + BURST {
            bundler.push(vec![1]);
            assert!(bundler.due() <= Some(Millis(50)));
            let expected = bundle_of(u128::from(name), &[1]);
            assert_eq!(bundler.take(Millis(50)), Some(expected), "the same content under another name");
        }
        bundler.push(vec![1]);
        assert_eq!(bundler.due(), Some(Millis(150)));
    }

    #[test]
    fn what_was_noted_is_known_for_its_life_and_little_is_kept() {
        let site = |number: usize| SiteId::new(&format!("s{number}")).unwrap();
        let mut bundler = bundler(1000);
        bundler.note(site(1), 5, Millis(0));
        assert!(bundler.is_noted(&site(1), 5) && !bundler.is_noted(&site(1), 6) && !bundler.is_noted(&site(2), 5));
        bundler.note(site(2), 1, Millis(1000));
        assert!(bundler.is_noted(&site(1), 5), "its life is over at the next turn");
        bundler.note(site(2), 2, Millis(2000));
        assert!(!bundler.is_noted(&site(1), 5) && bundler.is_noted(&site(2), 1));
        for number in 0..100 {
            bundler.note(site(3), number, Millis(2001));
        }
        assert!(bundler.noted.present.len() + bundler.noted.past.len() <= 16);
        assert!(bundler.is_noted(&site(3), 99));
    }
}
