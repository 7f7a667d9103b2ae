//! When owners change their rules, and that they do ([`Rules`](super::rules::Rules)).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{event::Event, grid::Grid, life, rules};

/// Plans the changes.
pub fn plan(grid: &mut Grid) {
    let Some(rules) = grid.options.rules.clone() else { return };
    let mut random = rules.generator();
    for _ in 0..rules.changes {
        let at = random.random_range(0..grid.options.faulty_ms);
        let (site, seed) = (random.random_range(0..grid.nodes.len()), random.random());
        grid.after(at, Event::Rules { site, seed });
    }
}

/// The owner of a site has other rules from now on.
pub fn change(grid: &mut Grid, site: usize, seed: u64) {
    let (mut random, now) = (Xoshiro256PlusPlus::seed_from_u64(seed), grid.clock(site).utc);
    let offered = rules::offered_from(&mut random, now);
    grid.note(None, format_args!("s{site} offers {offered:?}"));
    grid.nodes[site].offered = Some(offered);
    grid.figures.rule_changes += 1;
    let policy = life::policy_of(grid, site);
    if let Some(running) = grid.nodes[site].running() {
        running.gate.lock().set_policy(policy);
    }
}
