//! Seats that float are bound once: what was bound on the disk of its site stays on its host, in the ledger and on the disk, and what has
//! begun floats no longer.
//!
//! Invariant: goes by the places that the ledger and the disk have, and by what the disk had before.

use broker::{
    ids::RequestId,
    plan::Place,
    protocol::{AttemptId, Grant},
    time::Window,
};

use super::super::grid::Grid;

/// Whether `later` is what `before` has become: the same, or bound or moved since, if it floated. It may have waited: whether it may, and for how
/// long, is checked in `waits`.
pub fn is_same(before: &Grant, later: &Grant) -> bool {
    let has_host = before.place.is_floating() || before.host() == later.host();
    let (place, window) = (later.place.clone(), later_window(before.window, later.window));
    has_host && before.place.promised() == later.place.promised() && Grant { place, window, ..before.clone() } == *later
}

/// A window as it is when it begins as another one does, if that is later.
pub fn later_window(before: Window, later: Window) -> Window {
    before.later(later.start.since(before.start))
}

/// The ledger of a site has changed, and was told the time.
pub fn check_ledger(grid: &mut Grid, node: usize) {
    let now = grid.clock(node).utc;
    let Some(running) = grid.nodes[node].running() else { return };
    let seats =
        running.machines.ledger.bookings().flat_map(|booking| booking.grants.iter().map(move |one| (booking, one)));
    let wrong = |attempt: &AttemptId, grant: &Grant| {
        if grant.place.is_floating() && grant.window.start <= now {
            return Some(format!("seat {} floats, and began at {}", grant.seat, grant.window.start.0));
        }
        let bound = grid.truth.bound_to(node, attempt, grant.seat)?;
        let is_there = !grant.place.is_floating() && grant.host() == bound;
        (!is_there).then(|| format!("seat {} was bound to {bound}, and is {:?}", grant.seat, grant.place))
    };
    let found = seats.filter_map(|(booking, grant)| Some((&booking.attempt, wrong(&booking.attempt, grant)?)));
    let found = found.map(|(attempt, what)| (attempt.request.clone(), what)).next();
    if let Some((request, what)) = found {
        grid.violate("a seat that is bound stays", Some(&request), format!("s{node}: {what}"));
    }
}

/// The journal of a site has changed, for this request.
pub fn check_disk(grid: &mut Grid, node: usize, request: &RequestId) {
    let bound = |grant: &Grant| match &grant.place {
        Place::Bound { host, .. } => Some((grant.seat, host.clone())),
        Place::Host(_) | Place::Floating { .. } => None,
    };
    let of_request = grid.nodes[node].reservations_of(request);
    let all =
        of_request.flat_map(|one| one.grants.iter().filter_map(|grant| Some((one.attempt.clone(), bound(grant)?))));
    for (attempt, (seat, host)) in all.collect::<Vec<_>>() {
        let (is_new, first) = grid.truth.note_bound(node, &attempt, seat, &host);
        grid.figures.bound += u64::from(is_new);
        if first != host {
            let what = format!("s{node}: seat {seat} was bound to {first}, and is on {host} on disk");
            grid.violate("a seat that is bound stays", Some(request), what);
        }
    }
}
