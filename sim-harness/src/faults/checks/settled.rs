//! After the healing everything settles: every request is decided, sites have what is reserved and nothing else, views agree.
//!
//! Invariant: what is left for good without a reason keeps the grid from ever being settled, so it is found when the
//! time for that is over. The reasons that are accepted are in [`is_justified`].

use std::collections::BTreeSet;

use broker::{
    ids::{RequestId, SiteId},
    ledger::{Booking, BookingState, Books},
    negotiation::{Negotiation, Reservation, Stage},
    protocol::{AttemptId, AttemptStatus},
    time::{Millis, Span},
};

use super::{
    super::{
        grid::Grid,
        names,
        node::{Node, Running},
    },
    lied, repairable,
};
use crate::engine::{Actor, Write};

/// A reservation that ends about now may be forgotten by one site and not yet by another.
const CLOCKS_DIFFER: Span = Span(45);

/// What has not settled yet, and the request that it is about.
pub fn unsettled(grid: &Grid) -> Option<(Option<RequestId>, String)> {
    for (index, node) in grid.nodes.iter().enumerate() {
        let Some(running) = node.running() else {
            if node.is_gone() {
                continue;
            }
            return Some((None, format!("s{index} does not run")));
        };
        if !running.writes.values().all(|write| is_of_repair(running, write)) {
            return Some((None, format!("s{index} is still writing")));
        }
        if let Some(found) = unsettled_request(grid, index, running).or_else(|| unsettled_booking(grid, index, running))
        {
            return Some(found);
        }
        if let Some(what) = unsettled_view(grid, index, node, running) {
            return Some((None, what));
        }
    }
    lied::untold(grid).map(|(request, what)| (Some(request), what))
}

fn is_gone(grid: &Grid, site: &SiteId) -> bool {
    names::index_of(site).is_some_and(|site| grid.nodes[site].is_gone())
}

fn unsettled_request(grid: &Grid, index: usize, running: &Running) -> Option<(Option<RequestId>, String)> {
    for (id, negotiation) in &running.machines.negotiations {
        let found = |doing: &str| Some((Some(id.clone()), format!("s{index} is not done with it: {doing}")));
        let another = grid.users.get(id).map(|user| user.entry_point).filter(|node| *node != index);
        let is_anothers = another.is_some_and(|node| grid.negotiation(node, id).is_some());
        let is_closed = matches!(negotiation.stage(), Stage::Closed { .. });
        // What it still believes of a time that has passed keeps no host from anybody.
        let start = negotiation.reserved_plan().map(|plan| plan.start);
        let has_begun = start.is_some_and(|start| start <= grid.utc());
        if !is_closed && knows_alone(grid, index, id) {
            continue;
        }
        if is_anothers && !is_closed && !has_begun {
            return found("another node coordinates it");
        }
        if let Some(reservation) = degraded(negotiation) {
            if is_unrestricted(grid, negotiation)
                && repairable::could_be_repaired(grid, id, &negotiation.record().request, reservation)
            {
                let why = reservation.failure.as_ref().map_or_else(String::new, |why| format!("{why:?}"));
                return found(&format!("it is degraded, and the hosts for it are there; last repair: {why}"));
            }
            continue;
        }
        if !is_closed && !matches!(negotiation.stage(), Stage::Reserved(_)) {
            return found("it is not decided");
        }
        // A site that is gone for good never acknowledges; what the others still have is found there.
        let is_gone = |site: &SiteId| is_gone(grid, site);
        let owes_the_gone = negotiation.record().owed.iter().any(|owed| is_gone(&owed.site));
        // Nor does it ever settle, which releases of the same attempt wait for until its seats count as lost.
        let counts_as_lost = grid.options.losses.is_some();
        let mut kept = negotiation.reserved_plan().into_iter().flat_map(|plan| &plan.seats);
        let waits_for_the_gone = !counts_as_lost && kept.any(|seat| is_gone(&seat.site));
        if !negotiation.is_quiet() && !owes_the_gone && !waits_for_the_gone {
            return found("releases are not acknowledged");
        }
    }
    None
}

/// Whether neither a budget nor the conditions of owners can be in the way of a repair.
fn is_unrestricted(grid: &Grid, negotiation: &Negotiation) -> bool {
    let has_budget = negotiation.record().request.budget().is_some();
    grid.options.money.as_ref().is_none_or(|money| !money.restricts && !has_budget)
}

/// Whether a node goes on with a request because the node that its user went to is gone for good: nobody else knows what
/// was done there for the user, unless the node that the user asks now has taken the request over: that one asks all
/// others.
fn knows_alone(grid: &Grid, index: usize, id: &RequestId) -> bool {
    let Some(user) = grid.users.get(id).filter(|user| user.entry_point != index) else { return false };
    if !user.signed_for.iter().any(|node| grid.nodes[*node].is_gone()) {
        return false;
    }
    grid.negotiation(user.entry_point, id).is_none_or(|negotiation| negotiation.record().taken_over.is_empty())
}

/// What is left of a reservation that is degraded, or being repaired; that goes on until it begins.
fn degraded(negotiation: &Negotiation) -> Option<&Reservation> {
    match negotiation.stage() {
        Stage::Degraded { reservation, .. } => Some(reservation),
        _ => None,
    }
}

/// Whether a write is of a repair, of which there is one after another.
fn is_of_repair(running: &Running, write: &(Actor, Write)) -> bool {
    let Actor::Request(id) = &write.0 else { return false };
    running.machines.negotiations.get(id).is_some_and(|negotiation| degraded(negotiation).is_some())
}

