//! What sites tell of seats that are reserved: other hosts of a class, and a later start where the seats wait for own jobs of their site.
//!
//! Invariant: a later start is believed only of a reservation that one attempt has made at one site, once, within the slack and the window of
//! the request; all seats then begin so much later. It is on disk before it is shown.

use super::{Negotiation, State};
use crate::{
    ids::SiteId,
    protocol::SiteAnswer,
    time::{Now, Span},
    trust::asked::CLOCKS_DIFFER,
};

impl Negotiation {
    /// An answer that names places or a start that cannot be is none.
    pub(super) fn with_possible_seats(
        &self,
        site: &SiteId,
        attempt: u32,
        answer: Result<SiteAnswer, String>,
    ) -> Result<SiteAnswer, String> {
        let (Ok(SiteAnswer::Booked { places, wait, .. }), Some(reservation)) = (&answer, self.reservation()) else {
            return answer;
        };
        if !places.is_empty() {
            reservation.check_places((attempt, site), places).map_err(|error| error.to_string())?;
        }
        reservation.check_wait(attempt, *wait, &self.record.request).map_err(|error| error.to_string())?;
        answer
    }

    /// Whether the site of the reservation may yet tell that it begins later: it decides at the start, and its user waits for that.
    pub(super) fn may_yet_wait(&self, now: Now) -> bool {
        self.may_have_waited(now) && !self.is_start_decided(now)
    }

    /// Whether the reservation may begin, or have begun, later without that this node has heard so: until it would be over by then.
    #[must_use]
    pub fn may_have_waited(&self, now: Now) -> bool {
        let Some(reservation) = self.reservation().filter(|_| !self.watch.has_told_start()) else { return false };
        let slack = self.record.request.demand().slack();
        now.utc <= reservation.plan.end() + slack + CLOCKS_DIFFER && reservation.may_wait(&self.record.request)
    }

    /// Whether the start is past by any clock.
    pub(super) fn is_start_decided(&self, now: Now) -> bool {
        self.reserved_plan().is_some_and(|plan| now.utc.since(plan.start) > CLOCKS_DIFFER)
    }

    /// Notes that all seats of the reservation begin so much later than their site has confirmed. It is shown from now on, and written at
    /// the end of the round, before anything is done about it.
    pub(super) fn note_wait(&mut self, wait: Span) {
        let Some(reservation) = self.reservation_mut().filter(|_| !wait.is_zero()) else { return };
        if reservation.begin_later(wait) {
            let (plan, decision) = (reservation.plan.clone(), reservation.decision());
            self.state = State::Reserved { plan };
            self.record.decision = decision;
            self.watch.is_new = true;
        }
    }
}
