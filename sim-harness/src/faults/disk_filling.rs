//! When disks are filled ([`Disks`](super::disks::Disks)), and what a node does then: as long as it lacks room for new promises it makes none
//! and says so.
//!
//! Invariant: what is promised is still written, unless the disk refuses all writes; then the node stops.

use broker::ledger::ScheduleUpdateParts;
use rand::RngExt;

use super::{
    disks::Filling,
    event::{Event, NodeEvent},
    grid::Grid,
    life,
    room::Full,
    world::World,
};
use crate::engine::Medium as _;

/// From one look of a node at its room to the next.
const LOOK_EVERY_MS: u64 = 3_000;

/// Plans which disks are filled when, and when half of them have room again; the others are healed with all else.
pub fn plan(grid: &mut Grid) {
    let Some(disks) = &grid.options.disks else { return };
    for Filling { node, how, at_ms, until_ms } in disks.fillings(grid.nodes.len(), grid.options.faulty_ms) {
        grid.after(at_ms, Event::FillDisk { node, how });
        if let Some(until_ms) = until_ms {
            grid.after(until_ms, Event::FreeDisk { node });
        }
    }
}

/// The disk of a node is full from now on.
pub fn fill(grid: &mut Grid, node: usize, how: Full) {
    grid.note(None, format_args!("the disk of s{node} is full: {how:?}"));
    grid.nodes[node].room.fill(how);
    grid.figures.disks_filled += 1;
    plan_look(grid, node);
}

/// The disk of a node has room again.
pub fn free(grid: &mut Grid, node: usize) {
    if grid.nodes[node].room.free() {
        grid.note(None, format_args!("the disk of s{node} has room"));
        plan_look(grid, node);
    }
}

/// All disks have room again.
pub fn heal(grid: &mut Grid) {
    (0..grid.nodes.len()).for_each(|node| free(grid, node));
}

/// Plans the next look of a node at its room. One that does not run looks when it starts.
fn plan_look(grid: &mut Grid, node: usize) {
    let after = grid.random.random_range(0..=LOOK_EVERY_MS);
    grid.node_after(after, node, NodeEvent::LookForRoom);
}

impl World {
    /// A node has written something.
    pub(super) fn use_room_up(&mut self, node: usize) {
        if self.grid.nodes[node].room.use_up() {
            plan_look(&mut self.grid, node);
        }
    }

    /// A node looks at its room. What it finds is in force first, then told to others.
    pub(super) fn look_for_room(&mut self, node: usize) {
        if !self.grid.nodes[node].room.look() {
            return;
        }
        life::note_room(&mut self.grid, node);
        let promises_nothing = life::promises_nothing(&self.grid, node);
        let Some(running) = self.grid.nodes[node].running() else { return };
        let from = running.machines.ledger.version();
        running.gate.lock().set_draining(promises_nothing);
        self.publish(node, ScheduleUpdateParts { from, changes: Vec::new() });
    }
}
