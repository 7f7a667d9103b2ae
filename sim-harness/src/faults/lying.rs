//! When disks have lied, and that they have ([`Lies`](super::lies::Lies)).
//!
//! Invariant: what is left of a ledger is what was there at some earlier time, so its books are as good as they were then.

use super::{
    event::Event,
    grid::Grid,
    lies::{LOST_MAX, Lie},
    life,
};

/// Plans the crashes after which it shows, in seeds whose coordinators ask whether sites still have what is reserved.
pub fn plan(grid: &mut Grid) {
    let Some(lies) = grid.options.lies.as_ref().filter(|_| grid.options.losses.is_some()) else { return };
    for Lie { node, at_ms, records } in lies.times(grid.nodes.len(), grid.options.faulty_ms) {
        grid.nodes[node].disk.keep_tail(LOST_MAX);
        grid.after(at_ms, Event::Lie { node, records });
    }
}

/// A node crashes, and its disk has lost up to so many records.
pub fn show(grid: &mut Grid, node: usize, records: usize) {
    if grid.is_healed || !life::kill(grid, node) {
        return;
    }
    let booked = grid.nodes[node].disk.reservations.len();
    let lost = grid.nodes[node].disk.lose_tail(records);
    if !lost.is_empty() {
        let left = grid.nodes[node].disk.reservations.len();
        grid.figures.lies += 1;
        grid.figures.promises_lost += booked.saturating_sub(left) as u64;
        for attempt in &lost {
            let number = attempt.attempt;
            grid.note(Some(&attempt.request), format_args!("the disk of s{node} has lost records about #{number}"));
        }
        grid.truth.note_lie(node, &grid.nodes[node].disk, &lost);
    }
    life::come_back(grid, node);
}
