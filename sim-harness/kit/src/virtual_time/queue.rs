//! A queue of events in virtual time, and the clock that goes with it.
//!
//! Invariant: events come out in the order of their moments, and of one moment in the order in which they were planned; the
//! clock never goes back.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::moment::Moment;

#[derive(Debug)]
struct Planned<E> {
    at: Moment,
    number: u64,
    event: E,
}

impl<E> Ord for Planned<E> {
    /// The earliest is the greatest, since a heap gives the greatest first.
    fn cmp(&self, other: &Planned<E>) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Planned<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Planned<E>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Planned<E> {}

/// A queue of events and its clock.
#[derive(Debug)]
pub struct EventQueue<E> {
    now: Moment,
    planned: u64,
    events: BinaryHeap<Planned<E>>,
}

impl<E> EventQueue<E> {
    /// An empty queue whose clock shows `now`.
    pub fn new(now: Moment) -> EventQueue<E> {
        EventQueue { now, planned: 0, events: BinaryHeap::new() }
    }

    /// What the clock shows.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Plans an event; one for the past happens now.
    pub fn plan(&mut self, at: Moment, event: E) {
        self.planned += 1;
        self.events.push(Planned { at: at.max(self.now), number: self.planned, event });
    }

    /// When the next event is due.
    pub fn next_at(&self) -> Option<Moment> {
        self.events.peek().map(|next| next.at)
    }

    /// Lets time pass up to `at`, which is not after the next event.
    pub fn skip_to(&mut self, at: Moment) {
        debug_assert!(self.next_at().is_none_or(|next| at <= next), "no event is skipped");
        self.now = self.now.max(at);
    }

    /// The next event that is due by `until`; the clock goes to its moment. Without one, the clock goes to `until`.
    pub fn next_until(&mut self, until: Moment) -> Option<E> {
        if self.next_at().is_none_or(|at| at > until) {
            self.skip_to(until);
            return None;
        }
        let Planned { at, event, .. } = self.events.pop()?;
        self.now = at;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_their_moments_and_equal_ones_as_planned() {
        let mut queue = EventQueue::new(Moment(5));
        for (at, event) in [(30, "c"), (20, "a"), (30, "d"), (1, "now"), (20, "b")] {
            queue.plan(Moment(at), event);
        }
        let order: Vec<_> =
            std::iter::from_fn(|| queue.next_until(Moment(20)).map(|event| (queue.now().0, event))).collect();
        assert_eq!(order, [(5, "now"), (20, "a"), (20, "b")]);
        assert_eq!((queue.next_until(Moment(29)), queue.now()), (None, Moment(29)));
        assert_eq!((queue.next_until(Moment(40)), queue.next_until(Moment(10))), (Some("c"), None));
        assert_eq!((queue.now(), queue.next_at()), (Moment(30), Some(Moment(30))));
    }
}
