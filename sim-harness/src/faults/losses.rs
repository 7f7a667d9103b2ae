//! What a seed loses after it was reserved: hosts that owners take away, sites that never come back, and entry points whose
//! users go to another node.
//!
//! Invariant: draws from a generator of its own, so that a seed without losses runs as it would.

use std::mem;

use broker::{
    amount::Amount,
    ledger::{self, Booking},
    request::Request,
    time::Time,
};
use rand::{RngExt, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    event::Event,
    grid::Grid,
    life,
    message::Question,
    names,
    node::Node,
    users::{self, Report},
    world::World,
};
use crate::engine::Medium as _;

/// After the healing, users whose entry point is gone go to another node, so often and with such a wait between.
const TAKEOVERS_AT_MOST: u64 = 3;
const TAKEOVER_EVERY_MS: u64 = 15_000;

/// The generator of losses and takeovers.
pub struct Fates {
    random: Xoshiro256PlusPlus,
}

impl Fates {
    /// Losses that are drawn from this generator.
    pub fn new(random: Xoshiro256PlusPlus) -> Fates {
        Fates { random }
    }

    /// Plans what is lost in a run that begins.
    pub fn plan(&mut self, grid: &mut Grid) {
        let Some(losses) = grid.options.losses.clone() else { return };
        let faulty_ms = grid.options.faulty_ms;
        for _ in 0..losses.shrinks {
            grid.after(self.random.random_range(faulty_ms / 4..faulty_ms), Event::Shrink);
        }
        for number in 0..grid.options.requests {
            if self.random.random_range(0..100) < losses.takeover_percent {
                let at = self.random.random_range(faulty_ms / 4..faulty_ms);
                let nodes = if self.random.random_range(0..3) == 0 { 2 } else { 1 };
                self.plan_takeovers(grid, number, (at, 1_000), nodes);
            }
        }
    }

    /// Plans users that go from node to node, and back, with all their requests.
    pub fn plan_wanderings(&mut self, grid: &mut Grid) {
        let faulty_ms = grid.options.faulty_ms;
        for number in 0..grid.options.requests {
            let at = self.random.random_range(faulty_ms / 4..faulty_ms);
            let nodes = self.random.random_range(2..=4);
            self.plan_takeovers(grid, number, (at, 10_000), nodes);
        }
    }

    /// Plans coordinators that are gone for good, and users that notice it some time later.
    pub fn plan_desertions(&mut self, grid: &mut Grid) {
        let (faulty_ms, requests) = (grid.options.faulty_ms, grid.options.requests);
        grid.options.gone_max = grid.options.gone_max.max(1);
        for number in (0..requests).filter(|_| self.random.random_range(0..3) == 0).collect::<Vec<_>>() {
            let at = self.random.random_range(faulty_ms / 4..faulty_ms);
            grid.after(at, Event::Desert { number });
            for _ in 0..2 {
                let after = self.random.random_range(0..10_000);
                grid.after(at + after, Event::TakeOver { number, only_if_gone: true });
            }
        }
    }

    /// Plans owners that take their hosts back.
    pub fn plan_evictions(&mut self, grid: &mut Grid) {
        let faulty_ms = grid.options.faulty_ms;
        for number in 0..grid.options.requests {
            if self.random.random_range(0..2) == 0 {
                grid.after(self.random.random_range(faulty_ms / 4..faulty_ms), Event::Evict { number });
            }
        }
    }

    fn plan_takeovers(&mut self, grid: &mut Grid, number: u64, (at, within): (u64, u64), count: usize) {
        for _ in 0..count {
            let after = self.random.random_range(0..within);
            grid.after(at + after, Event::TakeOver { number, only_if_gone: false });
        }
    }

    /// One of these nodes.
    pub fn choose(&mut self, nodes: &[usize]) -> Option<usize> {
        nodes.choose(&mut self.random).copied()
    }

    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    /// Draws a request; `None` when the draw makes no sense.
    pub fn draw_request(&mut self, grid: &mut Grid, arrival: Time) -> Option<Request> {
        users::draw_request(&mut grid.random, &mut self.random, &grid.options, arrival)
    }

