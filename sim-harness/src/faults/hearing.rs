//! How simulated nodes hear of each other: adverts, signs of life, schedules that are fetched, and phase I on what is known.
//!
//! Invariant: a node knows of others only what has reached it.

use std::rc::Rc;

use broker::{features::Features, ledger::ScheduleUpdateParts, negotiation, protocol::Advert};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{event::NodeEvent, message::Body, views::Search, world::World};
use crate::engine::Medium as _;

/// From one sign of life of a site to the next.
const SIGN_OF_LIFE_MS: u64 = 4_000;
/// How long phase I waits for schedules that it has asked for.
const SEARCH_MS: u64 = 400;

impl World {
    /// The next advert of a node.
    pub(super) fn advert(&mut self, node: usize) -> Advert {
        let at = &mut self.grid.nodes[node];
        let number = at.running_mut().map_or(0, |running| running.views.next_advert());
        let is_draining = at.running().is_some_and(|running| running.gate.lock().is_draining());
        let farthest = self.grid.options.ledger(None).farthest_future;
        let offer = at.running().map(|running| running.gate.lock().policy().offered(Some(farthest)).into());
        let offer = offer.unwrap_or_default();
        Advert {
            site: at.site.clone(),
            name: String::new(),
            sequence: at.disk.incarnation * 1_000_000 + number,
            time_to_live_s: 30,
            contact: None,
            hosts: at.hosts.iter().filter(|_| !is_draining).map(|(host, _)| host.clone()).collect(),
            uplink: at.uplink,
            quotes: self.grid.options.queues.is_some(),
            addresses: Vec::new(),
            features: Features::own(),
            offer,
        }
    }

    /// The site publishes a sign of life, and forgets what has passed.
    pub(super) fn sign_of_life(&mut self, node: usize) {
        let (now, run) = (self.clock(node), self.grid.nodes[node].run);
        let Some(machines) = self.machines(node) else { return };
        machines.ledger.forget_past(now);
        let from = machines.ledger.version();
        // It binds seats too, and what changes thereby may be published after the sign of life, once it is on disk.
        if let Some(running) = self.grid.nodes[node].running() {
            self.grid.truth.note(node, &running.machines.ledger, now);
        }
        self.perform_ledger(node);
        if self.grid.nodes[node].run != run {
            return;
        }
        self.publish(node, ScheduleUpdateParts { from, changes: Vec::new() });
        self.grid.node_after(SIGN_OF_LIFE_MS, node, NodeEvent::SignOfLife);
    }

    pub(super) fn fetch(&mut self, node: usize, from: usize) {
        let now = self.now();
        if self.grid.running(node).is_some_and(|running| running.views.fetch(from, now)) {
            self.grid.send(node, from, Body::Fetch);
        }
    }

    pub(super) fn answer_fetch(&mut self, node: usize, from: usize) {
        let now = self.clock(node);
        let Some(machines) = self.machines(node) else { return };
        let snapshot = machines.ledger.snapshot(now);
        let schedules = Rc::new((self.advert(node), snapshot));
        self.grid.send(node, from, Body::Schedules(schedules));
    }

    /// Phase I: with enough known it answers at once, else it asks for what is missing and waits a while.
    pub(super) fn search(&mut self, node: usize, search: Search, enough: usize) {
        let (found, mut missing) = self.look_for(node, &search);
        if let Some(running) = self.grid.nodes[node].running() {
            missing.extend(self.grid.others(node).filter(|site| running.views.get(*site).is_none()));
        }
        let is_enough = found.hosts.len() >= enough || missing.is_empty();
        let after = if is_enough { self.grid.random.random_range(0..=3) } else { SEARCH_MS };
        for site in missing {
            self.fetch(node, site);
        }
        self.grid.node_after(after, node, NodeEvent::Found(search));
    }

    pub(super) fn found(&mut self, node: usize, search: &Search) {
        let (mut found, _) = self.look_for(node, search);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(search.seed);
        while found.hosts.len() > search.count {
            let index = random.random_range(0..found.hosts.len());
            found.hosts.swap_remove(index);
        }
        self.feed_request(node, &search.request, negotiation::Event::Found(found));
    }

    fn look_for(&self, node: usize, search: &Search) -> (negotiation::Found, Vec<usize>) {
        let Some(negotiation) = self.grid.negotiation(node, &search.request) else { return Default::default() };
        let Some(running) = self.grid.nodes[node].running() else { return Default::default() };
        running.find(negotiation.wanted(), &search.exclude, self.clock(node))
    }
}
