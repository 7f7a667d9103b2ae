//! Jobs of owners: none is lost once it was acknowledged, none begins anew unless its owner allows it to be stopped, none is planned or runs
//! where something is promised, holds cost them no more than their owner allows, and none is stopped for what is only held.
//!
//! Invariant: goes by what owners have ordered, by disks, and by sums of its own; what the ledger has reckoned is not asked for.

use std::collections::BTreeSet;

use broker::{
    ids::{RequestId, SeatNumber},
    ledger::{JobStage, OwnJob},
    plan::Place,
    protocol::{AttemptId, Grant},
    time::{Now, Span, Window},
};

use super::{
    super::{grid::Grid, truth::Shown},
    capacity,
};

/// A site has started: it has every job that was acknowledged and that has not ended on its disk. A booking that it had given back, but
/// not on disk, is there again, and is no new hold.
pub fn check_start(grid: &mut Grid, node: usize) {
    grid.truth.forget_shown(node);
    let Some(running) = grid.nodes[node].running() else { return };
    let known: BTreeSet<&AttemptId> = running.machines.ledger.own_jobs().map(|own| &own.job.attempt).collect();
    let lost = grid.truth.own_jobs_at(node).find(|attempt| !known.contains(attempt)).map(|lost| lost.request.clone());
    if let Some(job) = lost {
        grid.violate("an own job that was acknowledged is kept", Some(&job), format!("s{node} starts without it"));
    }
}

/// The ledger of a site has changed.
pub fn check_ledger(grid: &mut Grid, node: usize) {
    let Some(percent) = grid.options.queues.as_ref().map(|queues| queues.loss_percent) else { return };
    let (now, Some(running)) = (grid.clock(node), grid.nodes[node].running()) else { return };
    let ledger = &running.machines.ledger;
    let mut shown = Shown::default();
    let mut planned: Vec<(AttemptId, Grant)> = Vec::new();
    let mut begins_again = None;
    for OwnJob { job, stage } in ledger.own_jobs() {
        let JobStage::Waits(place) = stage else { continue };
        shown.waits.insert(job.attempt.clone(), place.is_late);
        if grid.truth.has_ended(node, &job.attempt) {
            begins_again = Some(job.attempt.request.clone());
        }
        let Some(start) = place.start else { continue };
        for (seat, host) in (0..).zip(place.hosts) {
            let (window, amounts) = (Window::starting(start, job.length), job.amounts.clone());
            let grant =
                Grant { seat: SeatNumber(seat), place: Place::Host(host), window, amounts, agreed: Default::default() };
            planned.push((job.attempt.clone(), grant));
        }
    }
    shown.booked = ledger.bookings().map(|booking| (booking.attempt.clone(), booking.grants.clone())).collect();
    shown.held = ledger.bookings().filter(|one| one.is_held()).map(|one| one.attempt.clone()).collect();
    let stopped = grid.truth.shown_at(node).and_then(|before| stopped(before, &shown));
    let stopped = stopped.filter(|attempt| !grid.truth.may_stop(attempt)).cloned();
    let held_back = grid.truth.shown_at(node).and_then(|before| only_held_back(grid, node, before, &shown, now));
    let over = capacity::check_planned(&grid.nodes[node], ledger, &planned, now).err();
    let cost = grid.truth.shown_at(node).and_then(|before| excess(before, &shown, percent));
    if let Some(job) = begins_again {
        grid.violate("an own job begins once", Some(&job), format!("s{node} would begin it again"));
    } else if let Some(job) = stopped {
        let what = format!("s{node} has stopped it, or is about to");
        grid.violate("an own job that runs is stopped only where its owner allows it", Some(&job.request), what);
    } else if let Some(job) = held_back {
        let what = format!("s{node} has stopped it where there is room beside what is booked");
        grid.violate("what is only held stops no own job", Some(&job), what);
    } else if let Some((job, what)) = over.map(|found| *found) {
        grid.violate("own jobs are planned beside what is promised", Some(&job), format!("s{node}: {what}"));
    } else if let Some(what) = cost {
        grid.violate("holds cost the own queue no more than its owner allows", None, format!("s{node}: {what}"));
    }
    grid.truth.note_shown(node, shown);
}

/// An own job that has less time than before, although it is there.
fn stopped<'a>(before: &'a Shown, after: &Shown) -> Option<&'a AttemptId> {
    let end = |grants: &[Grant]| grants.iter().map(|grant| grant.window.end).max();
    let is_stopped = |(attempt, grants): &(&AttemptId, &Vec<Grant>)| {
        let is_shorter = after.booked.get(*attempt).is_some_and(|now| end(now) < end(grants));
        after.waits.contains_key(*attempt) || is_shorter && attempt.attempt == 0
    };
    before.booked.iter().find(is_stopped).map(|(attempt, _)| attempt)
}

/// An own job whose time is over just now and that waits again, although there is room for it on each of its hosts beside what is not
/// only held: beside what was there before the event, and beside what is there after it, since in one event a job may be stopped for a
/// reservation that is then given back, or what is held is confirmed.
fn only_held_back(grid: &Grid, node: usize, before: &Shown, after: &Shown, now: Now) -> Option<RequestId> {
    let hosts = &grid.nodes[node].hosts;
    let is_stopped = |(attempt, grants): &(&AttemptId, &Vec<Grant>)| {
        let ends_now = grants.iter().all(|grant| grant.window.end == now.utc);
        let has_room = |grant: &Grant| {
            let next = Grant { window: Window::starting(now.utc, Span(1)), ..grant.clone() };
            let is_free =
                |shown: &Shown| !capacity::has_no_room(hosts, shown.confirmed(), &next, &attempt.request, now);
            is_free(before) && is_free(after)
        };
        ends_now && after.waits.contains_key(*attempt) && grants.iter().all(has_room)
    };
    before.booked.iter().find(is_stopped).map(|(attempt, _)| attempt.request.clone())
}

/// What is wrong where nothing but holds of users has come: more own jobs are late than may be.
fn excess(before: &Shown, after: &Shown, percent: u32) -> Option<String> {
    let is_same = before.waits.keys().eq(after.waits.keys());
    let mut new = after.booked.iter().filter(|(attempt, _)| !before.booked.contains_key(*attempt)).peekable();
    new.peek()?;
    let only_users = new.all(|(attempt, _)| attempt.attempt > 0);
    let is_kept = before.booked.iter().all(|(attempt, grants)| after.booked.get(attempt) == Some(grants));
    let late = |shown: &Shown| shown.waits.values().filter(|is_late| **is_late).count() as u64;
    let may_come = after.waits.len() as u64 * u64::from(percent) / 100;
    let (was, is) = (late(before), late(after));
    (is_same && only_users && is_kept && is > was + may_come)
        .then(|| format!("{is} of {} own jobs are late after a hold, {was} before it", after.waits.len()))
}
