//! A success that was reported to a user is exactly N seats that together have what was asked, and it is on the disks of all
//! their sites until it ends, whatever crashes, except where the owner of a host has taken that away. Only a user who
//! cancels it ends it earlier, and only when the entry point has that on disk: until then a crash may forget it. A move that
//! the user has asked for, which may be to other hosts at the same start, replaces the report when the entry point has it on
//! disk, also when that crashes before anybody has looked. Of what a disk has lost that it had told was written, see `lied`.
//!
//! Invariant: reads the modelled disks, also those of nodes that do not run.

use std::collections::BTreeSet;

use broker::{
    ids::{HostId, RequestId, SeatNumber},
    negotiation::{Decision, Outcome, RequestRecord},
    plan::{Plan, Seat},
    protocol::Grant,
    resources::amount_of,
    time::Span,
};

use super::{
    super::{
        grid::Grid,
        names,
        users::{Report, UserRequest},
    },
    floating,
};

/// Sites may forget a reservation when it has ended on their clock, which is ahead by up to 20 s.
const CLOCKS_DIFFER: Span = Span(45);

/// What was reported to the user of this request must be true.
pub fn check_reported(grid: &mut Grid, id: &RequestId) {
    let Some(user) = grid.users.get(id) else { return };
    let Some(plan) = user.report.plan() else { return };
    let shape = if matches!(user.report, Report::Reserved { .. }) { check_shape(grid, user, plan) } else { Ok(()) };
    let disks = if grid.truth.is_lied_about(id) { Ok(()) } else { check_disks(grid, id, user, plan) };
    if let Err(what) = shape.and(disks) {
        grid.violate("a reported success is durable", Some(id), what);
    }
    super::receipts::check_receipts(grid, id);
}

/// A node that takes a reservation over takes it as its sites have it: of the same shape and factor. What it takes over to give it back, the
/// rests of earlier tries, may be of others.
pub fn check_taken_over(grid: &mut Grid, id: &RequestId, record: &RequestRecord) {
    let Some(reservation) = &record.reservation else { return };
    let taken = reservation.plan.variant();
    let booked = |attempt| grid.nodes.iter().find_map(|node| node.disk.reservations.get(attempt));
    let kept = reservation.parts.iter().filter_map(|part| record.taken_over.get(&part.attempt));
    let other = kept.filter_map(booked).find(|booking| booking.variant != taken);
    if let Some(booking) = other {
        let what = format!("{taken:?} was taken over, {:?} is booked", booking.variant);
        grid.violate("a takeover keeps what is reserved", Some(id), what);
    }
}

fn check_disks(grid: &Grid, id: &RequestId, user: &UserRequest, reported: &Plan) -> Result<(), String> {
    let record = grid.nodes[user.entry_point].disk.requests.get(id);
    let plan = match record.map(|record| &record.decision) {
        Some(Decision::Reserved { plan, attempt })
            if user.request.moves_on_loss() && user.report.is_before(*attempt) =>
        {
            plan
        }
        _ => reported,
    };
    let is_over = record.is_some_and(|record| match &record.decision {
        Decision::Closed(Outcome::HandedOver) => user.signed_for.len() > 1,
        Decision::Closed(_) => user.is_cancelled,
        _ => false,
    });
    if is_over {
        return Ok(());
    }
    let is_kept = |seat: &&Seat| !user.report.is_lost(seat) && seat.window.end > grid.utc() + CLOCKS_DIFFER;
    for seat in plan.seats.iter().filter(is_kept) {
        let index = names::index_of(&seat.site).ok_or_else(|| format!("there is no site {}", seat.site))?;
        let is_seat = |grant: &Grant| floating::is_same(&Grant::from(seat), grant);
        let is_there = grid.nodes[index].has_on_disk(id, |one, grant| one.variant == plan.variant() && is_seat(grant));
        if !is_there && !grid.truth.is_lost(id, index, seat) {
            let (number, host) = (seat.number, seat.host());
            return Err(format!("a success was reported, but seat {number} on {host} is not on the disk of s{index}"));
        }
    }
    Ok(())
}

/// What tells a seat from the others of its site: of one that floats only its site knows which host it would have.
fn host_or_number(seat: &Seat) -> Result<&HostId, SeatNumber> {
    if seat.place.is_floating() { Err(seat.number) } else { Ok(seat.host()) }
}

/// One shape of the request, whole: exactly N seats on distinct hosts, at no more sites than asked, each as long as its host needs and in time, the minima on each,
/// the totals in sum.
fn check_shape(grid: &Grid, user: &UserRequest, plan: &Plan) -> Result<(), String> {
    let demand = user.request.demand_of(plan.variant());
    let demand = &*demand.ok_or_else(|| format!("a plan of {}, which nobody has asked for", plan.variant()))?;
    let (asked, distinct): (_, BTreeSet<_>) =
        (demand.seats(), plan.seats.iter().map(|seat| (&seat.site, host_or_number(seat))).collect());
    if distinct.len() != asked || !plan.seats.iter().map(|seat| seat.number).eq(demand.numbers()) {
        return Err(format!("{} seats on {} hosts, instead of {asked}", plan.seats.len(), distinct.len()));
    }
    let sites: BTreeSet<_> = plan.seats.iter().map(|seat| &seat.site).collect();
    if let Some(most) = demand.sites_max().filter(|most| sites.len() > *most) {
        return Err(format!("at {} sites, {most} were asked for at most", sites.len()));
    }
    for seat in &plan.seats {
        let Seat { number, window, .. } = seat;
        let hosts = names::index_of(&seat.site).map(|index| &grid.nodes[index].hosts_at_first);
        let host = hosts.into_iter().flatten().find(|(host, _)| host.id == *seat.host());
        let length = host.map(|(host, _)| demand.length_on(host));
        let is_late = user.request.window().deadline.is_some_and(|deadline| window.end > deadline);
        // With traffic the slowest of all decides.
        let is_as_long = match demand.traffic() {
            None => Some(window.duration()) == length,
            Some(_) => length.is_some_and(|own| window.duration() >= own) && window.end == plan.end(),
        };
        if window.start != plan.start || !is_as_long || is_late {
            return Err(format!("seat {number} on {} is from {} to {}", seat.host(), window.start.0, window.end.0));
        }
    }
    super::links::check_plan(grid, demand, plan)?;
    for (name, minimum) in demand.per_host() {
        if let Some(seat) = plan.seats.iter().find(|seat| amount_of(&seat.amounts, name) < *minimum) {
            return Err(format!("seat {} gives less than the minimum of {}", seat.number, name.as_str()));
        }
    }
    for (name, total) in demand.total() {
        let sum: u64 = plan.seats.iter().map(|grant| amount_of(&grant.amounts, name).0).sum();
        if sum < total.0 {
            return Err(format!("{sum} of {} in sum instead of {}", name.as_str(), total.0));
        }
    }
    Ok(())
}
