//! How nodes start and stop.
//!
//! Invariant: a node that stops keeps its disk and nothing else; of the writes under way a crash lets some through, and of
//! one state machine's writes none after a lost one.

use broker::{
    ids::RequestId,
    ledger::Record,
    trust::{Gate, OwnerPolicy, SharedGate},
};
use rand::RngExt;

use super::{
    canary::Canary, checks, clock_setting, event::NodeEvent, grid::Grid, message::Body, queues::Queues, rules,
    shares::Shares,
};
use crate::engine::{Actor, Write};

/// Longest time until a crashed node starts again.
const DOWN_MS_MAX: u64 = 12_000;
/// From a stop for want of room on the disk to the next try to start, as the unit of the package has it.
pub const RESTART_MS: u64 = 5_000;

/// The rules of the owner of a node.
pub fn policy_of(grid: &Grid, node: usize) -> OwnerPolicy {
    let policy = grid.options.shares.as_ref().map_or_else(OwnerPolicy::default, Shares::policy);
    let heeded = grid.nodes[node].offered.as_ref().filter(|_| grid.canary != Some(Canary::RulesIgnored));
    let policy = rules::in_force(heeded, policy);
    let queues = grid.options.queues.as_ref().filter(|_| grid.canary != Some(Canary::OwnQueueIgnored));
    let bears_all = OwnerPolicy { quality_loss_percent: 1_000_000, ..policy.clone() };
    if grid.canary == Some(Canary::OwnQueueIgnored) { bears_all } else { Queues::in_force(queues, policy) }
}

/// Whether a site is to promise nothing more, as far as it knows: its owner empties it, or it lacks room on its disk.
pub fn promises_nothing(grid: &Grid, node: usize) -> bool {
    let lacks_room = grid.nodes[node].room.is_missed() && grid.canary != Some(Canary::FullDiskUnheeded);
    grid.nodes[node].is_draining || lacks_room
}

/// A node that runs has found that it lacks room for new promises, or that it has room again: what it has promised so far is noted.
pub fn note_room(grid: &mut Grid, node: usize) {
    let is_missed = grid.nodes[node].room.is_missed();
    let found = if is_missed { "lacks room on its disk" } else { "has room on its disk again" };
    grid.note(None, format_args!("s{node} {found}"));
    grid.figures.rooms_missed += u64::from(is_missed);
    let standing = is_missed.then(|| grid.nodes[node].promised());
    grid.truth.note_lack(node, standing);
}

/// A node starts with what its disk remembers. The outputs of its state machines are still to be let out.
pub fn start(grid: &mut Grid, node: usize) {
    let policy = policy_of(grid, node);
    let gate = SharedGate::from(Gate::new(grid.trust.clone(), policy));
    let is_news = grid.nodes[node].room.look();
    gate.lock().set_draining(promises_nothing(grid, node) && grid.canary != Some(Canary::DrainForgotten));
    let settings = (gate, grid.options.ledger(grid.canary), grid.options.negotiation());
    let (seed, now) = (grid.random.random(), grid.now());
    let misfits = grid.nodes[node].start(now, settings, seed, grid.canary);
    grid.note(None, format_args!("s{node} starts"));
    if is_news {
        note_room(grid, node);
    }
    checks::check_dropped(grid, node);
    if let Some(misfit) = misfits.first()
        && grid.nodes[node].is_whole()
    {
        let what = format!("s{node} does not find room again for what it had granted: {:?}", misfit.attempt);
        grid.violate("never over-committed", Some(&misfit.attempt.request), what);
    }
    clock_setting::heed(grid, node);
    checks::check_start(grid, node);
    checks::check_ledger(grid, node);
    checks::check_sums(grid, node);
    grid.node_after(0, node, NodeEvent::SignOfLife);
}

/// A node loses everything that is not on disk, and mostly comes back.
pub fn crash(grid: &mut Grid, node: usize) {
    if kill(grid, node) {
        come_back(grid, node);
    }
}

/// A node loses everything that is not on disk; whether it ran.
pub fn kill(grid: &mut Grid, node: usize) -> bool {
    let is_refused = grid.nodes[node].room.refuses_writes();
    let Some(running) = grid.nodes[node].stop() else { return false };
    grid.figures.crashes += 1;
    grid.note(None, format_args!("s{node} crashes"));
    let mut lost: Vec<Actor> = Vec::new();
    let mut written = Vec::new();
    for (actor, write) in running.writes.into_values() {
        if is_refused || lost.contains(&actor) || grid.random.random_range(0..2) == 0 {
            lost.push(actor);
        } else {
            written.push(write);
        }
    }
    reach_disk(grid, node, written);
    true
}

/// A node stops since its disk has refused a write: nothing that it was writing is on disk. It starts again when it can.
pub fn stop_unwritten(grid: &mut Grid, node: usize) {
    if grid.nodes[node].stop().is_some() {
        grid.figures.writes_refused += 1;
        grid.note(None, format_args!("s{node} stops: its disk refuses a write"));
        grid.node_after(RESTART_MS, node, NodeEvent::Start);
    }
}

/// A site leaves in order, and mostly comes back.
pub fn go_away(grid: &mut Grid, node: usize) {
    if leave(grid, node) {
        come_back(grid, node);
    }
}

/// A site leaves in order: its writes under way are finished, unless its disk refuses them. Whether it ran.
pub fn leave(grid: &mut Grid, node: usize) -> bool {
    let Some(running) = grid.nodes[node].stop() else { return false };
    grid.note(None, format_args!("s{node} leaves"));
    if !grid.nodes[node].room.refuses_writes() {
        reach_disk(grid, node, running.writes.into_values().map(|(_, write)| write).collect());
    }
    for to in grid.others(node) {
        grid.send(node, to, Body::Departure);
    }
    true
}

/// A node that has just stopped is gone for good, or comes back some time later.
pub fn come_back(grid: &mut Grid, node: usize) {
    if grid.lose(node, |grid| grid.random.random_range(0..5) == 0) {
        return;
    }
    let after = if grid.random.random_range(0..2) == 0 { 200 } else { DOWN_MS_MAX };
    let after = grid.random.random_range(1..=after);
    grid.node_after(after, node, NodeEvent::Start);
}

/// The disk of a node has what it was writing.
pub fn reach_disk(grid: &mut Grid, node: usize, writes: Vec<Write>) {
    let touched: Vec<RequestId> = writes.iter().flat_map(Write::about).collect();
    for write in writes {
        match &write {
            Write::Request(record) => grid.truth.note_takeover(record),
            Write::Ledger(record) => match &**record {
                Record::Put(_) | Record::Queue(_) => {}
                Record::PutAll(_) => grid.figures.rearranged += 1,
                Record::Dequeue(attempt) => grid.truth.note_job_ended(node, attempt),
                Record::Gone(_) | Record::Remove(_) | Record::Charge(_) => {
                    record.attempts().for_each(|attempt| grid.truth.note_gone(node, attempt));
                }
            },
            Write::Tie { .. } | Write::Untie { .. } => {}
        }
        grid.nodes[node].disk.apply(write);
    }
    for request in touched {
        checks::check_disk(grid, node, &request);
    }
}
