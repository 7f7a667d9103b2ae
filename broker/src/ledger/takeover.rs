//! A reservation whose entry point is gone goes on under another one, when its user wants that.
//!
//! Invariant: only a node that shows a request signed by the user who booked, naming that node, ever acts for a booking in
//! the place of its entry point; and from then on that node alone does.

use super::{Booking, Ledger};
use crate::{
    ids::{RequestId, SiteId},
    protocol::{AttemptId, BookedPart, RefusalReason, SiteAnswer},
    time::Now,
    trust::Authorization,
};

impl Ledger {
    /// Who may act for an attempt: its entry point, or who has taken it over.
    pub(super) fn steward_of<'a>(&'a self, attempt: &'a AttemptId) -> &'a SiteId {
        let taken_over = self.bookings.get(attempt).and_then(|booking| booking.steward.as_ref());
        taken_over.unwrap_or(&attempt.entry_point)
    }

    /// What is reserved here for a request. Whoever knows its name may ask: the name is 80 random bits.
    pub(super) fn on_lookup(&self, request: &RequestId) -> SiteAnswer {
        let of_request =
            self.bookings.values().filter(|booking| booking.attempt.request == *request && !booking.is_held());
        let part = |booking: &Booking| {
            Some(BookedPart {
                attempt: booking.attempt.clone(),
                window: booking.window,
                grants: booking.grants.clone(),
                statement: booking.statement.clone()?,
            })
        };
        let parts = of_request.filter_map(part).take(MAX_PARTS);
        SiteAnswer::Found { parts: parts.collect(), version: self.version }
    }

    /// Lets `from` act for the attempt from now on, and says what is reserved.
    pub(super) fn on_takeover(
        &mut self,
        now: Now,
        from: &SiteId,
        attempt: &AttemptId,
        authorization: &Authorization,
    ) -> SiteAnswer {
        let Some(booking) = self.bookings.get(attempt).filter(|booking| !booking.is_held()) else {
            return SiteAnswer::Booked { hosts: Vec::new(), version: self.version };
        };
        let hosts = booking.grants.iter().map(|grant| grant.host.clone()).collect();
        if booking.steward.as_ref() == Some(from) {
            return SiteAnswer::Booked { hosts, version: self.version };
        }
        let user_key = booking.user_key;
        if let Err(denial) = self.gate.check_member(from, authorization.entry_point.as_ref(), now.utc) {
            return self.refusal(RefusalReason::NotAllowed(denial));
        }
        let permit =
            match self.gate.check_submission(now.utc, from, &authorization.request, authorization.user.as_ref()) {
                Ok(permit) => permit,
                Err(denial) => return self.refusal(RefusalReason::NotAllowed(denial)),
            };
        if Some(permit.user) != user_key || permit.statement.id != attempt.request {
            let why = "the reservation is of another user or of another request".to_owned();
            return self.refusal(RefusalReason::Malformed(why));
        }
        if let Some(booking) = self.take(attempt) {
            let booking = Booking { steward: Some(from.clone()), ..booking };
            self.outputs.push_back(super::Output::Persist(booking.to_record()));
            self.insert(booking);
        }
        SiteAnswer::Booked { hosts, version: self.version }
    }
}

/// Most bookings of one request that a site tells; a request has one a try, and few tries stand.
const MAX_PARTS: usize = 64;
