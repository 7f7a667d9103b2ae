//! Every confirmed booking is what its user has asked for, through the entry point that the user chose.
//!
//! Invariant: compares with what the world knows that users did, never with what is written in a signed text.

use broker::{ids::RequestId, ledger::BookingRecord, request::StartWindow, resources::amount_of};

use super::super::{grid::Grid, names, users::UserRequest};

/// A site has something for this request on its disk.
pub fn check_covered(grid: &mut Grid, node: usize, request: &RequestId) {
    let user = grid.users.get(request);
    let of_request = |reservation: &&BookingRecord| reservation.attempt.request == *request;
    let found = grid.nodes[node].disk.reservations.values().filter(of_request).find_map(|reservation| {
        let Some(user) = user else { return Some("nobody has asked for it".to_owned()) };
        check_booking(user, reservation).err()
    });
    if let Some(what) = found {
        grid.violate("a booking is what its user asked for", Some(request), format!("s{node}: {what}"));
    }
}

fn check_booking(user: &UserRequest, booked: &BookingRecord) -> Result<(), String> {
    let number = booked.attempt.attempt;
    let asked = &user.request;
    if booked.user_key != Some(user.user) {
        return Err(format!("#{number} is booked for another user"));
    }
    for by in std::iter::once(&booked.attempt.entry_point).chain(&booked.coordinator) {
        if !names::index_of(by).is_some_and(|by| user.signed_for.contains(&by)) {
            return Err(format!("#{number} is coordinated by {by}, which nobody has asked"));
        }
    }
    let StartWindow { earliest, latest, .. } = asked.window();
    let is_in_time = earliest.is_none_or(|earliest| booked.window.start >= earliest)
        && latest.is_none_or(|latest| booked.window.start <= latest);
    if booked.window.duration() != asked.demand().length().at_reference() || !is_in_time {
        return Err(format!("#{number} is booked for {:?}, which nobody asked for", booked.window));
    }
    if booked.grants.len() > asked.demand().seats() {
        return Err(format!("#{number} has {} hosts, {} were asked for", booked.grants.len(), asked.demand().seats()));
    }
    for grant in &booked.grants {
        if asked.demand().per_host().iter().any(|(name, least)| amount_of(&grant.amounts, name) < *least) {
            return Err(format!("#{number} has less on {} than was asked for", grant.host));
        }
        for (name, amount) in &grant.amounts {
            if *amount > asked.demand().needed_in_sum(name) {
                return Err(format!("#{number} has more {name} on {} than was asked for in all", grant.host));
            }
        }
    }
    Ok(())
}
