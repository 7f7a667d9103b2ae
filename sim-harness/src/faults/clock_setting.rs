//! When wall clocks are set, and that they are ([`Clocks`]): days ahead or days behind, some until all is healed.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{clocks::Clocks, event::Event, grid::Grid};

/// One clock in so many is set wrong.
const SET_EVERY: u32 = 2;
/// Days by which a clock is set wrong: beyond the standstill that is believed at a start.
const OFF_DAYS: std::ops::RangeInclusive<i64> = 2..=30;
const DAY_MS: i64 = 86_400_000;

/// Plans which clocks are set when, by how much, and when half of them are right again; the others are healed with all else.
pub fn plan(grid: &mut Grid) {
    let Some(Clocks { seed }) = grid.options.clocks else { return };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 1);
    for site in 0..grid.nodes.len() {
        if random.random_range(0..SET_EVERY) > 0 {
            continue;
        }
        let at = random.random_range(0..grid.options.faulty_ms);
        let days = random.random_range(OFF_DAYS) * if random.random_bool(0.25) { -1 } else { 1 };
        grid.after(at, Event::SetClock { site, off_ms: days * DAY_MS });
        if random.random_bool(0.5) {
            let until = random.random_range(at..grid.options.faulty_ms);
            grid.after(until, Event::SetClock { site, off_ms: 0 });
        }
    }
}

/// The wall clock of a site is this far off from now on, beside its skew.
pub fn set(grid: &mut Grid, site: usize, off_ms: i64) {
    grid.note(None, format_args!("the clock of s{site} is {off_ms} ms off"));
    let now = grid.now();
    grid.nodes[site].clock.set(off_ms, now);
    heed(grid, site);
}

/// All wall clocks are right again.
pub fn heal(grid: &mut Grid) {
    for site in 0..grid.nodes.len() {
        if grid.nodes[site].clock.is_off() {
            set(grid, site, 0);
        }
    }
}

/// A site promises nothing while it does not believe its clock.
pub fn heed(grid: &mut Grid, site: usize) {
    grid.clock(site);
    let is_believed = grid.nodes[site].clock.is_believed();
    let Some(running) = grid.nodes[site].running() else { return };
    running.gate.lock().set_clock_believed(is_believed);
    grid.figures.clocks_doubted += u64::from(!is_believed);
}
