//! What happens in a run, each at its moment.

use std::{collections::BTreeSet, sync::Arc};

use broker::{ids::RequestId, protocol::AttemptId, trust::Authorization};

use super::{message::Message, room::Full, views::Search};

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A message arrives.
    Arrival(Message),
    /// Something happens to a node, unless it has started or stopped since this was planned.
    OfNode { node: usize, run: u64, event: NodeEvent },
    /// Something goes wrong.
    Fault,
    /// The links work again.
    PartitionEnds,
    /// A slow node is as fast as before.
    SlownessEnds { node: usize },
    /// A user submits a request.
    Submit { number: u64 },
    /// A user hands several requests in at once.
    SubmitBatch { batch: u64 },
    /// A user cancels a request.
    Cancel { number: u64 },
    /// A cut that is aimed at a reservation.
    Aim,
    /// An owner takes something away.
    Shrink,
    /// The owner of a site changes its prices.
    Reprice { site: usize, seed: u64 },
    /// An owner takes the hosts of a site back from a request.
    Evict { number: u64 },
    /// The owner of a site begins or ends to empty it.
    Drain { site: usize, is_draining: bool },
    /// The wall clock of a site is set.
    SetClock { site: usize, off_ms: i64 },
    /// The disk of a node is full.
    FillDisk { node: usize, how: Full },
    /// It has room again.
    FreeDisk { node: usize },
    /// A node crashes, and its disk has lost so many of the last records.
    Lie { node: usize, records: usize },
    /// A node has run out of descriptors, and has no connection with these others.
    Starve { node: usize, unconnected: BTreeSet<usize> },
    /// It has descriptors again.
    Sated { node: usize },
    /// The owner of a site has other rules.
    Rules { site: usize, seed: u64 },
    /// The owner of a site orders something of the own queue.
    Order { site: usize, seed: u64 },
    /// The coordinator of a request is gone for good.
    Desert { number: u64 },
    /// A user has another node take a request over; with `only_if_gone` only when the present one is gone for good.
    TakeOver { number: u64, only_if_gone: bool },
    /// The attacker tries to take over a request that it has seen.
    Steal { node: usize, to: usize, attempt: AttemptId, authorization: Arc<Authorization> },
    /// A node asks for a hold that it will not confirm.
    Hoard { node: usize, site: usize, number: u64 },
    /// The faults end.
    Heal,
    /// From time to time: has everything settled?
    Look,
}

/// Something that happens to one run of a node.
#[derive(Debug)]
pub enum NodeEvent {
    /// Its timer fires.
    Wake,
    /// A question has got no answer in time.
    Silence { ask: u64 },
    /// A write has reached the disk.
    Written { write: u64 },
    /// Phase I is over.
    Found(Search),
    /// It looks at the room on its disk.
    LookForRoom,
    /// A sign of life is due.
    SignOfLife,
    /// It crashes in the middle of a write.
    Crash,
    /// It starts.
    Start,
    /// The time is over in which sites answer what they have of a request.
    LookedUp { request: RequestId, name: u64 },
}
