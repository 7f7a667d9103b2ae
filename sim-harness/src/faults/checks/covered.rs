//! Every confirmed booking is what its user has asked for, through the entry point that the user chose.
//!
//! Invariant: compares with what the world knows that users did, never with what is written in a signed text.

use std::collections::BTreeSet;

use broker::{
    ids::HostId,
    ids::RequestId,
    ledger::BookingRecord,
    protocol::Grant,
    request::{Request, StartWindow},
    resources::Amounts,
    resources::amount_of,
    time::Window,
};

use super::super::{grid::Grid, names, users::UserRequest};

/// A site has something for this request on its disk.
pub fn check_covered(grid: &mut Grid, node: usize, request: &RequestId) {
    let user = grid.users.get(request);
    let of_request = |reservation: &&BookingRecord| reservation.attempt.request == *request;
    let found = grid.nodes[node].disk.reservations.values().filter(of_request).find_map(|reservation| {
        let Some(user) = user else { return Some("nobody has asked for it".to_owned()) };
        check_booking(grid, node, user, reservation).err()
    });
    if let Some(what) = found {
        grid.violate("a booking is what its user asked for", Some(request), format!("s{node}: {what}"));
    }
}

fn check_booking(grid: &Grid, node: usize, user: &UserRequest, booked: &BookingRecord) -> Result<(), String> {
    let number = booked.attempt.attempt;
    let Some(asked) = &user.request.of_variant(booked.variant) else {
        return Err(format!("#{number} is of {}, which nobody has asked for", booked.variant));
    };
    if booked.user_key != Some(user.user) {
        return Err(format!("#{number} is booked for another user"));
    }
    for by in std::iter::once(&booked.attempt.entry_point).chain(&booked.coordinator) {
        if !names::index_of(by).is_some_and(|by| user.signed_for.contains(&by)) {
            return Err(format!("#{number} is coordinated by {by}, which nobody has asked"));
        }
    }
    let seats: BTreeSet<_> = booked.grants.iter().map(|grant| grant.seat.0).collect();
    if seats.len() < booked.grants.len() || seats.last().is_some_and(|last| *last as usize >= asked.demand().seats()) {
        return Err(format!("#{number} has the seats {seats:?}, {} were asked for", asked.demand().seats()));
    }
    let sites = booked.participants.iter().collect::<BTreeSet<_>>().len();
    if asked.demand().sites_max().is_some_and(|most| sites > most) {
        return Err(format!("#{number} has {sites} participants"));
    }
    let mut grants = booked.grants.iter();
    grants.try_for_each(|grant| check_grant(grid, node, asked, grant)).map_err(|what| format!("#{number} {what}"))
}

/// Whether a window is within that of the request.
pub fn is_in_time(asked: &Request, window: Window) -> bool {
    let StartWindow { earliest, latest, deadline } = asked.window();
    earliest.is_none_or(|earliest| window.start >= earliest)
        && latest.is_none_or(|latest| window.start <= latest)
        && deadline.is_none_or(|deadline| window.end <= deadline)
}

/// The seat is as long as its host needs, in time, and has amounts that were asked for.
fn check_grant(grid: &Grid, node: usize, asked: &Request, grant: &Grant) -> Result<(), String> {
    let (demand, id) = (asked.demand(), grant.host());
    let host = grid.nodes[node].hosts_at_first.iter().find(|(host, _)| host.id == *id);
    let Some((host, _)) = host else { return Err(format!("is on {id}, which was never there")) };
    let (lasts, own) = (grant.window.duration(), demand.length_on(host));
    // With traffic the slowest of all decides.
    if lasts < own || lasts > own && demand.traffic().is_none() || !is_in_time(asked, grant.window) {
        return Err(format!("is booked on {id} for {:?}, which nobody asked for", grant.window));
    }
    if demand.per_host().iter().any(|(name, least)| amount_of(&grant.amounts, name) < *least) {
        return Err(format!("has less on {id} than was asked for"));
    }
    if demand.is_exclusive() {
        let is_whole = is_whole(grid, node, id, &grant.amounts);
        return if is_whole { Ok(()) } else { Err(format!("does not have the whole of {id}")) };
    }
    match grant.amounts.iter().find(|(name, amount)| **amount > demand.needed_in_sum(name)) {
        None => Ok(()),
        Some((name, _)) => Err(format!("has more {name} on {id} than was asked for in all")),
    }
}

/// Whether a site had a host with exactly these amounts at some time: its owner may take half of it away, and give it back.
fn is_whole(grid: &Grid, site: usize, host: &HostId, amounts: &Amounts) -> bool {
    let at_first = grid.nodes[site].hosts_at_first.iter().find(|(at_first, _)| at_first.id == *host);
    at_first.is_some_and(|(at_first, _)| {
        let is_half = amounts
            .iter()
            .all(|(name, amount)| at_first.capacity.get(name).is_some_and(|capacity| capacity.0 / 2 == amount.0));
        at_first.capacity == *amounts || is_half && at_first.capacity.len() == amounts.len()
    })
}
