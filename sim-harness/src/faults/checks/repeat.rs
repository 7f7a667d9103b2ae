//! A message that arrives again changes nothing: the booking of its attempt stays as it was.
//!
//! Invariant: looks only at messages that were granted the first time, in the same run of the site, once the site has done what was due.
//! One that was refused may be granted when it comes again, and then lapses.

use broker::{
    ledger::BookingState,
    protocol::{AttemptId, Grant},
    time::Window,
};

use super::super::grid::Grid;
use crate::engine::SiteLedger;

/// The booking of an attempt: window, grants and whether it is only held.
pub type Booked = Option<(Window, Vec<Grant>, bool)>;

/// What a ledger has of an attempt.
pub fn booked(ledger: &SiteLedger, attempt: &AttemptId) -> Booked {
    let booking = ledger.bookings().find(|booking| booking.attempt == *attempt)?;
    Some((booking.window, booking.grants.clone(), matches!(booking.state, BookingState::Held { .. })))
}

/// A message has arrived again that was granted before.
pub fn check_repeat(grid: &mut Grid, node: usize, attempt: &AttemptId, before: &Booked) {
    let Some(running) = grid.nodes[node].running() else { return };
    let after = booked(&running.machines.ledger, attempt);
    if *before != after {
        let what =
            format!("a repeated message, or a quote, about #{} changed {before:?} to {after:?}", attempt.attempt);
        grid.violate("a message changes nothing twice", Some(&attempt.request), what);
    }
}
