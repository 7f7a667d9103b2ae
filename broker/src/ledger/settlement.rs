//! What a site does when it has confirmed and hears no final word: it asks the entry point and the other participants.
//!
//! The rule: an attempt succeeded iff every participant confirmed and the entry point did not decide against it. A
//! participant that answers [`AttemptStatus::Dead`] has promised never to confirm, so the user was never told yes (or
//! has cancelled): the booking goes. When all participants are known to have confirmed, the user may have been told yes:
//! the booking stays.
//!
//! Who stands in for an entry point that is gone counts as the entry point.

use super::{Booking, BookingState, Ledger, Output};
use crate::{
    ids::SiteId,
    protocol::{AttemptId, AttemptStatus},
    time::{Millis, Now},
};

/// Rounds of asking after which the interval no longer doubles.
const MAX_DOUBLINGS: u32 = 6;
/// How often a site that has come back asks whether what was settled before is still wanted.
const RETURNED_ASKS_MAX: u32 = 12;

impl Ledger {
    pub(super) fn ask_for_final_word(&mut self, now: Now, attempt: &AttemptId) {
        let Some(mut booking) = self.take(attempt) else { return };
        if let BookingState::Confirmed { ask_at, asked, .. } | BookingState::Returned { ask_at, asked } =
            &mut booking.state
        {
            let wait = self.limits.final_word_wait.0 << (*asked).min(MAX_DOUBLINGS);
            *ask_at = now.monotonic + Millis(wait.max(1));
            *asked = asked.saturating_add(1);
        }
        // A site that is its own entry point asks itself too: the decision is kept elsewhere.
        let steward = booking.steward.as_ref().unwrap_or(&attempt.entry_point);
        let needs_others = !booking.state.is_settled();
        let others = booking.participants.iter().filter(|other| *other != steward && **other != self.site);
        for to in std::iter::once(steward).chain(others.filter(|_| needs_others)) {
            self.outputs.push_back(Output::Inquire { to: to.clone(), attempt: attempt.clone() });
        }
        if matches!(booking.state, BookingState::Returned { asked, .. } if asked >= RETURNED_ASKS_MAX) {
            booking.state = BookingState::Settled;
        }
        self.insert(booking);
    }

    pub(super) fn on_status(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        decision: Option<AttemptStatus>,
        status: AttemptStatus,
    ) {
        let site = self.site.clone();
        let decided_against = from == self.steward_of(attempt) && decision == Some(AttemptStatus::Dead);
        let Some(booking) = self.bookings.get_mut(attempt) else { return };
        let confirmed_by = match &mut booking.state {
            BookingState::Confirmed { confirmed_by, .. } => confirmed_by,
            BookingState::Returned { .. } => return self.on_word_after_return(now, from, attempt, decision),
            BookingState::Held { .. } | BookingState::Settled => return,
        };
        let is_other_participant = booking.participants.contains(from) && *from != site;
        let cannot_be_complete = is_other_participant && status == AttemptStatus::Dead;
        if decided_against || cannot_be_complete {
            self.give_back(now, attempt);
            return;
        }
        if is_other_participant && status == AttemptStatus::Confirmed {
            confirmed_by.insert(from.clone());
        }
        let all_confirmed = booking.participants.iter().all(|other| *other == site || confirmed_by.contains(other));
        if all_confirmed {
            self.put(attempt, BookingState::Settled);
        }
    }

    /// Only who acts for the attempt can say that what was complete is not wanted any more.
    fn on_word_after_return(&mut self, now: Now, from: &SiteId, attempt: &AttemptId, decision: Option<AttemptStatus>) {
        if from != self.steward_of(attempt) {
            return;
        }
        match decision {
            Some(AttemptStatus::Dead) => self.give_back(now, attempt),
            Some(AttemptStatus::Confirmed) => self.note_settled(attempt),
            Some(AttemptStatus::Pending | AttemptStatus::Unknown) | None => {}
        }
    }

    /// Nobody needs to be asked about the attempt any more. Written down unless it is already.
    pub(super) fn note_settled(&mut self, attempt: &AttemptId) {
        match self.bookings.get(attempt).map(|booking| &booking.state) {
            Some(BookingState::Confirmed { .. }) => drop(self.put(attempt, BookingState::Settled)),
            Some(BookingState::Returned { .. }) => {
                if let Some(booking) = self.take(attempt) {
                    self.insert(Booking { state: BookingState::Settled, ..booking });
                }
            }
            Some(BookingState::Held { .. } | BookingState::Settled) | None => {}
        }
    }
}
