//! A degraded reservation stays so only where it cannot be repaired: all ways to choose the missing hosts are tried, one by
//! one, on what the ledgers have.
//!
//! Invariant: says that something can be repaired only when that is certain: with few hosts to choose from, the start well
//! ahead, and nothing else of the request at their sites. A host of a reservation gives something: at least a unit of all
//! that is asked for in sum, where there is a unit for every host (`docs/dev/algorithm.md`). One that is full is none.

use broker::{
    amount::Amount,
    ids::RequestId,
    ledger::Books,
    negotiation::Reservation,
    request::Request,
    resources::{Amounts, amount_of},
    time::{Span, Window},
};

use super::super::grid::Grid;

/// More hosts to choose from are not looked at.
const HOSTS_MAX: usize = 16;
/// More missing hosts are not looked at.
const MISSING_MAX: usize = 3;
/// A start closer than this may have passed at some site.
const AHEAD: Span = Span(120);

/// Whether hosts are free that would make what is left of a reservation whole again at its start.
pub fn could_be_repaired(grid: &Grid, id: &RequestId, request: &Request, reservation: &Reservation) -> bool {
    let missing = reservation.missing_hosts(request);
    let start = reservation.plan.start;
    if start < grid.utc() + AHEAD || missing > MISSING_MAX {
        return false;
    }
    let window = Window::starting(start, request.demand().length().at_reference());
    let mut rest = Amounts::new();
    for (name, total) in request.demand().total() {
        let kept = reservation.plan.seats.iter().filter(|grant| !reservation.is_lost(&grant.site, &grant.host));
        let kept = kept.fold(Amount::ZERO, |sum, grant| sum + amount_of(&grant.amounts, name));
        rest.insert(name.clone(), total.saturating_sub(kept));
    }
    let mut least = request.demand().per_host().clone();
    for (name, rest) in &rest {
        least.entry(name.clone()).or_insert(Amount(u64::from(rest.0 >= missing as u64)));
    }
    let free = free_hosts(grid, id, reservation, &least, window);
    free.len() <= HOSTS_MAX && choose(&free, missing, &rest)
}

/// What each host has free in the window, of those that are neither part of the reservation nor lost, and have `least`.
fn free_hosts(grid: &Grid, id: &RequestId, reservation: &Reservation, least: &Amounts, window: Window) -> Vec<Amounts> {
    let mut free = Vec::new();
    for node in &grid.nodes {
        let Some(running) = node.running() else { continue };
        if running.machines.ledger.bookings().any(|booking| booking.attempt.request == *id) {
            continue;
        }
        for host in running.machines.ledger.hosts() {
            let here = |grant: &broker::plan::Seat| grant.site == node.site && grant.host == host.host().id;
            if reservation.plan.seats.iter().any(here) {
                continue;
            }
            let mut amounts = Amounts::new();
            for name in least.keys() {
                let used = host.reserved().peak(name, window);
                amounts.insert(name.clone(), amount_of(&host.host().capacity, name).saturating_sub(used));
            }
            if least.iter().all(|(name, least)| amount_of(&amounts, name) >= *least) {
                free.push(amounts);
            }
        }
    }
    free
}

/// Whether some `count` of these together have `rest`.
fn choose(free: &[Amounts], count: usize, rest: &Amounts) -> bool {
    if count == 0 {
        return rest.values().all(|amount| *amount == Amount::ZERO);
    }
    (0..free.len()).any(|index| {
        let left =
            rest.iter().map(|(name, amount)| (name.clone(), amount.saturating_sub(amount_of(&free[index], name))));
        choose(&free[index + 1..], count - 1, &left.collect())
    })
}
