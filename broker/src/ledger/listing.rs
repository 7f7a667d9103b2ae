//! What a site tells the rest of the grid of its reservations: enough for a picture of who has what and when.
//!
//! Invariant: holds are not reported, an answer is bounded in bytes, and nothing is told at all where the owner does not want
//! that.

use std::ops::Bound;

use super::{Booking, Books, Ledger};
use crate::protocol::{AttemptId, PublicBooking, SiteAnswer};

/// About how many bytes of bookings one answer carries. A booking came in a message of half of that at most, so an answer
/// stays below the largest that is read.
const ANSWER_BYTES: usize = 512 << 10;
/// Most bookings of one answer: small ones take more in memory than on their way.
const ANSWER_BOOKINGS: usize = 4_096;

impl<B: Books> Ledger<B> {
    /// The reservations after `after`, as many as one answer carries.
    pub(super) fn list_bookings(&self, after: Option<&AttemptId>) -> SiteAnswer {
        let mut bookings: Vec<PublicBooking> = Vec::new();
        let mut is_complete = true;
        let is_withheld = !self.gate.lock().policy().publishes_bookings;
        if !is_withheld {
            let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
            let mut bytes = 0;
            for (_, booking) in self.bookings.range((from, Bound::Unbounded)).filter(|(_, booking)| !booking.is_held())
            {
                if bytes >= ANSWER_BYTES || bookings.len() >= ANSWER_BOOKINGS {
                    is_complete = false;
                    break;
                }
                bytes += bytes_of(booking);
                bookings.push(PublicBooking {
                    attempt: booking.attempt.clone(),
                    window: booking.window,
                    grants: booking.grants.clone(),
                    user: booking.user.clone(),
                });
            }
        }
        SiteAnswer::Bookings { bookings, is_complete, is_withheld, version: self.version }
    }
}

/// No less than the booking takes on its way.
fn bytes_of(booking: &Booking) -> usize {
    let attempt = &booking.attempt;
    let names = attempt.entry_point.as_str().len() + attempt.request.as_str().len() + booking.user.len();
    let grants = booking.grants.iter().map(|grant| {
        let amounts: usize = grant.amounts.keys().map(|name| name.as_str().len() + 16).sum();
        grant.host.as_str().len() + amounts + 16
    });
    names + 64 + grants.sum::<usize>()
}
