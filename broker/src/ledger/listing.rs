//! The list of bookings that a site shows to the rest of the grid: users, hosts, amounts and times.
//!
//! Invariant: holds and bookings that have lost all seats are not listed, an answer is bounded in bytes, and the list is empty where the owner does not publish it.

use std::ops::Bound;

use super::{Booking, Books, Ledger};
use crate::protocol::{AttemptId, PublicBooking, SiteAnswer};

/// About how many bytes of bookings one answer carries. A booking came in a message of half of that at most, so an answer
/// stays below the largest that is read.
const ANSWER_BYTES: usize = 512 << 10;
/// Most bookings of one answer: small ones take more in memory than on their way.
const ANSWER_BOOKINGS: usize = 4_096;

impl<B: Books> Ledger<B> {
    /// The bookings after `after`, as many as one answer carries.
    pub(super) fn list_bookings(&self, after: Option<&AttemptId>) -> SiteAnswer {
        let mut bookings: Vec<PublicBooking> = Vec::new();
        let mut is_complete = true;
        let is_withheld = !self.gate.lock().policy().publishes_bookings;
        if !is_withheld {
            let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
            let mut bytes = 0;
            let is_listed = |booking: &Booking| !booking.is_held() && !booking.grants.is_empty();
            let listed = self.bookings.range((from, Bound::Unbounded)).filter(|(_, booking)| is_listed(booking));
            for (_, booking) in listed {
                if bytes >= ANSWER_BYTES || bookings.len() >= ANSWER_BOOKINGS {
                    is_complete = false;
                    break;
                }
                bytes += bytes_of(booking);
                bookings.push(PublicBooking {
                    attempt: booking.attempt.clone(),
                    grants: booking.grants.clone(),
                    user: booking.user.clone(),
                    load: booking.load(),
                });
            }
        }
        SiteAnswer::Bookings { bookings, is_complete, is_withheld, version: self.version }
    }
}

/// At least the size of the booking in a message, in bytes.
fn bytes_of(booking: &Booking) -> usize {
    let attempt = &booking.attempt;
    let names = attempt.entry_point.as_str().len() + attempt.request.as_str().len() + booking.user.len();
    let grants = booking.grants.iter().map(|grant| {
        let amounts: usize = grant.amounts.keys().map(|name| name.as_str().len() + 16).sum();
        grant.host().as_str().len() + amounts + 32
    });
    names + 64 + grants.sum::<usize>()
}
