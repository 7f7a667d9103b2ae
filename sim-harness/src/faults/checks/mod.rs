//! Checkers of the design's invariants. None of them trusts the code that it checks: amounts are added up from the
//! bookings, durability is read off the modelled disks, views are compared with what ledgers had.
//!
//! Invariant: a checker changes nothing; what it finds goes into [`World::violate`].

mod capacity;
mod covered;
mod durable;
mod lost;
mod repairable;
pub mod repeat;
mod settled;
mod views;

use broker::ids::RequestId;

use super::world::World;

impl World {
    /// A site's ledger has changed.
    pub(super) fn check_ledger(&mut self, node: usize) {
        let now = self.clock(node);
        let Some(running) = self.nodes[node].running() else { return };
        self.truth.note(node, &running.machines.ledger, now);
        if let Err(found) = capacity::check_ledger(&self.nodes[node], &running.machines.ledger, now) {
            let (request, what) = *found;
            self.violate("never over-committed", Some(&request), format!("s{node}: {what}"));
            return;
        }
        if let Err(what) = running.machines.ledger.sanity_check() {
            self.violate("the ledger is consistent", None, format!("s{node}: {what}"));
        }
    }

    /// The journal of a site has changed, for this request.
    pub(super) fn check_disk(&mut self, node: usize, request: &RequestId) {
        let now = self.clock(node);
        if let Err(found) = capacity::check_disk(&self.nodes[node], now) {
            let (request, what) = *found;
            self.violate("never over-committed", Some(&request), format!("disk of s{node}: {what}"));
        }
        let confirmed = self.nodes[node].disk.reservations.values().filter(|one| one.attempt.request == *request);
        for reservation in confirmed {
            self.truth.note_confirmed(&self.nodes, &reservation.attempt, &reservation.participants);
        }
        self.check_covered(node, request);
        self.check_told(request);
    }
}
