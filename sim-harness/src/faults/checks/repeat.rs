//! A message that arrives again changes nothing: the booking of its attempt stays as it was.
//!
//! Invariant: looks only at messages that were granted the first time, in the same run of the site. One that was refused
//! may be granted when it comes again, and then lapses.

use broker::{
    ledger::BookingState,
    protocol::{AttemptId, Grant},
    time::Window,
};

use super::{super::grid::Grid, floating};
use crate::engine::SiteLedger;

/// The booking of an attempt: window, grants and whether it is only held.
pub type Booked = Option<(Window, Vec<Grant>, bool)>;

/// What a ledger has of an attempt.
pub fn booked(ledger: &SiteLedger, attempt: &AttemptId) -> Booked {
    let booking = ledger.bookings().find(|booking| booking.attempt == *attempt)?;
    Some((booking.window, booking.grants.clone(), matches!(booking.state, BookingState::Held { .. })))
}

/// Whether two are the same, but for seats that were bound to the hosts on which they floated, or wait: they may begin at this moment.
fn is_same(before: &Booked, after: &Booked) -> bool {
    let (Some((window, grants, is_held)), Some((later, bound, still_held))) = (before, after) else {
        return before == after;
    };
    let stays = |(one, other): (&Grant, &Grant)| {
        let is_bound = !other.place.is_floating() && one.host() == other.host();
        one == other || (is_bound || one.window != other.window) && floating::is_same(one, other)
    };
    let window = floating::later_window(*window, *later);
    (window, is_held, grants.len()) == (*later, still_held, bound.len()) && grants.iter().zip(bound).all(stays)
}

/// A message has arrived again that was granted before.
pub fn check_repeat(grid: &mut Grid, node: usize, attempt: &AttemptId, before: &Booked) {
    let Some(running) = grid.nodes[node].running() else { return };
    let after = booked(&running.machines.ledger, attempt);
    // Its hold may have lapsed at this moment.
    let has_lapsed = matches!((before, &after), (Some((_, _, true)), None));
    if !is_same(before, &after) && !has_lapsed {
        let what =
            format!("a repeated message, or a quote, about #{} changed {before:?} to {after:?}", attempt.attempt);
        grid.violate("a message changes nothing twice", Some(&attempt.request), what);
    }
}
