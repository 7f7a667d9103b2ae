//! Cooperative termination: a site that has confirmed and does not learn the outcome asks the coordinator and the other
//! participants.
//!
//! The rule: an attempt succeeded iff every participant confirmed and its coordinator did not decide against it. The
//! coordinator's answer ends the question. Without it, a participant that answers [`AttemptStatus::Aborted`] has promised never to
//! confirm, so success was never reported: the booking goes. One that has given a part of a complete attempt back, because it was
//! replaced, has ended, or the user has cancelled, answers [`AttemptStatus::Confirmed`]. When all participants have confirmed, and have it
//! still, at one moment, the user may know of a success: the booking stays. That each has confirmed at some time is not enough, since a first one may have been
//! released before a last one confirms; so all are asked once more after all have answered so.
//!
//! A node that has taken the attempt over is its coordinator.

use super::{Booking, BookingState, Books, Ledger, Output};
use crate::{
    ids::SiteId,
    protocol::{AttemptId, AttemptStatus},
    time::{Millis, Now},
};

/// Rounds of asking after which the interval no longer doubles.
const MAX_DOUBLINGS: u32 = 6;
/// How often a site that has restarted asks whether a settled booking is still part of its reservation.
const RETURNED_ASKS_MAX: u32 = 12;

impl<B: Books> Ledger<B> {
    pub(super) fn ask_for_outcome(&mut self, now: Now, attempt: &AttemptId) {
        let (outcome_wait, mut round) = (self.limits.outcome_wait, 0);
        self.amend(attempt, |booking| {
            if let BookingState::Confirmed { ask_at, asked, .. } | BookingState::Returned { ask_at, asked } =
                &mut booking.state
            {
                let wait = outcome_wait.0 << (*asked).min(MAX_DOUBLINGS);
                *ask_at = now.monotonic + Millis(wait.max(1));
                *asked = asked.saturating_add(1);
                round = *asked;
            }
            if matches!(booking.state, BookingState::Returned { asked, .. } if asked >= RETURNED_ASKS_MAX) {
                booking.state = BookingState::Settled;
            }
        });
        let Some(booking) = self.bookings.get(attempt) else { return };
        // A site that is its own entry point asks itself too: the decision is kept elsewhere.
        let coordinator = booking.coordinator.as_ref().unwrap_or(&attempt.entry_point);
        let needs_others = !booking.state.is_settled();
        let others = booking.participants.iter().filter(|other| *other != coordinator && **other != self.site);
        for to in std::iter::once(coordinator).chain(others.filter(|_| needs_others)) {
            self.outputs.push_back(Output::Inquire { to: to.clone(), attempt: attempt.clone(), round });
        }
    }

    pub(super) fn on_status(
        &mut self,
        now: Now,
        from: &SiteId,
        (attempt, round): (&AttemptId, u32),
        decision: Option<AttemptStatus>,
        status: AttemptStatus,
    ) {
        let is_coordinator = from == self.coordinator_of(attempt);
        if is_coordinator && decision == Some(AttemptStatus::Confirmed) {
            return self.note_settled(attempt);
        }
        let decided_against = is_coordinator && decision == Some(AttemptStatus::Aborted);
        let Some(booking) = self.bookings.get(attempt) else { return };
        let complete_before = match &booking.state {
            BookingState::Confirmed { complete_before, .. } => *complete_before,
            // Only the coordinator can decide that a settled booking is no longer part of its reservation.
            BookingState::Returned { .. } if decided_against => return self.give_back(now, attempt),
            BookingState::Returned { .. } => return,
            BookingState::Held { .. } | BookingState::Settled => return,
        };
        let is_other_participant = booking.participants.contains(from) && *from != self.site;
        let cannot_be_complete = is_other_participant && status == AttemptStatus::Aborted;
        if decided_against || cannot_be_complete {
            self.give_back(now, attempt);
            return;
        }
        let counts = complete_before.is_none_or(|before| round > before);
        if is_other_participant && status == AttemptStatus::Confirmed && counts {
            self.amend(attempt, |booking| {
                if let BookingState::Confirmed { confirmed_by, .. } = &mut booking.state {
                    confirmed_by.insert(from.clone());
                }
            });
        }
        let Some(Booking { state: BookingState::Confirmed { confirmed_by, .. }, participants, .. }) =
            self.bookings.get(attempt)
        else {
            return;
        };
        let all_confirmed = participants.iter().all(|other| *other == self.site || confirmed_by.contains(other));
        if all_confirmed && (complete_before.is_some() || confirmed_by.is_empty()) {
            self.put(attempt, |booking| booking.state = BookingState::Settled);
        } else if all_confirmed {
            self.ask_all_once_more(now, attempt);
        }
    }

    /// Every participant has confirmed at some time; one that answers so in the next round has its booking still.
    fn ask_all_once_more(&mut self, now: Now, attempt: &AttemptId) {
        self.amend(attempt, |booking| {
            if let BookingState::Confirmed { asked, confirmed_by, complete_before, .. } = &mut booking.state {
                confirmed_by.clear();
                *complete_before = Some(*asked);
            }
        });
        self.ask_for_outcome(now, attempt);
    }

    /// Notes that the attempt was committed; written unless it is on disk already.
    pub(super) fn note_settled(&mut self, attempt: &AttemptId) {
        match self.bookings.get(attempt).map(|booking| &booking.state) {
            Some(BookingState::Confirmed { .. }) => self.put(attempt, |booking| booking.state = BookingState::Settled),
            Some(BookingState::Returned { .. }) => {
                self.amend(attempt, |booking| booking.state = BookingState::Settled);
            }
            Some(BookingState::Held { .. } | BookingState::Settled) | None => {}
        }
    }
}
