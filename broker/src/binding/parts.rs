//! Seats on parts of hosts: a new one joins blocks that have room for it, or opens one.
//!
//! A seat may close the gaps between several blocks, which become one and need a host in the gaps as well. All choices of such blocks are
//! looked at, and the one that takes the least new host time wins; so whatever first fit could place on some host is placed.

use super::{
    class::{BlockIndex, ClassIndex},
    seat::{Seat, SeatKey},
    witness::{Block, Witness},
};
use crate::model::{
    ids::HostId,
    time::{Span, Window},
};

/// Blocks to be joined, none of which crosses another, and the host time that the gaps take.
type Join = (Span, ClassIndex, Vec<BlockIndex>);

impl Witness {
    /// Gives a seat on a part its place, where blocks and gaps have room for it.
    pub(super) fn join(&mut self, key: SeatKey, candidates: &[ClassIndex]) -> bool {
        let seat = &self.seats[&key].seat;
        let joins = candidates.iter().filter_map(|class| self.cheapest(*class, seat));
        let Some((_, class, blocks)) = joins.min_by_key(|(gaps, _, _)| *gaps) else { return false };
        let (mut keys, mut host): (Vec<SeatKey>, Option<HostId>) = (vec![key], None);
        for index in blocks {
            let block = self.delete(index);
            keys.extend(block.seats);
            host = host.or(block.host);
        }
        let joined = self.insert(&keys, host);
        self.put(joined, class);
        true
    }

    /// The least new host time at which the class takes the seat: a shortest path over blocks with room, in the order of time.
    fn cheapest(&self, class: ClassIndex, seat: &Seat) -> Option<Join> {
        let (capacity, window) = (&self.classes[class.0].kind.capacity, seat.window);
        let has_room = |block: &Block| {
            let parts = block.parts.as_ref()?;
            parts.admits(capacity, window, &seat.need.amounts).ok()
        };
        let crossing = self.crossing(class, window).filter(|index| has_room(&self.blocks[index.0]).is_some());
        // By start, as the class has them.
        let open: Vec<BlockIndex> = crossing.collect();
        let window_of = |at: usize| self.blocks[open[at].0].window;
        let gap = |start, end| {
            let gap = Window { start, end };
            (start >= end || self.classes[class.0].has_room(gap)).then(|| gap.duration())
        };
        // For each block: the host time of the gaps before it, and the block before.
        let mut paths: Vec<Option<(Span, Option<usize>)>> = Vec::with_capacity(open.len());
        let is_bound = |at: usize| self.blocks[open[at].0].host.is_some();
        for at in 0..open.len() {
            let first = gap(window.start, window_of(at).start).map(|gap| (gap, None));
            let after = |before: usize| {
                let (cost, _) = paths[before]?;
                let follows = window_of(before).end <= window_of(at).start && !is_bound(at);
                let gap = follows.then(|| gap(window_of(before).end, window_of(at).start))??;
                Some((Span(cost.0 + gap.0), Some(before)))
            };
            paths.push((0..at).filter_map(after).chain(first).min());
        }
        let whole = gap(window.start, window.end).map(|gap| (gap, None));
        let last = |at: usize| {
            let (cost, _) = paths[at]?;
            Some((Span(cost.0 + gap(window_of(at).end, window.end)?.0), Some(at)))
        };
        let (gaps, mut at) = (0..open.len()).filter_map(last).chain(whole).min_by_key(|(cost, _)| *cost)?;
        let mut blocks = Vec::new();
        while let Some(index) = at {
            blocks.push(open[index]);
            at = paths[index].and_then(|(_, before)| before);
        }
        Some((gaps, class, blocks))
    }
}
