//! After the healing everything settles: every request is decided, sites have what stands and nothing else, views agree.
//!
//! Invariant: what is left for good without a reason keeps the grid from ever being settled, so it is found when the
//! time for that is over. The reasons that are accepted are in [`World::is_justified`].

use broker::{
    ids::{RequestId, SiteId},
    ledger::{Booking, BookingState, Books},
    negotiation::{Negotiation, Reservation, Stage},
    protocol::AttemptStatus,
    time::{Millis, Span},
};

use super::super::{
    names,
    node::{Node, Running},
    world::World,
};
use crate::engine::{Actor, Write};

/// A reservation that ends about now may be forgotten by one site and not yet by another.
const CLOCKS_DIFFER: Span = Span(45);

impl World {
    /// What has not settled yet, and the request that it is about.
    pub(in super::super) fn unsettled(&self) -> Option<(Option<RequestId>, String)> {
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(running) = node.running() else {
                if node.is_gone() {
                    continue;
                }
                return Some((None, format!("s{index} does not run")));
            };
            if !running.writes.values().all(|write| Self::is_of_repair(running, write)) {
                return Some((None, format!("s{index} is still writing")));
            }
            if let Some(found) =
                self.unsettled_request(index, running).or_else(|| self.unsettled_booking(index, running))
            {
                return Some(found);
            }
            if let Some(what) = self.unsettled_view(index, node, running) {
                return Some((None, what));
            }
        }
        None
    }

    fn unsettled_request(&self, index: usize, running: &Running) -> Option<(Option<RequestId>, String)> {
        for (id, negotiation) in &running.machines.negotiations {
            let found = |doing: &str| Some((Some(id.clone()), format!("s{index} is not done with it: {doing}")));
            let another = self.users.get(id).map(|user| user.entry_point).filter(|node| *node != index);
            let another = another.and_then(|node| self.nodes[node].running());
            let is_anothers = another.is_some_and(|another| another.machines.negotiations.contains_key(id));
            let is_closed = matches!(negotiation.stage(), Stage::Closed { .. });
            // What it still believes of a time that has passed keeps no host from anybody.
            let start = negotiation.reserved_plan().map(|plan| plan.start);
            let has_begun = start.is_some_and(|start| start <= self.utc());
            if !is_closed && self.has_nobody_told(index, id) {
                continue;
            }
            if is_anothers && !is_closed && !has_begun {
                return found("another node acts for it");
            }
            if let Some(reservation) = Self::degraded(negotiation) {
                if self.could_be_repaired(id, &negotiation.record().request, reservation) {
                    let why = reservation.failure.as_ref().map_or_else(String::new, |why| format!("{why:?}"));
                    return found(&format!("it is degraded, and the hosts for it are there; last repair: {why}"));
                }
                continue;
            }
            if !is_closed && !matches!(negotiation.stage(), Stage::Reserved(_)) {
                return found("it is not decided");
            }
            // A site that is gone for good never acknowledges; what the others still have is found there.
            let owes_the_gone = negotiation
                .record()
                .owed
                .iter()
                .any(|owed| names::index_of(&owed.site).is_some_and(|site| self.nodes[site].is_gone()));
            if !negotiation.is_quiet() && !owes_the_gone {
                return found("releases are not acknowledged");
            }
        }
        None
    }

    /// Whether a node goes on with a request because the node that its user went to is gone for good: what was done there
    /// for the user, who did hear of it, nobody else knows, unless the node that the user is with now has taken the request
    /// over: that one asks all others.
    fn has_nobody_told(&self, index: usize, id: &RequestId) -> bool {
        let Some(user) = self.users.get(id).filter(|user| user.entry_point != index) else { return false };
        if !user.signed_for.iter().any(|node| self.nodes[*node].is_gone()) {
            return false;
        }
        let with = self.nodes[user.entry_point].running();
        let negotiation = with.and_then(|running| running.machines.negotiations.get(id));
        negotiation.is_none_or(|negotiation| negotiation.record().taken_over.is_empty())
    }

    /// What stands of a reservation that is degraded, or being repaired; that goes on until it begins.
    fn degraded(negotiation: &Negotiation) -> Option<&Reservation> {
        match negotiation.stage() {
            Stage::Degraded { reservation, .. } => Some(reservation),
            _ => None,
        }
    }

    /// Whether a write is of a repair, of which there is one after another.
    fn is_of_repair(running: &Running, write: &(Actor, Write)) -> bool {
        let Actor::Request(id) = &write.0 else { return false };
        running.machines.negotiations.get(id).is_some_and(|negotiation| Self::degraded(negotiation).is_some())
    }

    fn unsettled_booking(&self, index: usize, running: &Running) -> Option<(Option<RequestId>, String)> {
        let ended = self.utc() + CLOCKS_DIFFER;
        for booking in running.machines.ledger.bookings().filter(|booking| booking.window.end > ended) {
            let number = booking.attempt.attempt;
            let what = match &booking.state {
                // A repair that is still looked for may hold at any time.
                BookingState::Held { .. } if self.is_degraded(&booking.attempt.request) => continue,
                BookingState::Held { .. } => format!("s{index} still holds #{number}"),
                _ if booking.grants.is_empty() => continue,
                BookingState::Confirmed { .. } if self.all_run(booking) => {
                    format!("s{index} has not heard the final word on #{number}")
                }
                _ if self.is_justified(index, booking) => continue,
                _ => format!("s{index} has a reservation of #{number}, which does not stand"),
            };
            return Some((Some(booking.attempt.request.clone()), what));
        }
        None
    }

    /// Whether the entry point and all participants run, so that nothing is in the way of a final word.
    fn all_run(&self, booking: &Booking) -> bool {
        let coordinator = booking.coordinator.as_ref().unwrap_or(&booking.attempt.entry_point);
        let all = booking.participants.iter().chain([coordinator]);
        all.filter_map(names::index_of).all(|site| self.nodes[site].running().is_some())
    }

    fn is_degraded(&self, id: &RequestId) -> bool {
        let node = self.users.get(id).and_then(|user| self.nodes[user.entry_point].running());
        let negotiation = node.and_then(|running| running.machines.negotiations.get(id));
        negotiation.is_some_and(|negotiation| Self::degraded(negotiation).is_some())
    }

    /// A reservation may stay when it is part of what stands, as the node says that the user is with. When that, or who
    /// made it, is gone for good: when the user was told so; when all participants have confirmed or once had, since then
    /// the user may have been told (that the user or the entry point then decided against it, only that one knew); and when
    /// a participant is gone for good as well, since then nobody can know. So may what a node goes on with that nobody can
    /// tell otherwise.
    fn is_justified(&self, index: usize, booking: &Booking) -> bool {
        let attempt = &booking.attempt;
        let Some(user) = self.users.get(&attempt.request) else { return false };
        let is_gone = |site: &SiteId| names::index_of(site).is_some_and(|site| self.nodes[site].is_gone());
        let with = self.nodes[user.entry_point].running();
        if let Some(negotiation) = with.and_then(|running| running.machines.negotiations.get(&attempt.request)) {
            let stands = matches!(negotiation.stage(), Stage::Reserved(_) | Stage::Degraded { .. });
            let site = &self.nodes[index].site;
            if stands
                && negotiation.record().status_of(&self.nodes[user.entry_point].site, attempt, site)
                    == AttemptStatus::Confirmed
            {
                return true;
            }
        }
        let acting = booking.coordinator.as_ref().unwrap_or(&attempt.entry_point);
        if names::index_of(acting).is_some_and(|acting| self.has_nobody_told(acting, &attempt.request)) {
            return true;
        }
        if !is_gone(acting) {
            return false;
        }
        let is_told = user.told.plan().is_some_and(|told| told.start == booking.window.start);
        let mut participants = booking.participants.iter();
        is_told || self.truth.was_complete(attempt) || participants.any(is_gone)
    }

    /// At the end the schedules of every ledger are what its bookings and the owner's own work add up to: what was given
    /// back early is free.
    pub(in super::super) fn check_books(&mut self) {
        let from = self.utc() + CLOCKS_DIFFER;
        let mut found = None;
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(running) = node.running() else { continue };
            for host in running.machines.ledger.hosts() {
                let mut sum = host.own().clone();
                let confirmed = |booking: &&Booking| !matches!(booking.state, BookingState::Held { .. });
                for booking in running.machines.ledger.bookings().filter(confirmed) {
                    for grant in booking.grants.iter().filter(|grant| grant.host == host.host().id) {
                        sum.add(booking.window, &grant.amounts);
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
            self.violate("what is given back is free", None, what);
        }
    }

    fn unsettled_view(&self, index: usize, node: &Node, running: &Running) -> Option<String> {
        let now = node.clock.now(self.now()).monotonic;
        for (other, of_other) in self.nodes.iter().enumerate().filter(|(other, _)| *other != index) {
            let Some(there) = of_other.running() else { continue };
            let known = running.views.get(&other).and_then(|view| view.fresh_schedules(now, Millis(u64::MAX)));
            if known.map(|known| known.version) != Some(there.machines.ledger.version()) {
                return Some(format!("the view that s{index} has of s{other} is not up to date"));
            }
        }
        None
    }
}
