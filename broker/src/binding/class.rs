//! Classes: hosts that are alike and differ in nothing but their names.
//!
//! A host with an own pinned future is a class by itself until that is over. Invariant: at any time, blocks and busy hosts of a class are at
//! most as many as its hosts.

use std::collections::BTreeSet;

use crate::{
    model::{
        amount::Amount,
        host::Host,
        ids::HostId,
        time::{Span, Time, Window},
    },
    schedule::Occupancy,
};

/// Position of a class in its witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassIndex(pub usize);

/// Position of a block in its witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockIndex(pub usize);

/// A host, and when its owner needs it.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub host: Host,
    pub busy: Vec<Window>,
}

/// Hosts that are alike.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// One of them, for what they are.
    pub kind: Host,
    pub hosts: Vec<HostId>,
    /// Hosts in use over time: one for each block, and those that are busy.
    load: Occupancy,
    /// Hosts that are busy with what is pinned there.
    busy: Occupancy,
    /// Blocks by their start.
    blocks: BTreeSet<(Time, BlockIndex)>,
    /// At least the length of the longest block.
    longest: Span,
    /// Blocks that could use the class.
    pub wanted: usize,
}

const ONE: Amount = Amount(1);

impl Class {
    /// The classes of these hosts, in the order of their first ones.
    pub fn of(members: &[Member]) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        for Member { host, busy } in members {
            let is_like = |class: &&mut Class| busy.is_empty() && class.busy.is_empty() && are_alike(&class.kind, host);
            if let Some(class) = classes.iter_mut().find(is_like) {
                class.hosts.push(host.id.clone());
                continue;
            }
            let mut occupied = Occupancy::default();
            // Windows of one host may cross each other.
            for window in busy {
                let free: Vec<Window> = gaps(&occupied, *window).collect();
                free.into_iter().for_each(|gap| occupied.add(gap, ONE));
            }
            classes.push(Class {
                kind: host.clone(),
                hosts: vec![host.id.clone()],
                load: occupied.clone(),
                busy: occupied,
                blocks: BTreeSet::new(),
                longest: Span(0),
                wanted: 0,
            });
        }
        classes
    }

    fn count(&self) -> Amount {
        Amount(self.hosts.len() as u64)
    }

    /// Whether one more block has a host there.
    pub fn has_room(&self, window: Window) -> bool {
        self.load.peak(window) < self.count()
    }

    /// Whether a host is left at this second.
    pub fn has_room_at(&self, at: Time) -> bool {
        self.load.used_at(at) < self.count()
    }

    /// Hosts that are not busy at this second.
    pub fn usable_at(&self, at: Time) -> usize {
        let busy = usize::try_from(self.busy.used_at(at).0).unwrap_or(usize::MAX);
        self.hosts.len().saturating_sub(busy)
    }

    /// Whether no host is busy with what is pinned there.
    pub fn is_idle(&self, window: Window) -> bool {
        self.busy.peak(window) == Amount::ZERO
    }

    /// The stretches of the window in which no host is left.
    pub fn full(&self, window: Window) -> impl Iterator<Item = Window> {
        stretches(&self.load, window).filter(|(_, used)| *used >= self.count()).map(|(stretch, _)| stretch)
    }

    pub fn add(&mut self, block: BlockIndex, window: Window) {
        self.load.add(window, ONE);
        self.blocks.insert((window.start, block));
        self.longest = self.longest.max(window.duration());
    }

    pub fn remove(&mut self, block: BlockIndex, window: Window) {
        if self.blocks.remove(&(window.start, block)) {
            // What was added is there to be removed.
            let _ = self.load.remove(window, ONE);
        }
    }

    /// Blocks that may cross the window: none that does is missing.
    pub fn near(&self, window: Window) -> impl Iterator<Item = BlockIndex> {
        let (first, last) = (window.start - self.longest, window.end);
        self.blocks.range((first, BlockIndex(0))..(last, BlockIndex(0))).map(|(_, block)| *block)
    }

    /// Starts of blocks inside the window.
    pub fn starts(&self, window: Window) -> impl Iterator<Item = Time> {
        self.blocks.range((window.start, BlockIndex(0))..(window.end, BlockIndex(0))).map(|(start, _)| *start)
    }

    /// Blocks by their start.
    pub fn blocks(&self) -> impl Iterator<Item = BlockIndex> {
        self.blocks.iter().map(|(_, block)| *block)
    }
}

/// The use during the window, each value with how long it lasts.
fn stretches(occupancy: &Occupancy, window: Window) -> impl Iterator<Item = (Window, Amount)> {
    let mut segments = occupancy.segments(window).peekable();
    std::iter::from_fn(move || {
        let (start, used) = segments.next()?;
        let end = segments.peek().map_or(window.end, |next| next.0);
        Some((Window { start, end }, used))
    })
}

/// The stretches of the window in which nothing is used.
fn gaps(occupancy: &Occupancy, window: Window) -> impl Iterator<Item = Window> {
    stretches(occupancy, window).filter(|(_, used)| *used == Amount::ZERO).map(|(stretch, _)| stretch)
}

fn are_alike(a: &Host, b: &Host) -> bool {
    a.capacity == b.capacity && a.attributes == b.attributes && a.speed == b.speed && a.tariff == b.tariff
}
