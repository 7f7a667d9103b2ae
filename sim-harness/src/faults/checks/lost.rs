//! Losses: a site drops only what does not fit any more; a loss is reported to a user only when there is one; what is repaired
//! keeps its start and the seats that are left, unless the user allows it to move; what has begun is never moved.
//!
//! Invariant: compares what was reported to the user before with what is reported now, and with the disks and the messages of the
//! simulation, never with what a negotiation believes.

use std::collections::BTreeSet;

use broker::{
    ids::{RequestId, SeatNumber},
    ledger::BookingRecord,
    negotiation::{Loss, Reservation},
    plan::{Plan, Seat},
    protocol::{AttemptId, Grant},
    time::Span,
};

use super::{
    super::{grid::Grid, names, users::Report},
    capacity, floating, links,
};
use crate::engine::{Moment, SiteLedger};

/// From the decision to its report: writes of a slow node.
const REPORTING: Span = Span(8);
/// Sites may forget a reservation when it has ended on their clock.
const CLOCKS_DIFFER: Span = Span(45);
/// Longest that a slow node is late with anything.
const SLOW_MS_MAX: u64 = 1_500;
/// Clocks of nodes run wrong by at most 1 in 100; of `lost_after` so many percent must have passed.
const PERCENT_OF_SILENCE: u64 = 97;

/// What a ledger has promised, with whose it is.
fn promised(ledger: &SiteLedger) -> impl Iterator<Item = (&RequestId, &Grant)> {
    ledger.bookings().flat_map(|booking| booking.grants.iter().map(|grant| (&booking.attempt.request, grant)))
}

/// A ledger was opened: what it has dropped of what was on disk had not begun and has no room any more.
pub fn check_dropped(grid: &mut Grid, node: usize) {
    let now = grid.clock(node);
    let Some(running) = grid.nodes[node].running() else { return };
    let dropped = dropped(grid.nodes[node].disk.reservations.values(), &running.machines.ledger);
    let mut wrong = None;
    let mut taken_away = Vec::new();
    for (attempt, seat) in &dropped {
        let reservation = &grid.nodes[node].disk.reservations[attempt];
        for grant in reservation.grants.iter().filter(|grant| grant.seat == *seat) {
            let (hosts, ledger) = (&grid.nodes[node].hosts, &running.machines.ledger);
            // Room for what floats may come from the moves for another.
            let fits = !grant.place.is_floating()
                && !capacity::has_no_room(hosts, promised(ledger), grant, &attempt.request, now)
                && !links::may_lack_room(grid, ledger, reservation, now);
            let has_begun = reservation.window.start <= now.utc;
            if fits || has_begun {
                wrong = Some((attempt.request.clone(), format!("s{node} has dropped seat {seat} of {attempt:?}")));
            }
            taken_away.push((attempt.request.clone(), grant.clone()));
        }
    }
    if let Some((request, what)) = wrong {
        return grid.violate("only what has no room is dropped", Some(&request), what);
    }
    for (request, grant) in &taken_away {
        grid.truth.note_lost(request, node, grant);
    }
    grid.nodes[node].dropped = dropped;
}