    /// The site starts: if its owner has stopped it for that, it has less to offer or all it had at first, also where a
    /// reservation has begun.
    pub fn shrink(&mut self, grid: &mut Grid, node: usize) {
        let now = grid.clock(node).utc;
        let at = &mut grid.nodes[node];
        if !mem::take(&mut at.is_to_shrink) {
            return;
        }
        if at.hosts.is_empty() || self.random.random_range(0..4) == 0 {
            at.hosts.clone_from(&at.hosts_at_first);
            at.uplink = at.uplink_at_first;
            return;
        }
        grid.figures.shrinks += 1;
        // Other seeds have none.
        if let Some(uplink) = at.uplink.filter(|_| self.random.random_range(0..3) == 0) {
            at.uplink = Some(Amount((uplink.0 / 3).max(1)));
            grid.note(None, format_args!("the uplink of s{node} carries less"));
            return;
        }
        let index = self.random.random_range(0..at.hosts.len());
        let id = at.hosts[index].0.id.clone();
        let at_first = at.hosts_at_first.iter().find(|(host, _)| host.id == id);
        let is_whole = at_first.is_some_and(|(host, _)| *host == at.hosts[index].0);
        if !is_whole || self.random.random_range(0..2) == 0 {
            at.hosts.remove(index);
        } else {
            for amount in at.hosts[index].0.capacity.values_mut() {
                amount.0 /= 2;
            }
        }
        let is_in_use = at.disk.reservations.values().any(|reservation| {
            let is_here = reservation.grants.iter().any(|grant| *grant.host() == id);
            is_here && reservation.window.start <= now && now < reservation.window.end
        });
        grid.figures.shrinks_in_use += u64::from(is_in_use);
        grid.note(None, format_args!("s{node} has less to offer"));
    }
}

/// The owner of one of the sites that have hosts of a request takes them back.
pub fn evict(world: &mut World, number: u64) {
    let request = names::request(number);
    let is_of_request = |booking: &&Booking| booking.attempt.request == request && !booking.is_held();
    let booked = |node: &Node| -> Vec<Booking> {
        let bookings = node.running().into_iter().flat_map(|running| running.machines.ledger.bookings());
        bookings.filter(is_of_request).cloned().collect()
    };
    let booked: Vec<_> = world.grid.nodes.iter().map(booked).enumerate().filter(|(_, all)| !all.is_empty()).collect();
    if booked.is_empty() || world.grid.is_healed {
        return;
    }
    let (node, bookings) = booked[number as usize % booked.len()].clone();
    let attempts: Vec<_> = bookings.iter().map(|booking| booking.attempt.clone()).collect();
    let question = Question::Eviction { request: request.clone(), attempts: attempts.clone() };
    world.ask_as_owner(node, question, |token| ledger::Event::Evict { token, request: request.clone() });
    let grid = &mut world.grid;
    let Some(running) = grid.running(node) else { return };
    let is_there = running.machines.ledger.bookings().any(|booking| attempts.contains(&booking.attempt));
    if !is_there {
        running.evicted.extend(bookings.iter().map(|booking| (booking.attempt.clone(), booking.window.end)));
        grid.figures.evicted += 1;
        grid.note(Some(&request), format_args!("the owner of s{node} takes its hosts back"));
        for Booking { attempt, grants, .. } in bookings {
            grid.truth.note_evicting(node, attempt, grants);
        }
    }
    world.perform_ledger(node);
}

/// The coordinator of a request stops, in order or not, and is gone for good unless too many are already.
pub fn desert(grid: &mut Grid, number: u64) {
    let Some(user) = grid.users.get(&names::request(number)) else { return };
    let node = user.entry_point;
    if grid.is_healed || grid.nodes[node].running().is_none() || !grid.may_lose() {
        return;
    }
    let has_stopped = if number.is_multiple_of(4) { life::leave(grid, node) } else { life::kill(grid, node) };
    if has_stopped {
        grid.figures.deserted += 1;
        grid.lose(node, |_| true);
    }
}

/// Users whose entry point is gone for good go to another node, when everything else is healed.
pub fn plan_last_takeovers(grid: &mut Grid) {
    let is_left = |user: &&users::UserRequest| {
        let is_over = matches!(user.report, Report::Over(_)) || user.is_cancelled;
        grid.nodes[user.entry_point].is_gone() && !is_over
    };
    let numbers: Vec<u64> = grid.users.all().filter(is_left).map(|user| user.number).collect();
    for number in numbers {
        for count in 0..TAKEOVERS_AT_MOST {
            grid.after(1_000 + count * TAKEOVER_EVERY_MS, Event::TakeOver { number, only_if_gone: true });
        }
    }
}
