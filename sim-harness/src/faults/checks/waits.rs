//! A window that a site keeps is the one that it has confirmed, or begins and ends later by no more than its user grants, within the window
//! of the request: once, all seats alike, and only where all seats of the request are at this site.
//!
//! Invariant: goes by what the disk had first, and by what the user has asked; what the ledger says of slack and wait is not asked for.

use broker::{
    ids::{RequestId, SeatNumber},
    ledger::BookingRecord,
    time::{Span, Window},
};

use super::{
    super::{grid::Grid, truth::SeatWindows, users::UserRequest},
    covered::is_in_time,
};

/// The seats of a booking with their windows.
fn windows(record: &BookingRecord) -> SeatWindows {
    record.grants.iter().map(|grant| (grant.seat, grant.window)).collect()
}

/// The journal of a site has changed, for this request.
pub fn check_disk(grid: &mut Grid, node: usize, request: &RequestId) {
    let records: Vec<BookingRecord> = grid.nodes[node].reservations_of(request).cloned().collect();
    for record in records {
        let (first, waited) = grid.truth.note_windows(node, &record.attempt, windows(&record));
        let Some(user) = grid.users.get(request) else { continue };
        match wait_of(&first, waited, &record, user) {
            Ok(wait) => {
                grid.figures.waited += u64::from(wait > waited);
                grid.truth.note_wait(node, &record.attempt, wait);
            }
            Err(what) => {
                let what = format!("s{node}: #{} {what}", record.attempt.attempt);
                grid.violate("a reservation begins later only as its user grants", Some(request), what);
            }
        }
    }
}

/// How much later a booking begins than it did first.
fn wait_of(
    first: &[(SeatNumber, Window)],
    waited: Span,
    record: &BookingRecord,
    user: &UserRequest,
) -> Result<Span, String> {
    let mut wait = None;
    for (seat, window) in windows(record) {
        let Some((_, before)) = first.iter().find(|(number, _)| *number == seat) else {
            return Err(format!("has seat {seat}, which it had not at first"));
        };
        let later = window.start.since(before.start);
        if window != before.later(later) || wait.is_some_and(|wait| wait != later) {
            return Err(format!("seat {seat} was {before:?}, and is {window:?}"));
        }
        if !is_in_time(&user.request, window) {
            return Err(format!("seat {seat} was {before:?}, and is {window:?}, later than its user allows"));
        }
        wait = Some(later);
    }
    let wait = wait.unwrap_or(waited);
    let demand = user.request.shape(record.variant.shape).ok_or("is of no shape")?;
    let is_whole = first.len() == demand.seats() && record.participants.len() == 1;
    if wait != waited && (!waited.is_zero() || !is_whole || wait > demand.slack()) {
        let (waited, wait, slack, seats) = (waited.0, wait.0, demand.slack().0, first.len());
        return Err(format!("begins {wait} s later, {waited} s before, of {slack} s; {seats} seats are here"));
    }
    Ok(wait)
}
