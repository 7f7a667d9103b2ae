//! What a seed loses after it was reserved: hosts that owners take away, sites that never come back, and entry points whose
//! users go to another node.
//!
//! Invariant: draws from a generator of its own, so that a seed without losses runs as it would.

use std::collections::BTreeSet;

use broker::{
    ids::{HostId, RequestId},
    ledger::BookingRecord,
    protocol::{AttemptId, Grant},
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    node::Node,
    users::Reported,
    world::{Event, World},
};
use crate::engine::SiteLedger;

/// After the healing, users whose entry point is gone go to another node, so often and with such a wait between.
const TAKEOVERS_AT_MOST: u64 = 3;
const TAKEOVER_EVERY_MS: u64 = 15_000;

impl World {
    /// What is lost is planned when the run begins.
    pub(super) fn plan_losses(&mut self) {
        let Some(losses) = self.options.losses.clone() else { return };
        let faulty_ms = self.options.faulty_ms;
        for _ in 0..losses.shrinks {
            let at = self.fates.random_range(faulty_ms / 4..faulty_ms);
            self.after(at, Event::Shrink);
        }
        for number in 0..self.options.requests {
            if self.fates.random_range(0..100) < losses.takeover_percent {
                let at = self.fates.random_range(faulty_ms / 4..faulty_ms);
                let nodes = if self.fates.random_range(0..3) == 0 { 2 } else { 1 };
                for _ in 0..nodes {
                    let after = self.fates.random_range(0..1_000);
                    self.after(at + after, Event::TakeOver { number });
                }
            }
        }
    }

    /// Users go from node to node, and back, with everything that they have.
    pub(super) fn plan_wanderings(&mut self, mut wanderings: Xoshiro256PlusPlus) {
        if self.options.losses.is_none() {
            return;
        }
        let faulty_ms = self.options.faulty_ms;
        for number in 0..self.options.requests {
            let at = wanderings.random_range(faulty_ms / 4..faulty_ms);
            for _ in 0..wanderings.random_range(2..=4) {
                let after = wanderings.random_range(0..10_000);
                self.after(at + after, Event::TakeOver { number });
            }
        }
    }

    /// An owner stops the node of a site, to start it again with less, or with what it had at first.
    pub(super) fn stop_to_shrink(&mut self) {
        let node = self.fates.random_range(0..self.nodes.len());
        if self.is_healed || self.nodes[node].running().is_none() {
            return;
        }
        self.crash(node);
        self.nodes[node].is_to_shrink = true;
    }

    /// The site is about to start: its owner has changed what it offers, also where a reservation has begun.
    pub(super) fn shrink(&mut self, node: usize) {
        let now = self.clock(node).utc;
        let fates = &mut self.fates;
        let at = &mut self.nodes[node];
        if !std::mem::take(&mut at.is_to_shrink) {
            return;
        }
        if at.hosts.is_empty() || fates.random_range(0..4) == 0 {
            at.hosts.clone_from(&at.hosts_at_first);
            return;
        }
        self.figures.shrinks += 1;
        let index = fates.random_range(0..at.hosts.len());
        let id = at.hosts[index].0.id.clone();
        let at_first = at.hosts_at_first.iter().find(|(host, _)| host.id == id);
        let is_whole = at_first.is_some_and(|(host, _)| *host == at.hosts[index].0);
        if !is_whole || fates.random_range(0..2) == 0 {
            at.hosts.remove(index);
        } else {
            for amount in at.hosts[index].0.capacity.values_mut() {
                amount.0 /= 2;
            }
        }
        let is_in_use = at.disk.reservations.values().any(|reservation| {
            let is_here = reservation.grants.iter().any(|grant| grant.host == id);
            is_here && reservation.window.start <= now && now < reservation.window.end
        });
        self.figures.shrinks_in_use += u64::from(is_in_use);
        self.note(None, format_args!("s{node} has less to offer"));
    }

    /// Users whose entry point is gone for good go to another node, when everything else is healed.
    pub(super) fn plan_last_takeovers(&mut self) {
        if self.options.losses.is_none() {
            return;
        }
        let mut numbers = Vec::new();
        for user in self.users.all() {
            let is_over = matches!(user.told, Reported::Over(_)) || user.is_taken_back;
            if self.nodes[user.entry_point].is_gone() && !is_over {
                numbers.push(user.number);
            }
        }
        for number in numbers {
            for count in 0..TAKEOVERS_AT_MOST {
                self.after(1_000 + count * TAKEOVER_EVERY_MS, Event::TakeOverFromGone { number });
            }
        }
    }
}

/// Which hosts of which requests a ledger that has just been opened has dropped from what the disk had.
pub fn dropped<'a>(
    disk: impl Iterator<Item = &'a BookingRecord>,
    ledger: &SiteLedger,
) -> BTreeSet<(AttemptId, HostId)> {
    let mut dropped = BTreeSet::new();
    for reservation in disk {
        let booking = ledger.bookings().find(|booking| booking.attempt == reservation.attempt);
        for grant in &reservation.grants {
            if !booking.is_some_and(|booking| booking.grants.contains(grant)) {
                dropped.insert((reservation.attempt.clone(), grant.host.clone()));
            }
        }
    }
    dropped
}

/// Whether a site has something for this host of a request on its disk, and does not mean to drop it.
pub fn has_on_disk(node: &Node, request: &RequestId, is_it: impl Fn(&BookingRecord, &Grant) -> bool) -> bool {
    node.disk.reservations.values().filter(|reservation| reservation.attempt.request == *request).any(|reservation| {
        reservation.grants.iter().any(|grant| {
            let key = (reservation.attempt.clone(), grant.host.clone());
            is_it(reservation, grant) && !node.dropped.contains(&key)
        })
    })
}
