//! Binding: a seat begins, and gets the host where it hurts its owner least.
//!
//! Source: algorithm 2. What goes beyond: the candidates are all free hosts of every class that can take the seat now, and of several
//! hosts whose work can be waited for it is the shortest wait, not the first. Invariant: seats are bound in the order of their starts, so
//! that what is bound stays at the left edge of time.

use super::{
    answer::BindingError,
    class::{BlockIndex, Class, ClassIndex},
    seat::SeatKey,
    witness::Witness,
};
use crate::model::{
    host::Host,
    ids::HostId,
    time::{Span, Time, Window},
};

/// What an owner runs on a host when a seat is to begin there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnWork {
    /// Nothing.
    Idle,
    /// Work that is lost when the seat begins at once.
    Running {
        /// How long it will still run.
        left: Span,
        /// What it costs to begin it again: its run time so far by the host's weight.
        cost: u64,
        /// Whether it may be stopped for a seat.
        may_stop: bool,
    },
    /// The host must not be chosen (its hook has failed, say).
    Excluded,
}

/// Where a seat was bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its host, until it ends.
    pub host: HostId,
    /// How much later it begins and ends.
    pub wait: Span,
    /// What the owner loses.
    pub cost: u64,
}

impl Witness {
    /// Binds a seat to the host that disturbs own work least, waiting for that work where `slack` and the other promises leave time. A seat
    /// on a part of a host goes to the host of those that it shares it with, at once. Binding twice gives the same host.
    ///
    /// # Errors
    /// [`BindingError::NoSeat`], [`BindingError::NotYet`] while a seat that starts earlier is not bound, [`BindingError::NoneLeft`] when
    /// `own_work` leaves no candidate; then nothing has changed.
    pub fn bind(
        &mut self,
        key: SeatKey,
        slack: Span,
        own_work: impl Fn(&Host) -> OwnWork,
    ) -> Result<Bound, BindingError> {
        let promise = self.seats.get(&key).ok_or(BindingError::NoSeat)?;
        let (index, own_start) = (promise.block, promise.seat.window.start);
        if let Some(host) = self.blocks[index.0].host.clone() {
            // It has begun, if its turn has come: it stays there although what it shares the host with ends.
            if self.must_be_first(own_start).is_ok() {
                self.bound_until = self.bound_until.max(Some(own_start));
            }
            return Ok(Bound { host, wait: Span(0), cost: 0 });
        }
        let (start, is_whole) = (self.blocks[index.0].window.start, self.blocks[index.0].parts.is_none());
        self.must_be_first(start)?;
        let (class, host, wait, cost) = self.best(index, if is_whole { slack } else { Span(0) }, own_work)?;
        self.take(index);
        if wait > Span(0)
            && let Some(promise) = self.seats.get_mut(&key)
        {
            let mut seat = promise.seat.as_ref().clone();
            seat.window.end = seat.window.end + wait;
            promise.seat = seat.into();
        }
        let block = &mut self.blocks[index.0];
        block.window.end = block.window.end + wait;
        block.host = Some(host.clone());
        self.put(index, class);
        self.bound_until = self.bound_until.max(Some(start));
        Ok(Bound { host, wait, cost })
    }

    /// No floating block may start earlier.
    fn must_be_first(&self, start: Time) -> Result<(), BindingError> {
        let earlier = |class: &Class| {
            let blocks = class.blocks().map(|index| &self.blocks[index.0]);
            blocks.take_while(|block| block.window.start < start).find(|block| block.host.is_none())
        };
        let first = self.classes.iter().find_map(earlier);
        first.map_or(Ok(()), |block| Err(BindingError::NotYet(block.window.start)))
    }

    /// The host that costs least, then the one that is waited for the least, then the one of the class that fewest others could use.
    fn best(
        &self,
        index: BlockIndex,
        slack: Span,
        own_work: impl Fn(&Host) -> OwnWork,
    ) -> Result<(ClassIndex, HostId, Span, u64), BindingError> {
        let block = &self.blocks[index.0];
        let mut best = None;
        for class in self.by_fit(&block.candidates) {
            let is_own = block.class == Some(class);
            if !is_own && !self.has_room(class, index) {
                continue;
            }
            let can_wait = |wait: Span| {
                let from = if is_own { block.window.end } else { block.window.start };
                wait <= slack && self.classes[class.0].has_room(Window { start: from, end: block.window.end + wait })
            };
            let taken: Vec<&HostId> = self
                .there_at(class, block.window.start)
                .filter_map(|other| self.blocks[other.0].host.as_ref())
                .collect();
            for id in self.classes[class.0].hosts.iter().filter(|host| !taken.contains(host)) {
                let host = Host { id: id.clone(), ..self.classes[class.0].kind.clone() };
                let (wait, cost) = match own_work(&host) {
                    OwnWork::Idle => (Span(0), 0),
                    OwnWork::Running { left, .. } if can_wait(left) => (left, 0),
                    OwnWork::Running { cost, may_stop: true, .. } => (Span(0), cost),
                    OwnWork::Running { .. } | OwnWork::Excluded => continue,
                };
                if best.as_ref().is_none_or(|(_, _, least_wait, least)| (cost, wait) < (*least, *least_wait)) {
                    best = Some((class, id.clone(), wait, cost));
                }
            }
        }
        best.ok_or(BindingError::NoneLeft)
    }
}
