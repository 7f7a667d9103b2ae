//! Owners who set prices and change them, and owners who empty their sites.
//!
//! Invariant: what an owner asks for is in the node's hosts, also when the node starts again.

use std::{collections::BTreeMap, sync::Arc};

use broker::ledger::ScheduleUpdateParts;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{event::Event, grid::Grid, life, world::World};
use crate::engine::Medium as _;

/// Gives the hosts of all sites their first tariffs and plans the changes.
pub fn plan(grid: &mut Grid) {
    let Some(money) = grid.options.money.clone() else { return };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(money.seed ^ 1);
    for site in 0..grid.nodes.len() {
        reprice(grid, site, random.random());
    }
    for _ in 0..money.changes {
        let at = random.random_range(0..grid.options.faulty_ms);
        let (site, seed) = (random.random_range(0..grid.nodes.len()), random.random());
        grid.after(at, Event::Reprice { site, seed });
    }
}

/// Plans when sites are emptied.
pub fn plan_drains(grid: &mut Grid) {
    let Some(drains) = &grid.options.drains else { return };
    for (site, at, until) in drains.times(grid.nodes.len(), grid.options.faulty_ms) {
        grid.after(at, Event::Drain { site, is_draining: true });
        if let Some(until) = until {
            grid.after(until, Event::Drain { site, is_draining: false });
        }
    }
}

/// The owner of a site changes the prices of its hosts.
pub fn reprice(grid: &mut Grid, site: usize, seed: u64) {
    let Some(money) = grid.options.money.clone() else { return };
    let (mut random, now) = (Xoshiro256PlusPlus::seed_from_u64(seed), grid.clock(site));
    let node = &mut grid.nodes[site];
    let tariffs: BTreeMap<_, _> = node
        .hosts_at_first
        .iter()
        .map(|(host, _)| (host.id.clone(), Arc::new(money.tariff(&mut random, now.utc))))
        .collect();
    for (host, _) in node.hosts.iter_mut().chain(&mut node.hosts_at_first) {
        if let Some(tariff) = tariffs.get(&host.id) {
            host.tariff = tariff.clone();
        }
    }
    if let Some(running) = node.running_mut() {
        running.machines.ledger.set_tariffs(now, tariffs);
        // What it publishes of that may wait for the disk.
        if let Some(running) = grid.nodes[site].running() {
            grid.truth.note(site, &running.machines.ledger, now);
        }
        grid.figures.price_changes += 1;
    }
}

/// The owner of a site begins or ends to empty it. As in a node that is on disk first, then in force, then told to others; who cannot
/// reach the node, or meets a disk that refuses it, leaves it as it is.
pub fn drain(world: &mut World, node: usize, is_draining: bool) {
    let grid = &mut world.grid;
    let Some(running) = grid.nodes[node].running() else { return };
    if grid.nodes[node].is_draining == is_draining || grid.nodes[node].room.refuses_writes() {
        return;
    }
    let (gate, from) = (running.gate.clone(), running.machines.ledger.version());
    let standing = is_draining.then(|| grid.nodes[node].promised());
    grid.truth.note_draining(node, standing);
    grid.nodes[node].is_draining = is_draining;
    grid.figures.drained += u64::from(is_draining);
    let what = if is_draining { "is being emptied" } else { "offers its hosts again" };
    grid.note(None, format_args!("s{node} {what}"));
    if world.stops_here(node) {
        return;
    }
    gate.lock().set_draining(life::promises_nothing(&world.grid, node));
    world.publish(node, ScheduleUpdateParts { from, changes: Vec::new() });
}
