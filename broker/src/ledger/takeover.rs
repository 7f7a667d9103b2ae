//! A request that another node coordinates from now on, because its user wants that.
//!
//! A takeover is a two-phase commit of its own: the new coordinator prepares every site of the reservation, then commits.
//!
//! Invariant: a node coordinates a booking of another entry point only if it shows the request, signed by the same user for that
//! node; of several such nodes, the one of the highest [`Term`] does.

use std::{collections::BTreeSet, sync::Arc};

use super::{Booking, BookingState, Books, Ledger, terms::Term};
use crate::{
    ids::{RequestId, SiteId},
    protocol::{AttemptId, FoundBooking, RefusalReason, SiteAnswer, TakeOverStep},
    time::Now,
    trust::{Authorization, Permit, SignedText},
};

/// Most bookings of one request that a site reports; a request has one an attempt, and few attempts are left.
const MAX_PARTS: usize = 64;

impl<B: Books> Ledger<B> {
    /// The node that coordinates an attempt: its entry point, or one that has taken it over.
    pub(super) fn coordinator_of<'a>(&'a self, attempt: &'a AttemptId) -> &'a SiteId {
        let taken_over = self.bookings.get(attempt).and_then(|booking| booking.coordinator.as_ref());
        taken_over.unwrap_or(&attempt.entry_point)
    }

    /// Whether the attempt was taken over, be it by its entry point once more.
    pub(super) fn is_taken_over(&self, attempt: &AttemptId) -> bool {
        self.bookings.get(attempt).is_some_and(|booking| booking.coordinator.is_some())
    }

    /// What shows that another node than the entry point coordinates the attempt, if one does.
    pub(super) fn authorization_of_coordinator(&self, attempt: &AttemptId) -> Option<Arc<SignedText>> {
        let booking = self.bookings.get(attempt).filter(|booking| booking.coordinator.is_some())?;
        booking.statement.clone()
    }

    /// The answer to a node that wants to take an attempt over while another coordinates the request in a higher term, which
    /// `signed` shows. None when the asking node coordinates this booking already: then it must be able to abort it.
    #[must_use]
    pub fn refusal_of_takeover(
        &self,
        attempt: &AttemptId,
        from: &SiteId,
        signed: Arc<SignedText>,
    ) -> Option<SiteAnswer> {
        let coordinator = self.bookings.get(attempt).and_then(|booking| booking.coordinator.as_ref());
        (coordinator != Some(from)).then(|| self.refusal(RefusalReason::HandedOver(signed)))
    }

    /// The bookings of a request here. Every node that knows the request's name may ask: it is 80 random bits.
    pub(super) fn on_lookup(&self, request: &RequestId) -> SiteAnswer {
        let of_request = self.of_name(request).filter(|booking| !booking.is_held());
        let part = |booking: &Booking| {
            Some(FoundBooking {
                attempt: booking.attempt.clone(),
                variant: booking.variant,
                grants: booking.grants.clone(),
                wait: booking.wait,
                participants: booking.participants.clone(),
                statement: booking.statement.clone()?,
            })
        };
        let parts = of_request.filter_map(part).take(MAX_PARTS);
        SiteAnswer::Found { parts: parts.collect(), is_coordinated: false, version: self.version }
    }

    /// Makes `from` the coordinator of the attempt and answers with its booking. The outcome of an attempt that is not settled stays
    /// open until the new coordinator commits it: other sites may never have confirmed, and that node may fail before it has
    /// reported anything.
    pub(super) fn on_takeover(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        (authorization, step): (&Authorization, TakeOverStep),
    ) -> SiteAnswer {
        let permit = match self.check_takeover(now, from, attempt, authorization) {
            Ok(permit) => permit,
            Err(reason) => return self.refusal(reason),
        };
        if self.bookings.get(attempt).is_some_and(|booking| booking.user_key != Some(permit.user)) {
            let why = "the reservation is of another user".to_owned();
            return self.refusal(RefusalReason::Malformed(why));
        }
        let term = Term::new(&permit, &authorization.request);
        let higher = self.higher_term(&term);
        // Even of an attempt that the other node does not know: a request has one coordinator.
        if let Some(higher) = &higher
            && let Some(refusal) = self.refusal_of_takeover(attempt, from, higher.signed().clone())
        {
            return refusal;
        }
        let (mut before, mut others) = (None, Vec::new());
        if higher.is_none() {
            self.terms.insert(term.clone(), now.monotonic + self.limits.tombstone_life);
            before = self.former_coordinator(&term, attempt);
            others = self.other_attempts(&term, attempt);
        }
        match self.bookings.get(attempt) {
            Some(booking) if !booking.is_held() => {
                if let Some(refusal) = self.refusal_of_term(booking, from, &term) {
                    return refusal;
                }
                if booking.statement.as_ref() != Some(term.signed()) {
                    before = before.or(booking.coordinator.clone().filter(|before| before != from));
                    self.set_coordinator(now, attempt, &term, before.clone());
                }
                match step {
                    TakeOverStep::Prepare => {}
                    TakeOverStep::Commit => self.note_settled(attempt),
                    TakeOverStep::Abort => self.give_back(now, attempt),
                }
            }
            // As for an inquiry, it will never be confirmed here; the new coordinator goes by this answer.
            Some(_) => self.give_back(now, attempt),
            None => {}
        }
        let is_settled = self.bookings.get(attempt).is_some_and(|booking| booking.state.is_settled());
        let (seats, charged) = (self.seats_of(attempt), self.charged_for(attempt));
        let places = self.floating_places_of(attempt);
        let receipt = self.bookings.get(attempt).and_then(|booking| self.receipt_for(booking));
        let (wait, version) = (self.wait_of(attempt), self.version);
        SiteAnswer::Booked { seats, places, is_settled, before, others, charged, version, receipt, wait }
    }

