//! Releases that sites have not acknowledged, each repeated until its site acknowledges it or the limit of messages is reached.
//!
//! Invariant: a release that waits for other bookings of its attempt ([`Unsettled`]) is not sent. A participant that does not know
//! that its attempt was complete asks the others; one that had given its part back, and forgotten that in a crash, would answer
//! that the attempt never was.

use std::collections::{BTreeMap, BTreeSet};

use super::{NegotiationSettings, Owed};
use crate::{
    ids::SiteId,
    time::{Millis, Now},
};

/// Wait before a confirm is repeated that got no answer, and before a release is repeated.
pub(super) const REPEAT_AFTER: Millis = Millis(250);
/// Longest wait between two repetitions of a release.
const REPEAT_AT_MOST: Millis = Millis(60_000);

/// A booking: the number of its attempt, and its site.
pub(super) type BookingKey = (u32, SiteId);

/// Bookings that stay, of attempts of which others are owed a release, and whose sites have not reported that they know the attempt
/// to have been complete.
pub(super) type Unsettled = BTreeSet<BookingKey>;

#[derive(Debug, Clone, Copy)]
struct Release {
    /// Messages sent so far.
    sent: u32,
    next_at: Millis,
    /// Its site has not acknowledged this node as coordinator yet: the attempt was taken over.
    needs_takeover: bool,
}

impl Release {
    fn is_withheld(&self, attempt: u32, unsettled: &Unsettled) -> bool {
        !self.needs_takeover && unsettled.iter().any(|(of, _)| *of == attempt)
    }

    fn wait(&self) -> Millis {
        Millis((REPEAT_AFTER.0 << self.sent.min(16)).min(REPEAT_AT_MOST.0))
    }
}

/// The releases that are owed.
#[derive(Debug, Default)]
pub(super) struct Releases(BTreeMap<BookingKey, Release>);

impl Releases {
    /// Adds a release, due at once.
    pub(super) fn add(&mut self, now: Now, key: BookingKey, needs_takeover: bool) {
        self.0.insert(key, Release { sent: 0, next_at: now.monotonic, needs_takeover });
    }

    /// Whether every release was acknowledged or given up.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this release is owed.
    pub(super) fn contains(&self, key: &BookingKey) -> bool {
        self.0.contains_key(key)
    }

    /// The bookings whose release is owed.
    pub(super) fn keys(&self) -> impl Iterator<Item = &BookingKey> {
        self.0.keys()
    }

    /// The same, as they are kept on disk.
    pub(super) fn owed(&self) -> Vec<Owed> {
        self.keys().map(|(attempt, site)| Owed { site: site.clone(), attempt: *attempt }).collect()
    }

    /// When the next one is due.
    pub(super) fn next_at(&self, unsettled: &Unsettled) -> Option<Millis> {
        let sendable = self.0.iter().filter(|(key, release)| !release.is_withheld(key.0, unsettled));
        sendable.map(|(_, release)| release.next_at).min()
    }

    /// Puts all of them off until `at` at the earliest.
    pub(super) fn postpone(&mut self, at: Millis) {
        self.0.values_mut().for_each(|release| release.next_at = release.next_at.max(at));
    }

    /// Gives up those that are due and were sent often enough; true when these were the last.
    pub(super) fn give_up(&mut self, now: Now, settings: &NegotiationSettings) -> bool {
        let before = self.0.len();
        self.0.retain(|_, release| release.sent < settings.max_releases || release.next_at > now.monotonic);
        self.0.len() < before && self.0.is_empty()
    }

    /// Takes those that are to be sent now; each is due again after a wait that doubles.
    pub(super) fn take_due(
        &mut self,
        now: Now,
        unsettled: &Unsettled,
        settings: &NegotiationSettings,
    ) -> Vec<BookingKey> {
        let is_due = |(key, release): &(&BookingKey, &mut Release)| {
            release.next_at <= now.monotonic && !release.is_withheld(key.0, unsettled)
        };
        let due = self.0.iter_mut().filter(is_due).map(|(key, release)| {
            let wait = release.wait();
            release.sent += 1;
            release.next_at = now.monotonic + settings.answer_timeout + wait;
            key.clone()
        });
        due.collect()
    }

    /// Notes that no answer came: the release is repeated soon.
    pub(super) fn unanswered(&mut self, now: Now, key: &BookingKey) {
        if let Some(release) = self.0.get_mut(key) {
            release.next_at = release.next_at.min(now.monotonic + release.wait());
        }
    }

    /// Notes that a site has acknowledged this node as coordinator; true when its release, which waited for that, is due now.
    pub(super) fn taken_over(&mut self, now: Now, key: &BookingKey) -> bool {
        let release = self.0.get_mut(key).filter(|release| release.needs_takeover);
        release.map(|release| (release.needs_takeover, release.next_at) = (false, now.monotonic)).is_some()
    }

    /// Notes that a site has acknowledged its release; true when it was the last.
    pub(super) fn acknowledged(&mut self, key: &BookingKey) -> bool {
        self.0.remove(key).is_some() && self.0.is_empty()
    }
}
