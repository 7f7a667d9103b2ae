//! The site's uplink: a unit of its books beside the hosts, on which seats that talk to others elsewhere are booked.
//!
//! The site reckons itself what a booking puts on it, from the signed request and the number of the request's seats in the booking, and
//! for the whole of the booking's window. Rule: each booking counts for itself, with [`Talk::load`] of its own seats out of all N of the request.
//! That load rises ever more slowly with the seats, so what bookings of one request (a reservation and what replaces a part of it)
//! count together is never below the load of all their seats, and it does not depend on the order in which they come and go. It may be
//! more: of a request that is wholly here in two bookings, each counts as if the other was elsewhere. A request for one site (`sites_max` 1)
//! loads no link, so that its lost seats can be replaced there; sites refuse what names a second site.
//!
//! Invariant: who asks for seats names no load, and a hold never names the unit itself; the owner's own work may.

use super::{Booking, Books, Ledger};
use crate::{
    amount::Amount,
    ids::{HostId, SeatNumber},
    plan::Place,
    protocol::Grant,
    tariff::Agreement,
    time::Window,
    traffic::Talk,
    trust::Permit,
    uplinks::amounts_of,
};

/// What of the traffic that the user has signed may go over links.
pub(super) fn talk_of(permit: &Permit) -> Option<Talk> {
    let demand = permit.statement.request.demand();
    // A request has at most 10,000 seats.
    demand.traffic_between_sites().map(|traffic| Talk { traffic, seats: demand.seats() as u32 })
}

/// No seat has this number.
const NO_SEAT: SeatNumber = SeatNumber(u32::MAX);

/// What a booking takes.
pub(super) struct Taken<'b> {
    seats: &'b [Grant],
    load: Option<Grant>,
}

impl Taken<'_> {
    /// Its seats, and its load of the uplink.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.seats.iter().chain(&self.load)
    }
}

impl<B: Books> Ledger<B> {
    /// The books of the uplink; none when it has no limit.
    #[must_use]
    pub fn uplink(&self) -> Option<&B> {
        self.uplink.as_ref()
    }

    /// The books of a host, or of the uplink.
    pub(super) fn unit(&self, id: &HostId) -> Option<&B> {
        if id.is_uplink() { self.uplink.as_ref() } else { self.hosts.get(id) }
    }

    /// All books.
    pub(super) fn units(&self) -> impl Iterator<Item = &B> {
        self.hosts.values().chain(self.uplink.as_ref())
    }

    /// What so many seats of a request take of the uplink; none when they send nothing over it, or it has no limit.
    pub(super) fn load_of(&self, talk: Option<Talk>, seats: usize, window: Window) -> Option<Grant> {
        let load = talk.filter(|_| self.uplink.is_some())?.load(seats);
        let grant = || Grant {
            seat: NO_SEAT,
            place: Place::Host(HostId::uplink()),
            window,
            amounts: amounts_of(load),
            agreed: Agreement::default(),
        };
        (load > Amount::ZERO).then(grant)
    }

    /// All that a booking takes: its seats, and its load of the uplink.
    pub(super) fn taken_by<'b>(&self, booking: &'b Booking) -> Taken<'b> {
        let load = self.load_of(booking.talk, booking.grants.len(), booking.window);
        Taken { seats: &booking.grants, load }
    }
}

#[cfg(test)]
#[path = "uplink_tests.rs"]
mod tests;
