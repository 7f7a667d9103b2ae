//! Releases that sites have not acknowledged, each repeated until its site acknowledges it or the limit of messages is reached.
//!
//! Invariant: a release that waits for other bookings of its attempt ([`Unsettled`]) is not sent. A participant that does not know
//! that its attempt was complete asks the others; one that had given its part back, and forgotten that in a crash, would answer
//! that the attempt never was.

use std::collections::{BTreeMap, BTreeSet};

use super::{Due, Negotiation, NegotiationSettings, Output, Owed, Purpose, State};
use crate::{
    cost::Cost,
    ids::SiteId,
    protocol::{RefusalReason, SiteAnswer, SiteRequest, TakeOverStep},
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

impl Negotiation {
    /// The bookings that their attempts' releases wait for.
    pub(super) fn unsettled(&self) -> Unsettled {
        let reservation = self.record.reservation.as_ref().filter(|_| !matches!(self.state, State::Closed { .. }));
        let Some(reservation) = reservation.filter(|_| !self.releases.is_empty()) else { return Unsettled::new() };
        let is_owed = |attempt: u32| self.releases.keys().any(|(of, _)| *of == attempt);
        let kept = reservation.kept_bookings().into_iter();
        let unsettled = kept.filter(|booking| is_owed(booking.0) && !self.settled.contains(booking));
        // Until a takeover is complete, and so reported, what the former coordinator has reported stays as it is: a site that was silent
        // in the look-up may have a part of it.
        let taken_over = self.releases.keys().map(|(attempt, _)| *attempt);
        let taken_over = taken_over.filter(|attempt| self.record.taken_over.contains_key(attempt));
        let of_takeover = taken_over
            .flat_map(|attempt| self.record.unacknowledged.iter().map(move |(_, site)| (attempt, site.clone())));
        unsettled.chain(of_takeover).collect()
    }

    /// Notes that `sites` are owed the release of an attempt, until they have acknowledged it.
    pub(super) fn owe(&mut self, now: Now, attempt: u32, sites: impl IntoIterator<Item = SiteId>) {
        let needs_takeover = self.record.taken_over.contains_key(&attempt);
        for site in sites {
            let due = self.due_of(attempt, &site);
            self.note_due(due);
            self.releases.add(now, (attempt, site), needs_takeover);
        }
    }

    /// The release of an attempt of this node. That of an attempt that was taken over is a takeover that aborts, under the name
    /// that its site knows; while other bookings of that attempt are not settled, the site only learns who coordinates it.
    pub(super) fn release_message(&self, site: &SiteId, attempt: u32) -> Output {
        let is_settled = self.unsettled().iter().all(|(of, _)| *of != attempt);
        let step = if is_settled { TakeOverStep::Abort } else { TakeOverStep::Prepare };
        let takeover = self.takeover_message(attempt, step);
        Output::Ask {
            site: site.clone(),
            attempt,
            purpose: Purpose::Release,
            request: takeover.unwrap_or_else(|| SiteRequest::Release(self.attempt_id(attempt))),
            timeout: self.settings.answer_timeout,
        }
    }

    /// Gives up releases that were repeated often enough, and sends those that are due.
    pub(super) fn repeat_releases(&mut self, now: Now) {
        if self.releases.give_up(now, &self.settings) {
            self.persist(self.record.decision.clone());
        }
        self.send_releases(now);
    }

    pub(super) fn send_releases(&mut self, now: Now) {
        let unsettled = self.unsettled();
        for (attempt, site) in self.releases.take_due(now, &unsettled, &self.settings) {
            self.outputs.push_back(self.release_message(&site, attempt));
        }
    }

    pub(super) fn on_release_answer(
        &mut self,
        now: Now,
        site: &SiteId,
        attempt: u32,
        answer: &Result<SiteAnswer, String>,
    ) {
        let key = (attempt, site.clone());
        let is_taken_over = self.record.taken_over.contains_key(&attempt);
        match answer {
            // To the release of an attempt of this node this is no answer.
            Ok(SiteAnswer::Booked { seats, before, others, charged, .. }) if is_taken_over => {
                self.notify_former_coordinator(now, attempt, before.as_ref());
                self.claim_unreported(now, site, others);
                if seats.is_empty() {
                    self.on_released(&key, Some(*charged));
                } else if self.releases.taken_over(now, &key) {
                    self.send_releases(now);
                }
            }
            Ok(SiteAnswer::Refused(refusal)) if matches!(refusal.reason, RefusalReason::HandedOver(_)) => {
                self.on_released(&key, None);
                self.yields_to(now, refusal);
            }
            // The site has nothing of an attempt that was taken over, so it does not know the attempt's coordinator.
            Ok(SiteAnswer::Refused(refusal)) if refusal.reason == RefusalReason::NotYours => {
                self.on_released(&key, None);
            }
            Ok(SiteAnswer::Released { charged, .. }) => self.on_released(&key, Some(*charged)),
            _ => self.releases.unanswered(now, &key),
        }
    }

    fn on_released(&mut self, key: &BookingKey, charged: Option<Cost>) {
        let is_new = charged.is_some_and(|charged| self.note_charged(key, charged));
        // Nothing is owed for it, so nothing needs to be proven.
        if charged.is_some_and(|charged| charged.is_zero()) {
            self.record.drop_receipt(key);
        }
        if self.releases.acknowledged(key) || is_new {
            self.persist(self.record.decision.clone());
        }
    }

    /// See [`RequestRecord::due_of`](super::RequestRecord); also of an attempt that is being confirmed.
    fn due_of(&self, attempt: u32, site: &SiteId) -> Option<Due> {
        match &self.state {
            State::Confirming { plan, .. } if attempt == self.record.last_attempt => {
                Due::of((attempt, site), plan.seats.iter().filter(|seat| seat.site == *site))
            }
            _ => self.record.due_of(attempt, site),
        }
    }

    /// Notes that a booking is given back, or may be.
    pub(super) fn note_due(&mut self, due: Option<Due>) {
        let Some(due) = due else { return };
        if !self.record.dues.iter().any(|known| (known.attempt, &known.site) == (due.attempt, &due.site)) {
            self.record.dues.push(due);
        }
    }

    /// Notes what a site charges for a booking that it has given back: no more than was agreed. True when that is new.
    pub(super) fn note_charged(&mut self, (attempt, site): &BookingKey, charged: Cost) -> bool {
        let due = self.record.dues.iter_mut().find(|due| due.attempt == *attempt && due.site == *site);
        let Some(due) = due.filter(|due| !due.is_final) else { return false };
        (due.cost, due.is_final) = (charged.min(due.cost), true);
        true
    }
}
