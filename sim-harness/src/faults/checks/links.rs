//! The uplink of a site carries what its bookings say, worked out again from what their users have asked, and no more than it can; what
//! users were told fits into the links.
//!
//! Invariant: shares no code with the ledger, and takes the traffic of a request from its user. With t of N hosts at a site each booking
//! puts `ceil(t b (N - t) / (N - 1))` on the link: two bookings of one request never less than both hosts together would. What is to be at one
//! site puts nothing on it.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    demand::Demand,
    ids::{RequestId, ShapeNumber, SiteId},
    ledger::{Booking, BookingRecord, Books},
    plan::Plan,
    resources::{ResourceName, amount_of},
    time::{Now, Time, Window},
};

use super::super::{grid::Grid, names};
use crate::engine::SiteLedger;

/// What so many hosts of a demand put on the link of their site, in Mbit/s.
fn load(demand: &Demand, here: usize) -> u64 {
    if demand.sites_max() == Some(1) {
        return 0;
    }
    let (here, seats) = (here as u64, demand.seats_in_all() as u64);
    let sent = demand.traffic().map_or(0, |traffic| here * traffic.mbps.0 * seats.saturating_sub(here));
    sent.div_ceil(seats.saturating_sub(1).max(1))
}

/// What a user has asked, in this shape.
fn demand_of<'g>(grid: &'g Grid, request: &RequestId, shape: ShapeNumber) -> Option<&'g Demand> {
    grid.users.get(request)?.request.shape(shape)
}

/// What a booking puts on the link of its site, in Mbit/s; none when its hosts send nothing to others elsewhere.
pub fn load_of(grid: &Grid, booking: &Booking) -> Option<u64> {
    let demand = demand_of(grid, &booking.attempt.request, booking.variant.shape)?;
    Some(load(demand, booking.grants.len())).filter(|load| *load > 0)
}

/// Compares the books of a site's uplink with all its bookings, from now on.
pub fn check_ledger(grid: &Grid, node: usize, ledger: &SiteLedger, now: Now) -> Result<(), Box<(RequestId, String)>> {
    let Some(books) = ledger.uplink() else { return Ok(()) };
    let loads: Vec<(&Booking, u64)> =
        ledger.bookings().filter_map(|booking| Some((booking, load_of(grid, booking)?))).collect();
    let name = ResourceName::mbps();
    let capacity = amount_of(&books.host().capacity, &name);
    let starts = loads.iter().flat_map(|(booking, _)| [booking.window.start, booking.window.end]);
    let steps = books.promised().occupancy(&name).map_or_else(Vec::new, broker::schedule::Occupancy::steps);
    let times: BTreeSet<Time> = starts.chain(steps.into_iter().map(|(at, _)| at)).map(|at| at.max(now.utc)).collect();
    for at in times {
        let under_way = || loads.iter().filter(|(booking, _)| booking.window.start <= at && at < booking.window.end);
        let sum: u64 = under_way().map(|(_, load)| load).sum();
        let booked = books.promised().occupancy(&name).map_or(Amount::ZERO, |promised| promised.used_at(at));
        let last = under_way().next_back().or(loads.last());
        let request = last.map_or_else(|| names::request(0), |(booking, _)| booking.attempt.request.clone());
        if booked.0 != sum {
            let what = format!("{booked} Mbit/s of the uplink are booked at {}, the bookings say {sum}", at.0);
            return Err(Box::new((request, what)));
        }
        let new = under_way().find(|(booking, _)| !grid.nodes[node].begun.contains(&booking.attempt));
        if let Some((booking, _)) = new
            && sum > capacity.0
        {
            let what = format!("{sum} Mbit/s are on the uplink at {}, which carries {capacity}", at.0);
            return Err(Box::new((booking.attempt.request.clone(), what)));
        }
    }
    Ok(())
}

/// What users were told puts no more on a link than its site ever had, and lasts as long as the slowest host needs.
pub fn check_plan(grid: &Grid, demand: &Demand, plan: &Plan) -> Result<(), String> {
    if plan.traffic != demand.traffic() {
        return Err(format!("a plan with the traffic {:?}, {:?} was asked for", plan.traffic, demand.traffic()));
    }
    let mut here: BTreeMap<&SiteId, usize> = BTreeMap::new();
    plan.seats.iter().for_each(|seat| *here.entry(&seat.site).or_default() += 1);
    for (site, seats) in here {
        let uplink = names::index_of(site).and_then(|index| grid.nodes[index].uplink_at_first);
        let load = load(demand, seats);
        if let Some(uplink) = uplink.filter(|uplink| load > uplink.0) {
            return Err(format!("{seats} hosts at {site} put {load} Mbit/s on its uplink, which carries {uplink}"));
        }
    }
    Ok(())
}

/// Whether the uplink of a site, as its ledger is now, has too little room for some number of the hosts of a reservation: whatever
/// has no room on the hosts is lost first.
pub fn may_lack_room(grid: &Grid, ledger: &SiteLedger, reservation: &BookingRecord, now: Now) -> bool {
    let Some(demand) = demand_of(grid, &reservation.attempt.request, reservation.variant.shape) else { return false };
    let Some(books) = ledger.uplink() else { return false };
    let rest = Window { start: reservation.window.start.max(now.utc), ..reservation.window };
    let most = (1..=reservation.grants.len()).map(|here| load(demand, here)).max().unwrap_or(0);
    let name = ResourceName::mbps();
    rest.is_valid() && books.promised().peak(&name, rest).0 + most > amount_of(&books.host().capacity, &name).0
}

/// Whether the links bear new hosts of a reservation at these sites, one entry a host, beside all that is reserved.
pub fn bear(grid: &Grid, demand: &Demand, plan: &Plan, new: &[&SiteId]) -> bool {
    let mut here: BTreeMap<&SiteId, usize> = BTreeMap::new();
    new.iter().for_each(|site| *here.entry(site).or_default() += 1);
    here.into_iter().all(|(site, seats)| {
        let running = names::index_of(site).and_then(|index| grid.nodes[index].running());
        let Some(books) = running.and_then(|running| running.machines.ledger.uplink()) else { return true };
        let name = ResourceName::mbps();
        books.reserved().peak(&name, plan.window()).0 + load(demand, seats)
            <= amount_of(&books.host().capacity, &name).0
    })
}

/// The bookings that put something on the link of a site that has a limit.
pub fn over_links(grid: &Grid) -> u64 {
    let ledgers = grid.nodes.iter().filter_map(|node| Some(&node.running()?.machines.ledger));
    let limited = ledgers.filter(|ledger| ledger.uplink().is_some());
    limited.map(|ledger| ledger.bookings().filter(|booking| load_of(grid, booking).is_some()).count() as u64).sum()
}
