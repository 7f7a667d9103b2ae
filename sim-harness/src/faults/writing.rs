//! What simulated nodes write, and what becomes of it: it reaches the disk after a while, and what waited for it happens; or the disk refuses
//! it, and the node stops.
//!
//! Invariant: without a deliberate fault nothing happens that waits for a write that is not on disk.

use broker::{ids::RequestId, ledger, negotiation::Decision};
use rand::RngExt;

use super::{canary::Canary, event::NodeEvent, life, world::World};
use crate::engine::{Actor, Medium as _, Write};

impl World {
    /// Begins a write; what comes behind it waits for [`NodeEvent::Written`].
    pub(super) fn write(&mut self, node: usize, actor: Actor, write: Write) {
        let grid = &mut self.grid;
        let name = grid.name();
        let takes = grid.random.random_range(0..=grid.nodes[node].disk_ms_max) + grid.nodes[node].slow_ms;
        let Some(running) = grid.running(node) else { return };
        running.writes.insert(name, (actor, write));
        grid.node_after(takes, node, NodeEvent::Written { write: name });
        if grid.random.random_range(0..1000) < grid.options.crash_per_mille {
            let after = grid.random.random_range(0..=takes);
            grid.node_after(after, node, NodeEvent::Crash);
        }
    }

    /// A write has reached the disk: what waited for it happens.
    pub(super) fn written(&mut self, node: usize, write: u64) {
        let Some((actor, write)) = self.grid.running(node).and_then(|running| running.writes.remove(&write)) else {
            return;
        };
        let is_refused = self.grid.nodes[node].room.refuses_writes();
        if is_refused && self.grid.canary != Some(Canary::FullDiskPromises) {
            return life::stop_unwritten(&mut self.grid, node);
        }
        let is_forgotten = self.grid.canary == Some(Canary::StarvedWritesLost) && self.grid.network.is_starved(node);
        let members = write.members();
        if !is_refused && !is_forgotten {
            self.reach_disk(node, &actor, write);
        }
        match actor {
            Actor::Ledger => self.perform_ledger(node),
            Actor::Batch(batch) => self.batch_written(node, &batch, &members),
            Actor::Request(id) => {
                self.begin(node, &id);
                self.perform_request(node, &id);
                self.send_held_back(node, &id);
            }
        }
    }

    /// The disk of a node has a write, with what that changes.
    fn reach_disk(&mut self, node: usize, actor: &Actor, write: Write) {
        let about = write.about();
        let request = match actor {
            Actor::Request(id) => Some(id),
            Actor::Ledger | Actor::Batch(_) => about.last(),
        };
        self.grid.note(request, format_args!("s{node} has on disk: {}", describe(&write)));
        life::reach_disk(&mut self.grid, node, vec![write]);
        self.use_room_up(node);
    }

    /// The first write of a request is on disk: it begins.
    pub(super) fn begin(&mut self, node: usize, id: &RequestId) {
        let seed = self.grid.random.random();
        let now = self.clock(node);
        let Some(record) = self.disk(node).requests.get(id).cloned() else { return };
        let is_taken_over = !record.taken_over.is_empty();
        if let Some(machines) = self.machines(node) {
            machines.begin(record, is_taken_over, seed, now);
        }
    }
}

fn describe(write: &Write) -> String {
    match write {
        Write::Ledger(record) => match &**record {
            ledger::Record::Put(_) | ledger::Record::PutAll(_) => {
                let one = |one: &ledger::BookingRecord| {
                    let settled = if one.settled { ", settled" } else { "" };
                    format!("reservation #{}{settled}", one.attempt.attempt)
                };
                record.put().iter().map(one).collect::<Vec<_>>().join("; ")
            }
            ledger::Record::Gone(record) => format!("no longer #{}", record.attempt.attempt),
            ledger::Record::Charge(charge) => format!("#{} costs {}", charge.attempt.attempt, charge.charged),
            ledger::Record::Queue(job) => format!("own job {}", job.attempt.request),
            ledger::Record::Dequeue(attempt) => format!("no own job {}", attempt.request),
            ledger::Record::Remove(attempt) => format!("no reservation #{}", attempt.attempt),
        },
        Write::Request(record) => {
            let decision = match &record.decision {
                Decision::Open => "open".to_owned(),
                Decision::Commit { attempt, .. } => format!("commit #{attempt}"),
                Decision::Reserved { attempt, .. } => format!("reserved #{attempt}"),
                Decision::Closed(_) => "closed".to_owned(),
            };
            format!("{decision}, {} releases owed", record.owed.len())
        }
        Write::Tie { records, .. } => format!("{} requests tied together", records.len()),
        Write::Untie { members, .. } => format!("{} requests tied no longer", members.len()),
    }
}
