//! Owners who set prices and change them.
//!
//! Invariant: what an owner asks for is in the node's hosts, also when the node starts again.

use std::{collections::BTreeMap, sync::Arc};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{event::Event, grid::Grid};

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

/// The owner of a site changes the prices of its hosts.
pub fn reprice(grid: &mut Grid, site: usize, seed: u64) {
    let Some(money) = grid.options.money.clone() else { return };
    let (mut random, now) = (Xoshiro256PlusPlus::seed_from_u64(seed), grid.clock(site).utc);
    let node = &mut grid.nodes[site];
    let tariffs: BTreeMap<_, _> = node
        .hosts_at_first
        .iter()
        .map(|(host, _)| (host.id.clone(), Arc::new(money.tariff(&mut random, now))))
        .collect();
    for (host, _) in node.hosts.iter_mut().chain(&mut node.hosts_at_first) {
        if let Some(tariff) = tariffs.get(&host.id) {
            host.tariff = tariff.clone();
        }
    }
    if let Some(running) = node.running_mut() {
        running.machines.ledger.set_tariffs(tariffs);
        grid.figures.price_changes += 1;
    }
}
