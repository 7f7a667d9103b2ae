//! A node that lets many holds lapse at a site gets shorter ones, and then none, until it is forgiven.
//!
//! Invariant: what it counts is no more than the ledger may count, so what it finds is wrong.

use std::collections::BTreeMap;

use broker::{ledger::BookingState, protocol::AttemptId};

use super::super::{
    grid::Grid,
    lapses::{LONG, Lapses},
};

/// The ledger of a site has changed.
pub fn check_ledger(grid: &mut Grid, site: usize) {
    if grid.options.hoards.is_none() {
        return;
    }
    let (now, run) = (grid.clock(site).monotonic, grid.nodes[site].run);
    let mut known = grid.truth.take_lapses(site);
    if known.run != run {
        known = Lapses::of_run(run);
    }
    let Some(running) = grid.nodes[site].running() else { return };
    let held = running.machines.ledger.bookings().filter_map(|booking| match booking.state {
        BookingState::Held { since, deadline } => Some((booking.attempt.clone(), (since, deadline))),
        _ => None,
    });
    let held: BTreeMap<_, _> = held.collect();
    let is_booked = |attempt: &AttemptId| running.machines.ledger.bookings().any(|booking| booking.attempt == *attempt);
    for (attempt, (since, deadline)) in std::mem::take(&mut known.holds) {
        if now >= deadline.min(since + LONG) && !is_booked(&attempt) {
            known.note(now, &attempt.entry_point);
        } else {
            known.holds.insert(attempt, (since, deadline));
        }
    }
    let is_new = |attempt: &AttemptId| !known.holds.contains_key(attempt);
    let mut new = held.iter().filter(|(attempt, _)| is_new(attempt));
    let wrong = new.find_map(|(attempt, (since, deadline))| {
        Some((attempt.request.clone(), known.wrong(now, &attempt.entry_point, *deadline - *since)?))
    });
    known.holds = held;
    grid.truth.keep_lapses(site, known);
    if let Some((request, what)) = wrong {
        let invariant = "whoever lets holds lapse gets shorter ones, then none";
        grid.violate(invariant, Some(&request), format!("s{site}: {what}"));
    }
}
