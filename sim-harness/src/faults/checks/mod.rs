//! Checkers of the design's invariants. None of them trusts the code that it checks: amounts are added up from the
//! bookings, durability is read off the modelled disks, views are compared with what ledgers had.
//!
//! Invariant: a checker changes nothing; what it finds goes into [`Grid::violate`].

mod capacity;
mod covered;
mod drains;
mod durable;
mod floating;
mod lapses;
mod lied;
mod links;
mod lost;
mod money;
mod own_jobs;
mod receipts;
mod repairable;
mod repeat;
mod rules;
mod settled;
mod shares;
mod together;
mod views;
mod waits;

use broker::{ids::RequestId, ledger::Booking, protocol::AttemptId, time::Time};

pub use self::{
    durable::{check_reported, check_taken_over},
    links::over_links,
    lost::{check_dropped, check_news},
    money::check_dues,
    own_jobs::check_start,
    repeat::{booked, check_repeat},
    settled::{check_books, unsettled},
    together::check_together,
    views::check_view,
};
use super::{grid::Grid, names};

/// The sums of a ledger are compared with all that they are made of after one event in so many, at every start and at the end. What is wrong with
/// them stays wrong until then, and the comparison costs as much as the event.
const SUMS_EVERY: u64 = 8;

/// A site's ledger has changed, and was told the time: a slow node's timer may be late, but no event finds a hold that has
/// lapsed.
pub fn check_ledger(grid: &mut Grid, node: usize) {
    let now = grid.clock(node);
    let Some(running) = grid.nodes[node].running() else { return };
    grid.truth.note(node, &running.machines.ledger, now);
    check_new(grid, node);
    let Some(running) = grid.nodes[node].running() else { return };
    if let Err(found) = capacity::check_ledger(&grid.nodes[node], &running.machines.ledger, now) {
        let (request, what) = *found;
        grid.violate("never over-committed", Some(&request), format!("s{node}: {what}"));
        return;
    }
    if let Err(found) = links::check_ledger(grid, node, &running.machines.ledger, now) {
        let (request, what) = *found;
        grid.violate("the uplink is booked as its bookings say", Some(&request), format!("s{node}: {what}"));
        return;
    }
    if are_sums_due(grid) && !check_sums(grid, node) {
        return;
    }
    let Some(running) = grid.nodes[node].running() else { return };
    let is_again = |booking: &&Booking| {
        let of_request =
            |(attempt, end): (&AttemptId, &Time)| attempt.request == booking.attempt.request && now.utc < *end;
        running.evicted.iter().any(of_request)
    };
    let again = running.machines.ledger.bookings().find(is_again).map(|booking| booking.attempt.clone());
    if let Some(attempt) = again {
        let what = format!("s{node} has #{} of {}", attempt.attempt, attempt.entry_point);
        return grid.violate("nothing more is given to who was evicted", Some(&attempt.request), what);
    }
    floating::check_ledger(grid, node);
    check_taken_back(grid, node);
}

/// After one event in [`SUMS_EVERY`], which its moment says: moments are drawn, so they follow no pattern and differ from seed to seed.
fn are_sums_due(grid: &Grid) -> bool {
    let mixed = grid.now().0.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32).is_multiple_of(SUMS_EVERY)
}

/// Compares what the ledger of a site keeps at hand with all that it is the sum of; whether that is consistent.
pub fn check_sums(grid: &mut Grid, node: usize) -> bool {
    let Some(Err(what)) = grid.nodes[node].running().map(|running| running.machines.ledger.sanity_check()) else {
        return true;
    };
    grid.violate("the ledger is consistent", None, format!("s{node}: {what}"));
    false
}

/// What is in a ledger for the first time: at its price, within shares, as its owner offers it, not where the site is being emptied, nor for a node whose
/// holds lapse.
fn check_new(grid: &mut Grid, node: usize) {
    drains::check_ledger(grid, node);
    own_jobs::check_ledger(grid, node);
    lapses::check_ledger(grid, node);
    let has_rules = grid.options.rules.is_some();
    if grid.options.money.is_none() && grid.options.shares.is_none() && !has_rules {
        return;
    }
    let Some(running) = grid.nodes[node].running() else { return };
    // The owner's own jobs are no user's.
    let attempts = running.machines.ledger.of_users().map(|booking| &booking.attempt);
    let new: Vec<AttemptId> = attempts.filter(|attempt| !grid.truth.has_seen(node, attempt)).cloned().collect();
    money::check_prices(grid, node, &new);
    shares::check_shares(grid, node, &new);
    rules::check_offered(grid, node, &new);
    new.into_iter().for_each(|attempt| grid.truth.note_seen(node, attempt));
}

/// A site has told its owner what it has taken back, or its ledger has changed.
pub fn check_taken_back(grid: &mut Grid, node: usize) {
    let is_on_disk = |attempt: &&AttemptId| grid.nodes[node].disk.reservations.contains_key(*attempt);
    let kept = grid.truth.evicted_at(node).find(is_on_disk).cloned();
    if let Some(attempt) = kept {
        let what = format!("#{} is still on the disk of s{node}", attempt.attempt);
        grid.violate("what an owner has taken back is gone", Some(&attempt.request), what);
    }
}

/// The journal of a site has changed, for this request.
pub fn check_disk(grid: &mut Grid, node: usize, request: &RequestId) {
    let now = grid.clock(node);
    if let Err(found) = capacity::check_disk(&grid.nodes[node], now) {
        let (request, what) = *found;
        grid.violate("never over-committed", Some(&request), format!("disk of s{node}: {what}"));
    }
    if names::is_own_job(request) {
        return;
    }
    let confirmed = grid.nodes[node].disk.reservations.values().filter(|one| one.attempt.request == *request);
    for reservation in confirmed {
        grid.truth.note_confirmed(&grid.nodes, &reservation.attempt, &reservation.participants);
    }
    floating::check_disk(grid, node, request);
    waits::check_disk(grid, node, request);
    covered::check_covered(grid, node, request);
    money::check_budget(grid, request);
    money::check_batch_budget(grid, request);
    check_reported(grid, request);
}