/// Something new about a request was reported to its user by `node`, which coordinates it.
pub fn check_news(grid: &mut Grid, node: usize, id: &RequestId, before: &Report) {
    let Some(user) = grid.users.get(id) else { return };
    let found = match (before, &user.report) {
        (_, Report::Degraded(reservation)) => {
            grid.figures.degraded += u64::from(!matches!(before, Report::Degraded(_)));
            check_losses(grid, node, id, before, reservation)
        }
        (Report::Degraded(old), Report::Reserved { plan, .. }) => {
            let has_moved = old.plan.start != plan.start;
            grid.figures.moved += u64::from(has_moved);
            grid.figures.repaired += u64::from(!has_moved);
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(what) = check_handed(grid, node, id) {
        return grid.violate("a plan that was handed in is reserved as it is", Some(id), what);
    }
    let continues = check_continuity(grid, node, id, before);
    if let Err(what) = found.and(continues) {
        grid.violate("losses are real and made good for", Some(id), what);
    }
}

/// Until hosts are lost, or another node coordinates it, a reservation is the plan that was handed in.
fn check_handed(grid: &Grid, node: usize, id: &RequestId) -> Result<(), String> {
    let Some(user) = grid.users.get(id) else { return Ok(()) };
    let (Some(handed), Report::Reserved { plan, .. }) = (&user.handed_in, &user.report) else { return Ok(()) };
    let is_first = grid.negotiation(node, id).is_some_and(|negotiation| negotiation.record().reservation.is_none());
    if is_first && handed.seats != plan.seats {
        return Err(format!("handed in: {:?}; reserved: {:?}", handed.seats, plan.seats));
    }
    Ok(())
}

fn check_losses(
    grid: &Grid,
    node: usize,
    id: &RequestId,
    before: &Report,
    reservation: &Reservation,
) -> Result<(), String> {
    for (number, loss) in &reservation.lost {
        let Some(seat) = reservation.plan.seat(*number) else { return Err(format!("lost seat {number} is unknown")) };
        // Its site may have forgotten all of a reservation that ends about now.
        let has_ended = seat.window.end <= grid.utc() + CLOCKS_DIFFER;
        let was_lost = before.plan().is_some_and(|plan| has(plan, seat)) && before.is_lost(seat);
        if has_ended || was_lost {
            continue;
        }
        let Some(index) = names::index_of(&seat.site) else { continue };
        match loss {
            Loss::TakenBack if grid.truth.is_lied_about(id) => {}
            Loss::TakenBack => {
                let parts = reservation.parts.iter().filter(|part| part.seats.contains(number));
                let names: Vec<AttemptId> = parts.map(|part| name_of(grid, node, id, part.attempt)).collect();
                let is_there = grid.nodes[index]
                    .has_on_disk(id, |reservation, one| names.contains(&reservation.attempt) && one.seat == *number);
                let is_taken_away = grid.truth.is_lost(id, index, seat);
                if is_there && !is_taken_away {
                    return Err(format!("seat {number} at s{index} is reported as taken back, but is there"));
                }
                if matches!(before, Report::Reserved { .. }) && !is_taken_away {
                    return Err(format!("seat {number} at s{index} is gone, which its owner has not taken away"));
                }
            }
            Loss::SiteSilent => check_silence(grid, node, id, index)?,
        }
    }
    Ok(())
}

/// Whether a plan has a seat, as it was or bound since.
fn has(plan: &Plan, seat: &Seat) -> bool {
    let is_it = |one: &Seat| one.site == seat.site && floating::is_same(&Grant::from(seat), &Grant::from(one));
    plan.seats.iter().any(is_it)
}

/// The name that sites know an attempt by.
fn name_of(grid: &Grid, node: usize, id: &RequestId, attempt: u32) -> AttemptId {
    let record = grid.nodes[node].disk.requests.get(id);
    let of_another = record.and_then(|record| record.taken_over.get(&attempt)).cloned();
    let own = AttemptId { entry_point: grid.nodes[node].site.clone(), request: id.clone(), attempt };
    of_another.unwrap_or(own)
}

fn check_silence(grid: &Grid, node: usize, id: &RequestId, site: usize) -> Result<(), String> {
    let Some(running) = grid.nodes[node].running() else { return Ok(()) };
    let Some(losses) = &grid.options.losses else { return Err("nothing is ever lost in this seed".to_owned()) };
    // Questions of a node that is slow, or waits for its disk, leave late, and their answers come too late for it. What came while it
    // wrote down that the site is silent, and then what came of the search for other hosts, was too late as well.
    let slow_ms = if grid.options.faults.slowness { SLOW_MS_MAX } else { 0 };
    let (last, before) = running.inspected.get(&(id.clone(), site)).copied().unwrap_or_default();
    let is_late = grid.now().ms_since(last) <= 2 * (grid.nodes[node].disk_ms_max + slow_ms);
    let heard = if is_late { before } else { last }.max(running.started);
    let late_ms = 2 * (grid.nodes[node].disk_ms_max + slow_ms) + grid.options.answer_timeout.0;
    let silent_ms = grid.now().ms_since(heard) + late_ms;
    // After a crash it is known from the disk that the site was silent before.
    let is_known = grid.nodes[node].disk.requests.get(id).and_then(|record| record.reservation.as_ref());
    let is_known = running.started > Moment::default()
        && is_known.is_some_and(|known| {
            let mut lost = known.lost.keys().filter_map(|number| known.plan.seat(*number));
            lost.any(|seat| seat.site == names::site(site))
        });
    if silent_ms * 100 < losses.lost_after.0 * PERCENT_OF_SILENCE && !is_known {
        return Err(format!("s{site} is reported as silent, but answered {} ms ago", grid.now().ms_since(heard)));
    }
    Ok(())
}

/// What is left of the reported plan stays, at the same start, unless all of it moves in time and the user allows it.
fn check_continuity(grid: &Grid, node: usize, id: &RequestId, before: &Report) -> Result<(), String> {
    let Some(user) = grid.users.get(id).filter(|_| !grid.truth.is_lied_about(id)) else { return Ok(()) };
    let (Some(old), Some(new)) = (before.plan(), user.report.plan()) else { return Ok(()) };
    let now = grid.clock(node).utc;
    let is_degraded = matches!(before, Report::Degraded(_));
    let has_begun = old.start + REPORTING <= now;
    if is_degraded && !has_begun && user.request.moves_on_loss() {
        return Ok(());
    }
    // What its site may do is checked on its disk.
    let has_waited = new.start > old.start && new.start <= old.start + user.request.demand().slack();
    if old.start != new.start && !has_waited {
        return Err(format!("it has moved from {} to {} at {}", old.start.0, new.start.0, now.0));
    }
    // Where a seat was bound is written at the end of a round: a node that crashes before shows at its start what it had written.
    let has_started = grid.nodes[node].running().is_some_and(|running| running.started == grid.now());
    let floats_again = |seat: &Seat| {
        let written = new.seat(seat.number).filter(|one| has_started && one.place.is_floating());
        written.is_some_and(|one| has(old, one))
    };
    let is_kept = |seat: &Seat| has(new, seat) || floats_again(seat);
    let gone = old.seats.iter().find(|grant| !before.is_lost(grant) && !is_kept(grant));
    match gone {
        Some(gone) => Err(format!("seat {} at {} was not lost and is not part of it any more", gone.number, gone.site)),
        None => Ok(()),
    }
}

/// The seats of attempts that a ledger that has just been opened has dropped from the reservations on its disk.
fn dropped<'a>(
    disk: impl Iterator<Item = &'a BookingRecord>,
    ledger: &SiteLedger,
) -> BTreeSet<(AttemptId, SeatNumber)> {
    let mut dropped = BTreeSet::new();
    for reservation in disk {
        let booking = ledger.bookings().find(|booking| booking.attempt == reservation.attempt);
        for grant in &reservation.grants {
            if !booking.is_some_and(|booking| booking.grants.iter().any(|one| floating::is_same(grant, one))) {
                dropped.insert((reservation.attempt.clone(), grant.seat));
            }
        }
    }
    dropped
}
