//! After the healing everything settles: every request is decided, sites have what stands and nothing else, views agree.
//!
//! Invariant: what is left for good without a reason keeps the grid from ever being settled, so it is found when the
//! time for that is over. The reasons that are accepted are in [`World::is_justified`].

use broker::{
    ids::RequestId,
    ledger::{Booking, BookingState},
    negotiation::Stage,
    time::{Millis, Span},
};

use super::super::{
    clock, names,
    node::{Node, Running},
    users::Told,
    world::World,
};

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
            if !running.writes.is_empty() {
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
        for (id, carried) in &running.negotiations {
            let negotiation = &carried.negotiation;
            let is_decided = matches!(negotiation.stage(), Stage::Stands(_) | Stage::Closed { .. });
            // A site that is gone for good never acknowledges; what the others still have is found there.
            let owes_the_gone = negotiation
                .record()
                .owed
                .iter()
                .any(|owed| names::index_of(&owed.site).is_some_and(|site| self.nodes[site].is_gone()));
            if !is_decided || (!negotiation.is_quiet() && !owes_the_gone) {
                let doing = if is_decided { "releases are not acknowledged" } else { "it is not decided" };
                let what = format!("s{index} is not done with it: {doing}");
                return Some((Some(id.clone()), what));
            }
        }
        None
    }

    fn unsettled_booking(&self, index: usize, running: &Running) -> Option<(Option<RequestId>, String)> {
        let ended = clock::true_utc(self.now) + CLOCKS_DIFFER;
        for booking in running.ledger.bookings().filter(|booking| booking.window.end > ended) {
            let number = booking.attempt.attempt;
            let what = match &booking.state {
                BookingState::Held { .. } => format!("s{index} still holds #{number}"),
                BookingState::Confirmed { .. } if self.all_run(booking) => {
                    format!("s{index} has not heard the final word on #{number}")
                }
                _ if self.is_justified(booking) => continue,
                _ => format!("s{index} has a reservation of #{number}, which does not stand"),
            };
            return Some((Some(booking.attempt.request.clone()), what));
        }
        None
    }

    /// Whether the entry point and all participants run, so that nothing is in the way of a final word.
    fn all_run(&self, booking: &Booking) -> bool {
        let all = booking.participants.iter().chain([&booking.attempt.entry_point]);
        all.filter_map(names::index_of).all(|site| self.nodes[site].running().is_some())
    }

    /// A reservation may stay when its entry point says that it stands. When that is gone for good: when the user was
    /// told so; when all participants have confirmed or once had, since then the user may have been told (that the user
    /// or the entry point then decided against it, only that one knew); and when a participant is gone for good as well,
    /// since then nobody can know.
    fn is_justified(&self, booking: &Booking) -> bool {
        let attempt = &booking.attempt;
        let Some(entry_point) = names::index_of(&attempt.entry_point) else { return false };
        if let Some(running) = self.nodes[entry_point].running() {
            let carried = running.negotiations.get(&attempt.request);
            return carried.is_some_and(|carried| {
                let is_last = carried.negotiation.record().last_attempt == attempt.attempt;
                is_last && matches!(carried.negotiation.stage(), Stage::Stands(_))
            });
        }
        let told = self.users.get(&attempt.request).map(|user| &user.told);
        if matches!(told, Some(Told::Stands { attempt: number, .. }) if *number == attempt.attempt) {
            return true;
        }
        let mut participants = booking.participants.iter().filter_map(names::index_of);
        self.truth.was_complete(attempt) || participants.any(|site| self.nodes[site].is_gone())
    }

    fn unsettled_view(&self, index: usize, node: &Node, running: &Running) -> Option<String> {
        let now = node.clock.now(self.now).monotonic;
        for (other, of_other) in self.nodes.iter().enumerate().filter(|(other, _)| *other != index) {
            let Some(there) = of_other.running() else { continue };
            let known = running.views.get(&other).and_then(|view| view.fresh_schedules(now, Millis(u64::MAX)));
            if known.map(|known| known.version) != Some(there.ledger.version()) {
                return Some(format!("the view that s{index} has of s{other} is not up to date"));
            }
        }
        None
    }
}
