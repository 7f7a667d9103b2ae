//! A degraded reservation stays so only where it cannot be repaired: all ways to choose the missing seats are tried, one by
//! one, on what the ledgers have.
//!
//! Invariant: says that something can be repaired only when that is certain: with few hosts to choose from, the start well
//! ahead, and nothing else of the request at their sites. A host of a reservation gives something: at least a unit of all
//! that is asked for in sum, where there is a unit for every host (`docs/dev/algorithm.md`). One that is full is none.

use std::collections::BTreeSet;

use broker::{
    amount::Amount,
    demand::Demand,
    ids::{RequestId, SiteId},
    ledger::Books,
    negotiation::Reservation,
    plan::Seat,
    request::Request,
    resources::{Amounts, ResourceName, amount_of},
    time::{Span, Window},
};

use super::{super::grid::Grid, links};

/// More hosts to choose from are not looked at.
const HOSTS_MAX: usize = 16;
/// More missing hosts are not looked at.
const MISSING_MAX: usize = 3;
/// A start closer than this may have passed at some site.
const AHEAD: Span = Span(120);

/// A host that could be a part of the reservation.
struct Free {
    site: SiteId,
    amounts: Amounts,
}

/// Whether hosts are free that would make what is left of a reservation whole again at its start.
pub fn could_be_repaired(grid: &Grid, id: &RequestId, request: &Request, reservation: &Reservation) -> bool {
    let missing = reservation.missing_seats(request).len();
    let Some(demand) = &request.demand_of(reservation.plan.variant()) else { return false };
    // Whose share has room is not worked out here.
    if grid.options.shares.is_some() || reservation.plan.start < grid.utc() + AHEAD || missing > MISSING_MAX {
        return false;
    }
    let kept = || reservation.plan.seats.iter().filter(|seat| !reservation.is_lost(seat.number));
    let mut rest = Amounts::new();
    for (name, total) in demand.total() {
        let kept = kept().fold(Amount::ZERO, |sum, seat| sum + amount_of(&seat.amounts, name));
        rest.insert(name.clone(), total.saturating_sub(kept));
    }
    let mut least = demand.per_host().clone();
    for (name, rest) in &rest {
        least.entry(name.clone()).or_insert(Amount(u64::from(rest.0 >= missing as u64)));
    }
    let free = free_hosts(grid, id, (request, demand, reservation), &least);
    let sites: BTreeSet<&SiteId> = kept().map(|seat| &seat.site).collect();
    let bears = |new: &[&SiteId]| links::bear(grid, demand, &reservation.plan, new);
    let limits = Limits { sites_max: demand.sites_max().unwrap_or(usize::MAX), bears: &bears };
    free.len() <= HOSTS_MAX && choose(&free, missing, &rest, (&sites, &[]), &limits)
}

/// What the sites of hosts together must keep to.
struct Limits<'a> {
    sites_max: usize,
    /// Whether the links bear new hosts at these sites.
    bears: &'a dyn Fn(&[&SiteId]) -> bool,
}

/// What each host has free for as long as it needs, of those that are neither part of the reservation nor lost, have `least`, and
/// meet the deadline.
fn free_hosts(
    grid: &Grid,
    id: &RequestId,
    (request, demand, reservation): (&Request, &Demand, &Reservation),
    least: &Amounts,
) -> Vec<Free> {
    let mut free = Vec::new();
    // A site gives a node that hoards there nothing, also where it coordinates what its users have asked for.
    let hoarded =
        grid.options.hoards.as_ref().map(|hoards| hoards.parties(grid.options.entry_points, grid.nodes.len()).1);
    for (index, node) in grid.nodes.iter().enumerate().filter(|(index, _)| Some(*index) != hoarded) {
        // An owner that has taken hosts back gives the request no others.
        let has_evicted = grid.truth.evicted_at(index).any(|attempt| attempt.request == *id);
        let promises = !node.is_draining && !node.room.is_missed() && node.offered.is_none();
        let Some(running) = node.running().filter(|_| promises && !has_evicted) else { continue };
        let ledger = &running.machines.ledger;
        // What own jobs would lose by it is not worked out here.
        let may_lose = ledger.has_jobs_to_move();
        if may_lose || ledger.bookings().any(|booking| booking.attempt.request == *id) {
            continue;
        }
        for books in ledger.hosts() {
            let host = books.host();
            let here = |seat: &Seat| seat.site == node.site && *seat.host() == host.id;
            let own = Window::starting(reservation.plan.start, demand.length_on(host));
            // With traffic all end together.
            let window = if demand.traffic().is_some() { reservation.plan.window() } else { own };
            let is_late = request.window().deadline.is_some_and(|deadline| window.end > deadline);
            if own.end > window.end || is_late || reservation.plan.seats.iter().any(here) {
                continue;
            }
            let left = |(name, capacity): (&ResourceName, &Amount)| {
                (name.clone(), capacity.saturating_sub(books.reserved().peak(name, window)))
            };
            let amounts: Amounts = host.capacity.iter().map(left).collect();
            let is_taken = demand.is_exclusive() && amounts != host.capacity;
            if !is_taken && least.iter().all(|(name, least)| amount_of(&amounts, name) >= *least) {
                free.push(Free { site: node.site.clone(), amounts });
            }
        }
    }
    free
}

/// Whether some `count` of these, beside those that are chosen, together have `rest`, and lie with `sites` where the limits allow it.
fn choose(
    free: &[Free],
    count: usize,
    rest: &Amounts,
    (sites, chosen): (&BTreeSet<&SiteId>, &[&SiteId]),
    limits: &Limits<'_>,
) -> bool {
    if count == 0 {
        let is_whole = rest.values().all(|amount| *amount == Amount::ZERO);
        return is_whole && sites.len() <= limits.sites_max && (limits.bears)(chosen);
    }
    (0..free.len()).any(|index| {
        let Free { site, amounts } = &free[index];
        let left = rest.iter().map(|(name, amount)| (name.clone(), amount.saturating_sub(amount_of(amounts, name))));
        let mut sites = sites.clone();
        sites.insert(site);
        let chosen: Vec<&SiteId> = chosen.iter().copied().chain([site]).collect();
        choose(&free[index + 1..], count - 1, &left.collect(), (&sites, &chosen), limits)
    })
}
