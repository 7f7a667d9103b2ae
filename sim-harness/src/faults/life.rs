//! What goes wrong with nodes and links, and how nodes start and stop.
//!
//! Invariant: a node that stops keeps its disk and nothing else; of the writes under way a crash lets some through, and
//! of one actor's writes none after a lost one.

use std::collections::BTreeSet;

use broker::{
    ledger::BookingRecord,
    trust::{Gate, OwnerPolicy},
};
use rand::RngExt;

use super::{
    canary::Canary,
    message::Body,
    node::{Running, State},
    world::{Event, World},
};
use crate::engine::{Actor, Machines, Medium, Setup};

/// Longest time until a crashed node starts again.
const DOWN_MS_MAX: u64 = 12_000;
/// Longest partition, and longest slowness.
const TROUBLE_MS_MAX: u64 = 8_000;

impl World {
    /// A node starts with what its disk remembers.
    pub(super) fn start(&mut self, node: usize) {
        self.shrink(node);
        let (negotiation, limits) = (self.options.negotiation(), self.options.ledger(self.canary));
        let seed: u64 = self.random.random();
        let (canary, started) = (self.canary, self.now());
        let book_fault = canary.and_then(Canary::of_books);
        let gate = Gate::new(self.trust.clone(), OwnerPolicy::default());
        let at = &mut self.nodes[node];
        at.run += 1;
        at.disk.incarnation += 1;
        at.begun.clear();
        if at.hosts != at.hosts_at_first {
            let now = at.clock.now(started).utc;
            let begun = at.disk.reservations.values().filter(|reservation| reservation.window.start <= now);
            at.begun = begun.map(|reservation| reservation.attempt.clone()).collect();
        }
        let reservations = match canary {
            Some(Canary::ForgetReservations) => Vec::new(),
            Some(Canary::ForgetCoordinator) => at
                .disk
                .reservations
                .values()
                .map(|reservation| BookingRecord { coordinator: None, ..reservation.clone() })
                .collect(),
            _ => at.disk.reservations.values().cloned().collect(),
        };
        let setup = Setup { site: at.site.clone(), hosts: at.hosts.clone(), gate, limits, negotiation, book_fault };
        let is_resumed = canary != Some(Canary::ReuseTryNumbers);
        let seed_of = |place| seed.wrapping_add(place);
        let (machines, misfits) =
            Machines::open(setup, &at.disk, reservations, is_resumed, seed_of, at.clock.now(started));
        let ids: Vec<_> = machines.negotiations.keys().cloned().collect();
        at.state = State::Up(Box::new(Running::new(machines, started)));
        let run = at.run;
        self.note(None, format_args!("s{node} starts"));
        self.check_dropped(node);
        if let Some(misfit) = misfits.first()
            && self.nodes[node].hosts == self.nodes[node].hosts_at_first
        {
            let what = format!("s{node} does not find room again for what it had granted: {:?}", misfit.attempt);
            self.violate("never over-committed", Some(&misfit.attempt.request), what);
        }
        self.check_ledger(node);
        self.after(0, Event::SignOfLife { node, run });
        self.perform_ledger(node);
        for id in ids {
            self.perform_request(node, &id);
        }
    }

    /// A node loses everything that is not on disk, and mostly comes back.
    pub(super) fn crash(&mut self, node: usize) {
        if self.kill(node) {
            self.stopped(node);
        }
    }

    /// A node loses everything that is not on disk; whether it ran.
    pub(super) fn kill(&mut self, node: usize) -> bool {
        let Some(running) = self.nodes[node].stop() else { return false };
        self.nodes[node].run += 1;
        self.figures.crashes += 1;
        self.note(None, format_args!("s{node} crashes"));
        let mut lost: Vec<Actor> = Vec::new();
        let mut touched = Vec::new();
        for (actor, write) in running.writes.into_values() {
            if lost.contains(&actor) || self.random.random_range(0..2) == 0 {
                lost.push(actor);
                continue;
            }
            touched.extend(write.about().cloned());
            self.reaches_disk(node, write);
        }
        for request in touched {
            self.check_disk(node, &request);
        }
        true
    }

    /// A site leaves in order, and mostly comes back.
    fn go_away(&mut self, node: usize) {
        if self.leave(node) {
            self.stopped(node);
        }
    }

    /// A site leaves in order: its writes under way are finished. Whether it ran.
    pub(super) fn leave(&mut self, node: usize) -> bool {
        let Some(running) = self.nodes[node].stop() else { return false };
        self.nodes[node].run += 1;
        self.note(None, format_args!("s{node} leaves"));
        let mut touched = Vec::new();
        for (_, write) in running.writes.into_values() {
            touched.extend(write.about().cloned());
            self.reaches_disk(node, write);
        }
        for request in touched {
            self.check_disk(node, &request);
        }
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            self.send(node, to, Body::Departure);
        }
        true
    }

    /// A node that has just stopped is gone for good, or comes back some time later.
    fn stopped(&mut self, node: usize) {
        let gone = self.nodes.iter().filter(|node| node.is_gone()).count();
        if gone < self.options.gone_max && self.random.random_range(0..5) == 0 {
            self.nodes[node].state = State::Gone;
            self.note(None, format_args!("s{node} is gone for good"));
            return;
        }
        let run = self.nodes[node].run;
        let after = if self.random.random_range(0..2) == 0 { 200 } else { DOWN_MS_MAX };
        let after = self.random.random_range(1..=after);
        self.after(after, Event::Start { node, run });
    }

    /// One of the faults that this seed has happens, and the next is planned.
    pub(super) fn inject_fault(&mut self) {
        if self.is_healed {
            return;
        }
        let node = self.random.random_range(0..self.nodes.len());
        let trouble_ms = self.random.random_range(100..=TROUBLE_MS_MAX);
        let faults = self.options.faults;
        match self.random.random_range(0..5) {
            0 | 1 if faults.crashes => self.crash(node),
            2 if faults.partitions => {
                let size = self.random.random_range(1..=self.nodes.len().div_ceil(2));
                let part: BTreeSet<usize> = (0..size).map(|_| self.random.random_range(0..self.nodes.len())).collect();
                let is_one_way = self.random.random_range(0..3) == 0;
                let how = if is_one_way { "nothing gets out of" } else { "cut off:" };
                self.note(None, format_args!("{how} {part:?}"));
                self.figures.partitions += 1;
                self.network.cut(self.nodes.len(), &part, is_one_way);
                self.after(trouble_ms, Event::PartitionEnds);
            }
            3 if faults.slowness => {
                self.nodes[node].slow_ms = self.random.random_range(50..=1_500);
                self.note(None, format_args!("s{node} is slow"));
                self.after(trouble_ms, Event::SlownessEnds { node });
            }
            4 if faults.departures => self.go_away(node),
            _ => {}
        }
        let after = self.random.random_range(200..=2_500);
        self.after(after, Event::Fault);
    }
}
