//! What a site does when it has confirmed and hears no final word: it asks the entry point and the other participants.
//!
//! The rule: an attempt succeeded iff every participant confirmed and the entry point did not decide against it. A
//! participant that answers [`AttemptStatus::Dead`] has promised never to confirm, so the user was never told yes (or
//! has cancelled): the booking goes. When all participants are known to have confirmed, the user may have been told yes:
//! the booking stays.

use super::{BookingState, Ledger, Output};
use crate::{
    ids::SiteId,
    protocol::{AttemptId, AttemptStatus},
    time::{Millis, Now},
};

/// Rounds of asking after which the interval no longer doubles.
const MAX_DOUBLINGS: u32 = 6;

impl Ledger {
    pub(super) fn ask_for_final_word(&mut self, now: Now, attempt: &AttemptId) {
        let Some(mut booking) = self.take(attempt) else { return };
        if let BookingState::Confirmed { ask_at, asked, .. } = &mut booking.state {
            let wait = self.limits.final_word_wait.0 << (*asked).min(MAX_DOUBLINGS);
            *ask_at = now.monotonic + Millis(wait.max(1));
            *asked = asked.saturating_add(1);
        }
        // A site that is its own entry point asks itself too: the decision is kept elsewhere.
        let entry_point = &attempt.entry_point;
        let others = booking.participants.iter().filter(|other| *other != entry_point && **other != self.site);
        for to in std::iter::once(entry_point).chain(others) {
            self.outputs.push_back(Output::Inquire { to: to.clone(), attempt: attempt.clone() });
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
        let Some(booking) = self.bookings.get_mut(attempt) else { return };
        let BookingState::Confirmed { confirmed_by, .. } = &mut booking.state else { return };
        let is_entry_point = *from == attempt.entry_point;
        let is_other_participant = booking.participants.contains(from) && *from != site;
        let decided_against = is_entry_point && decision == Some(AttemptStatus::Dead);
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
}
