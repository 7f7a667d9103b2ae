//! Money: nothing is promised below its price, what a request costs at all sites stays within its budget, and both sides agree on what
//! is to be paid for what was given back.
//!
//! Invariant: prices are read off the owners, costs off the disks of sites, budgets off what users have asked for.

use broker::{
    cost::Cost,
    ids::RequestId,
    ledger::{Booking, ChargedFor},
    negotiation::RequestRecord,
    protocol::AttemptId,
    time::{Span, Time},
};

use super::super::{grid::Grid, names};

/// A site takes a request that is so late for one in time: clocks differ.
const CLOCKS_DIFFER: Span = Span(60);

/// A ledger has changed: every new booking costs what the owner of its hosts asks for, or more.
pub fn check_prices(grid: &mut Grid, site: usize, new: &[AttemptId]) {
    let now = grid.clock(site).utc;
    let Some(running) = grid.nodes[site].running().filter(|_| grid.options.money.is_some()) else { return };
    let of_new = running.machines.ledger.bookings().filter(|booking| new.contains(&booking.attempt));
    let wrong = |booking: &Booking| Some((booking.attempt.clone(), below_price(grid, site, booking, now)?));
    let found: Vec<(AttemptId, String)> = of_new.filter_map(wrong).collect();
    for (attempt, what) in found {
        grid.violate("nothing is promised for another price", Some(&attempt.request), format!("s{site}: {what}"));
    }
}

fn below_price(grid: &Grid, site: usize, booking: &Booking, now: Time) -> Option<String> {
    booking.grants.iter().find_map(|grant| {
        let window = grant.window.earlier(booking.wait);
        let (host, _) = grid.nodes[site].hosts_at_first.iter().find(|(host, _)| host.id == *grant.host())?;
        let asked = |at| host.tariff.agreement(Some(at), window, &grant.amounts);
        let (least, most) = (asked(now - CLOCKS_DIFFER), asked(now + CLOCKS_DIFFER));
        let is_price = grant.agreed.is_between(&least, &most);
        let (agreed, asked) = (grant.agreed.cost, least.cost);
        (!is_price).then(|| format!("seat {} for {agreed}, asked {asked}", grant.seat))
    })
}

/// The disk of a site has changed: what all sites have of a request that is known to be committed, and what was charged for it, is
/// within its budget.
pub fn check_budget(grid: &mut Grid, request: &RequestId) {
    let user = grid.users.get(request).filter(|_| !grid.truth.is_lied_about(request));
    let Some(budget) = user.and_then(|user| user.request.budget()) else { return };
    let all = promised(grid, request);
    if all > budget {
        grid.violate("a request stays within its budget", Some(request), format!("{all} of {budget} are promised"));
    }
}

/// The same of all requests of a batch together.
pub fn check_batch_budget(grid: &mut Grid, request: &RequestId) {
    let Some((batch, Some(budget))) = grid.users.get(request).and_then(|user| user.batch) else { return };
    let members = grid.users.all().filter(|user| user.batch.is_some_and(|(of, _)| of == batch));
    let members: Vec<RequestId> = members.map(|user| names::request(user.number)).collect();
    if members.iter().any(|member| grid.truth.is_lied_about(member)) {
        return;
    }
    let all: Cost = members.iter().map(|member| promised(grid, member)).sum();
    if all > budget {
        grid.violate("a batch stays within its budget", Some(request), format!("{all} of {budget} are promised"));
    }
}

/// What all sites have of a request that is known to be committed, and what was charged for it.
fn promised(grid: &Grid, request: &RequestId) -> Cost {
    let is_of = |attempt: &AttemptId| attempt.request == *request;
    let of_disks = grid.nodes.iter().map(|node| {
        // What is charged is written before the booking goes.
        let stands = |attempt| is_of(attempt) && !node.disk.charges.contains_key(attempt);
        let settled = node.disk.reservations.values().filter(|booking| booking.settled && stands(&booking.attempt));
        let agreed: Cost = settled.flat_map(|booking| &booking.grants).map(|grant| grant.agreed.cost).sum();
        let charges = node.disk.charges.values().filter(|charge| is_of(&charge.attempt));
        let charged: Cost = charges.map(|charge| charge.charged).sum();
        [agreed, charged].into_iter().sum::<Cost>()
    });
    of_disks.sum()
}

/// At the end: what sites have charged for what was given back is what the coordinator of the user has written down.
pub fn check_dues(grid: &mut Grid) {
    let mut found = None;
    for node in &grid.nodes {
        for record in node.disk.requests.values().filter(|record| !grid.truth.is_lied_about(&record.id)) {
            for due in record.dues.iter().filter(|due| due.is_final) {
                let own =
                    AttemptId { entry_point: node.site.clone(), request: record.id.clone(), attempt: due.attempt };
                let attempt = record.taken_over.get(&due.attempt).unwrap_or(&own);
                let Some(site) = names::index_of(&due.site) else { continue };
                let charged = grid.nodes[site].disk.charges.get(attempt).map_or(Cost::ZERO, |charge| charge.charged);
                if charged != due.cost {
                    let what = format!("s{site} has charged {charged} for #{}, known are {}", due.attempt, due.cost);
                    found = Some((record.id.clone(), what));
                }
            }
        }
    }
    if found.is_none() {
        found = unknown_charge(grid);
    }
    if let Some((request, what)) = found {
        grid.violate("both sides agree on what is to be paid", Some(&request), what);
    }
}

/// A charge for something given back that the coordinator does not know of, although it has had every answer: it has coordinated the request
/// from the beginning on, and nothing is owed to it.
fn unknown_charge(grid: &Grid) -> Option<(RequestId, String)> {
    for (index, site) in grid.nodes.iter().enumerate() {
        let cancelled = site.disk.charges.values().filter(|charge| charge.reason == ChargedFor::Cancellation);
        for charge in cancelled.filter(|charge| !charge.charged.is_zero()) {
            let AttemptId { entry_point, request, attempt } = &charge.attempt;
            if grid.truth.is_lied_about(request) {
                continue;
            }
            let node = names::index_of(entry_point).map(|node| &grid.nodes[node]);
            let record = node.filter(|node| node.running().is_some()).and_then(|node| node.disk.requests.get(request));
            let Some(record) = record.filter(|record| record.taken_over.is_empty() && record.successor.is_none())
            else {
                continue;
            };
            // The node that has taken it over was told.
            let takes = |of: &RequestRecord| of.taken_over.values().any(|name| *name == charge.attempt);
            if grid.nodes.iter().any(|other| other.disk.requests.get(request).is_some_and(takes)) {
                continue;
            }
            let knows = record.dues.iter().any(|due| due.attempt == *attempt && due.site == site.site);
            if !knows && record.owed.is_empty() {
                let what = format!(
                    "s{index} has charged {} for #{attempt}, which {entry_point} does not know",
                    charge.charged
                );
                return Some((request.clone(), what));
            }
        }
    }
    None
}
