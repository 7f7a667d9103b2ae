//! A site promises nothing that its owner does not offer at that time: second by second for the spans.
//!
//! Invariant: goes by what the owner has said, not by the gate of the ledger.

use broker::{ledger::Booking, offered::Offered, protocol::AttemptId, time::Time};

use super::super::grid::Grid;

/// These bookings are new in the ledger of a site.
pub fn check_offered(grid: &mut Grid, site: usize, new: &[AttemptId]) {
    let (Some(offered), Some(running)) = (&grid.nodes[site].offered, grid.nodes[site].running()) else { return };
    let now = grid.clock(site).utc;
    let of_new = running.machines.ledger.bookings().filter(|booking| new.contains(&booking.attempt));
    let wrong = of_new.filter(|booking| !is_offered(offered, booking, now));
    let found: Vec<(AttemptId, String)> = wrong
        .map(|booking| (booking.attempt.clone(), format!("s{site} has {:?} of {offered:?}", booking.window)))
        .collect();
    for (attempt, what) in found {
        grid.violate("nothing is promised that its owner does not offer", Some(&attempt.request), what);
    }
}

fn is_offered(offered: &Offered, booking: &Booking, now: Time) -> bool {
    let window = booking.window;
    let length = window.end.0 - window.start.0;
    let is_open = |second: i64| {
        offered
            .spans
            .as_ref()
            .is_none_or(|spans| spans.iter().any(|span| span.start.0 <= second && second < span.end.0))
    };
    (window.start.0..window.end.0).all(is_open)
        && offered.longest.is_none_or(|longest| length.unsigned_abs() <= longest.0)
        && offered.reach.is_none_or(|reach| window.end.0 - now.0 <= reach.0.cast_signed())
}
