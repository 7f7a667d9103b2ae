//! Owners who empty their sites, and some who end that again.
//!
//! Invariant: drawn from a generator of its own, so that other seeds run as they would.

use broker::ledger::{Booking, ScheduleUpdateParts};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{event::Event, grid::Grid, world::World};
use crate::engine::Medium as _;

/// One site in so many is emptied.
const DRAINED_EVERY: u32 = 3;

/// The sites of a seed that are emptied.
#[derive(Debug, Clone)]
pub struct Drains {
    seed: u64,
}

impl Drains {
    /// Draws those of a seed: half of the seeds have some.
    pub fn draw(seed: u64) -> Option<Drains> {
        Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5).then_some(Drains { seed })
    }

    /// Plans when sites are emptied, and when half of them offer their hosts again.
    pub fn plan(&self, grid: &mut Grid) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 1);
        let faulty_ms = grid.options.faulty_ms;
        for site in 0..grid.nodes.len() {
            if random.random_range(0..DRAINED_EVERY) > 0 {
                continue;
            }
            let at = random.random_range(0..faulty_ms);
            grid.after(at, Event::Drain { site, is_draining: true });
            if random.random_bool(0.5) {
                grid.after(random.random_range(at..faulty_ms), Event::Drain { site, is_draining: false });
            }
        }
    }
}

/// The owner of a site begins or ends to empty it. As in a node that is on disk first, then in force, then told to others; who cannot
/// reach the node leaves it as it is.
pub fn drain(world: &mut World, node: usize, is_draining: bool) {
    let grid = &mut world.grid;
    let Some(running) = grid.nodes[node].running() else { return };
    if grid.nodes[node].is_draining == is_draining {
        return;
    }
    let (gate, from) = (running.gate.clone(), running.machines.ledger.version());
    let promised = |booking: &Booking| (booking.attempt.clone(), booking.grants.clone());
    let standing = is_draining.then(|| running.machines.ledger.bookings().map(promised).collect());
    grid.truth.note_draining(node, standing);
    grid.nodes[node].is_draining = is_draining;
    grid.figures.drained += u64::from(is_draining);
    let what = if is_draining { "is being emptied" } else { "offers its hosts again" };
    grid.note(None, format_args!("s{node} {what}"));
    if world.stops_here(node) {
        return;
    }
    gate.lock().set_draining(is_draining);
    world.publish(node, ScheduleUpdateParts { from, changes: Vec::new() });
}