fn unsettled_booking(grid: &Grid, index: usize, running: &Running) -> Option<(Option<RequestId>, String)> {
    let ended = grid.utc() + CLOCKS_DIFFER;
    for booking in running.machines.ledger.of_users().filter(|booking| booking.window.end > ended) {
        let number = booking.attempt.attempt;
        let what = match &booking.state {
            // A repair that is still looked for may hold at any time.
            BookingState::Held { .. } if is_degraded(grid, &booking.attempt.request) => continue,
            BookingState::Held { .. } => format!("s{index} still holds #{number}"),
            _ if booking.grants.is_empty() => continue,
            BookingState::Confirmed { .. } if all_run(grid, booking) => {
                format!("s{index} has not learnt the outcome of #{number}")
            }
            _ if is_justified(grid, index, booking) => continue,
            // Its disk has lost that it was given back; nobody asks about one that has begun.
            BookingState::Settled if grid.truth.is_lied_about(&booking.attempt.request) => continue,
            _ => format!("s{index} has a booking of #{number}, which is not reserved"),
        };
        return Some((Some(booking.attempt.request.clone()), what));
    }
    None
}

/// Whether the entry point and all participants run, so that nothing is in the way of an outcome.
fn all_run(grid: &Grid, booking: &Booking) -> bool {
    let coordinator = booking.coordinator.as_ref().unwrap_or(&booking.attempt.entry_point);
    let all = booking.participants.iter().chain([coordinator]);
    all.filter_map(names::index_of).all(|site| grid.nodes[site].running().is_some())
}

fn is_degraded(grid: &Grid, id: &RequestId) -> bool {
    let negotiation = grid.users.get(id).and_then(|user| grid.negotiation(user.entry_point, id));
    negotiation.is_some_and(|negotiation| degraded(negotiation).is_some())
}

/// Whether a booking may stay. It may when it is part of the reservation that the node knows which the user asks. When
/// that node, or the coordinator, is gone for good, it may when the reservation was reported to the user; when all
/// participants have confirmed or once had, since then it may have been reported (only the node that is gone knew whether
/// the user or the coordinator then decided against it); and when a participant is gone for good as well, since then
/// nobody can know. So may what a node goes on with that nobody can correct ([`knows_alone`]), and what a disk has there again that its
/// site had given back, when its coordinator has left the request to another: it says nothing more of that.
fn is_justified(grid: &Grid, index: usize, booking: &Booking) -> bool {
    let attempt = &booking.attempt;
    let Some(user) = grid.users.get(&attempt.request) else { return false };
    let is_gone = |site: &SiteId| is_gone(grid, site);
    if let Some(negotiation) = grid.negotiation(user.entry_point, &attempt.request) {
        let is_reserved = matches!(negotiation.stage(), Stage::Reserved(_) | Stage::Degraded { .. });
        let site = &grid.nodes[index].site;
        if is_reserved
            && negotiation.record().status_of(&grid.nodes[user.entry_point].site, attempt, site)
                == AttemptStatus::Confirmed
        {
            return true;
        }
    }
    let coordinator = booking.coordinator.as_ref().unwrap_or(&attempt.entry_point);
    if names::index_of(coordinator).is_some_and(|node| knows_alone(grid, node, &attempt.request)) {
        return true;
    }
    if !is_gone(coordinator) {
        return grid.truth.is_lied_about(&attempt.request) && user.signed_for.len() > 1;
    }
    let is_reported = user
        .report
        .plan()
        .is_some_and(|plan| [booking.window.start, booking.window.start - booking.wait].contains(&plan.start));
    let mut participants = booking.participants.iter();
    is_reported || grid.truth.was_complete(attempt) || participants.any(is_gone)
}

/// At the end the schedules of every ledger are what its bookings and the owner's own work add up to: what was given
/// back early is free.
pub fn check_books(grid: &mut Grid) {
    let from = grid.utc() + CLOCKS_DIFFER;
    let mut found = None;
    for (index, node) in grid.nodes.iter().enumerate() {
        let Some(running) = node.running() else { continue };
        let ledger = &running.machines.ledger;
        for host in ledger.hosts() {
            let mut sum = host.own().clone();
            let confirmed = |booking: &&Booking| !matches!(booking.state, BookingState::Held { .. });
            // Others do not see own jobs that may be stopped.
            let may_stop: BTreeSet<&AttemptId> =
                ledger.own_jobs().filter(|own| own.job.preempt).map(|own| &own.job.attempt).collect();
            let is_shown = |booking: &&Booking| confirmed(booking) && !may_stop.contains(&booking.attempt);
            for booking in ledger.bookings().filter(is_shown) {
                for grant in booking.grants.iter().filter(|grant| *grant.host() == host.host().id) {
                    sum.add(grant.window, &grant.amounts);
                }
            }
            let mut reserved = host.reserved().clone();
            sum.forget_before(from);
            reserved.forget_before(from);
            if sum != reserved {
                found = Some(format!("s{index} has {} reserved otherwise than its bookings say", host.host().id));
            }
        }
    }
    if let Some(what) = found {
        grid.violate("what is given back is free", None, what);
    }
}

fn unsettled_view(grid: &Grid, index: usize, node: &Node, running: &Running) -> Option<String> {
    let now = node.clock.now(grid.now()).monotonic;
    for (other, of_other) in grid.nodes.iter().enumerate().filter(|(other, _)| *other != index) {
        let Some(there) = of_other.running() else { continue };
        let known = running.views.get(other).and_then(|view| view.fresh_schedules(now, Millis(u64::MAX)));
        if known.map(|known| known.version) != Some(there.machines.ledger.version()) {
            return Some(format!("the view that s{index} has of s{other} is not up to date"));
        }
    }
    None
}
