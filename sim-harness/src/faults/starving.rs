//! When nodes run out of descriptors, and that they do ([`Descriptors`](super::descriptors::Descriptors)): their connections are the
//! network's matter, and their writes go on.

use std::collections::BTreeSet;

use super::{descriptors::Shortage, event::Event, grid::Grid};

/// Plans which nodes run out of descriptors, and when they have some again.
pub fn plan(grid: &mut Grid) {
    let Some(descriptors) = &grid.options.descriptors else { return };
    let shortages = descriptors.shortages(grid.nodes.len(), grid.options.faulty_ms);
    for Shortage { node, unconnected, at_ms, until_ms } in shortages {
        grid.after(at_ms, Event::Starve { node, unconnected });
        grid.after(until_ms, Event::Sated { node });
    }
}

/// A node has run out of descriptors, and has no connection with these others.
pub fn begin(grid: &mut Grid, node: usize, unconnected: BTreeSet<usize>) {
    grid.note(None, format_args!("s{node} has no descriptors left, nor connections with {unconnected:?}"));
    grid.figures.shortages += 1;
    grid.network.starve(node, unconnected);
}

/// A node has descriptors again.
pub fn end(grid: &mut Grid, node: usize) {
    if grid.network.end_shortage(node) {
        grid.note(None, format_args!("s{node} has descriptors again"));
    }
}

/// All nodes have descriptors again.
pub fn heal(grid: &mut Grid) {
    (0..grid.nodes.len()).for_each(|node| end(grid, node));
}
