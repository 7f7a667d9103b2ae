//! What goes wrong in a seed by itself: crashes, cuts, slowness and departures, one after another, and what is planned from the start on of
//! clocks, disks and descriptors.
//!
//! Invariant: nothing of it begins once all is healed.

use std::collections::BTreeSet;

use rand::RngExt;

use super::{clock_setting, disk_filling, event::Event, grid::Grid, life, lying, starving};

/// Longest partition, and longest slowness.
const TROUBLE_MS_MAX: u64 = 8_000;

/// Plans what goes wrong with clocks, disks and descriptors.
pub fn plan(grid: &mut Grid) {
    clock_setting::plan(grid);
    disk_filling::plan(grid);
    lying::plan(grid);
    starving::plan(grid);
}

/// Clocks are right, disks have room, and all nodes have descriptors.
pub fn heal(grid: &mut Grid) {
    clock_setting::heal(grid);
    disk_filling::heal(grid);
    starving::heal(grid);
}

/// One of the faults that this seed has happens, and the next is planned.
pub fn inject(grid: &mut Grid) {
    if grid.is_healed {
        return;
    }
    let node = grid.random.random_range(0..grid.nodes.len());
    let trouble_ms = grid.random.random_range(100..=TROUBLE_MS_MAX);
    let faults = grid.options.faults;
    match grid.random.random_range(0..5) {
        0 | 1 if faults.crashes => life::crash(grid, node),
        2 if faults.partitions => {
            let size = grid.random.random_range(1..=grid.nodes.len().div_ceil(2));
            let part: BTreeSet<usize> = (0..size).map(|_| grid.random.random_range(0..grid.nodes.len())).collect();
            let is_one_way = grid.random.random_range(0..3) == 0;
            let how = if is_one_way { "nothing gets out of" } else { "cut off:" };
            grid.note(None, format_args!("{how} {part:?}"));
            grid.figures.partitions += 1;
            grid.network.cut(grid.nodes.len(), &part, is_one_way);
            grid.after(trouble_ms, Event::PartitionEnds);
        }
        3 if faults.slowness => {
            grid.nodes[node].slow_ms = grid.random.random_range(50..=1_500);
            grid.note(None, format_args!("s{node} is slow"));
            grid.after(trouble_ms, Event::SlownessEnds { node });
        }
        4 if faults.departures => life::go_away(grid, node),
        _ => {}
    }
    let after = grid.random.random_range(200..=2_500);
    grid.after(after, Event::Fault);
}