    /// Why this term gives `from` no right to a booking; none when it coordinates the booking in this term, or may do so.
    fn refusal_of_term(&self, booking: &Booking, from: &SiteId, term: &Term) -> Option<SiteAnswer> {
        let is_shown = booking.statement.as_ref() == Some(term.signed()) && booking.coordinator.as_ref() == Some(from);
        let present = booking.statement.as_ref().and_then(|signed| term.of_same(signed));
        let is_higher = present.is_none_or(|present| term.statement().rank() > present.statement().rank());
        if is_shown || is_higher {
            return None;
        }
        let later = booking.statement.clone().filter(|_| booking.coordinator.as_ref() != Some(from));
        Some(self.refusal(later.map_or(RefusalReason::NotYours, RefusalReason::HandedOver)))
    }

    fn set_coordinator(&mut self, now: Now, attempt: &AttemptId, term: &Term, before: Option<SiteId>) {
        let ask_at = now.monotonic + self.limits.outcome_wait;
        let changed = self.amend(attempt, |booking| {
            booking.coordinator = Some(term.coordinator().clone());
            booking.statement = Some(term.signed().clone());
            booking.state = match booking.state {
                BookingState::Confirmed { asked, .. } => {
                    BookingState::Confirmed { ask_at, asked, confirmed_by: BTreeSet::new(), complete_before: None }
                }
                _ => BookingState::Settled,
            };
        });
        if changed.is_none() {
            return;
        }
        if let Some(before) = before {
            self.terms.note_former(term, before);
        }
        self.persist(attempt);
    }

    /// The highest term of the request that is known here, if it is higher: one that was received a while ago, or that of the
    /// coordinator of another booking of the request.
    fn higher_term(&self, term: &Term) -> Option<Term> {
        let of_bookings = self.of_term(term).filter_map(|booking| term.of_same(booking.statement.as_ref()?));
        let known = self.terms.highest(term).cloned().into_iter().chain(of_bookings);
        let higher = known.filter(|known| known.statement().rank() > term.statement().rank());
        higher.max_by(|a, b| a.statement().rank().cmp(&b.statement().rank()))
    }

    /// Which other node coordinated the request before the one of this term, as far as this site knows: that node was here, or
    /// coordinates another booking of the request.
    fn former_coordinator(&self, term: &Term, attempt: &AttemptId) -> Option<SiteId> {
        let others = || self.of_term(term).map(|booking| &booking.attempt).filter(|other| *other != attempt);
        let of_another = || others().map(|other| self.coordinator_of(other)).find(|other| *other != term.coordinator());
        self.terms.former(term).or_else(of_another).cloned()
    }

    /// Other attempts of the request that have something here, and that are not coordinated in this term yet.
    fn other_attempts(&self, term: &Term, attempt: &AttemptId) -> Vec<AttemptId> {
        let is_of_term = |booking: &Booking| booking.statement.as_ref() == Some(term.signed());
        let others = self.of_term(term).filter(|booking| !booking.is_held() && !is_of_term(booking));
        let others = others.map(|booking| &booking.attempt).filter(|other| *other != attempt);
        others.take(MAX_PARTS).cloned().collect()
    }

    /// What is booked here for the request of this term.
    fn of_term(&self, term: &Term) -> impl Iterator<Item = &Booking> {
        self.of_request(term.user(), &term.statement().id)
    }

    fn check_takeover(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        authorization: &Authorization,
    ) -> Result<Permit, RefusalReason> {
        let Authorization { request, user, entry_point } = authorization;
        let mut gate = self.gate.lock();
        gate.check_member(from, entry_point.as_ref(), now.utc).map_err(RefusalReason::NotAllowed)?;
        let permit = gate.check_submission(now.utc, from, request, user.as_ref());
        let permit = permit.map_err(RefusalReason::NotAllowed)?;
        if permit.statement.id != attempt.request {
            return Err(RefusalReason::Malformed("signed for another request".to_owned()));
        }
        Ok(permit)
    }
}
