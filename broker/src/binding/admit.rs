//! Admission: yes with a new assignment, no with a proof, or undecided.
//!
//! In this order: the best class with room; a proof that there is none; the shortest chain of moves that makes room; a new assignment from
//! left to right, which is found wherever the source's test says yes ([`super::Degrees`]: each seat keeps a host that no earlier one takes).
//! Work is bounded: a chain looks at no more than [`STEPS_MAX`] moves.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    sync::Arc,
};

use super::{
    answer::{Answer, BindingError, Certificate},
    class::{BlockIndex, ClassIndex},
    seat::{Seat, SeatKey},
    witness::Witness,
};
use crate::model::{
    amount::Amount,
    resources::amount_of,
    time::{Time, Window},
};

/// Moves that one admission looks at.
const STEPS_MAX: usize = 400;
/// Moves of the longest chain.
const CHAIN_MAX: usize = 8;

/// Why a seat has found no place.
pub(super) enum Obstacle {
    /// Seats that need more hosts than there are, this one among them.
    Short(Shortage),
    /// Nothing was found and nothing proven.
    Unknown,
}

/// A certificate by keys: seats that can use none but the hosts of these classes.
pub(super) struct Shortage {
    at: Time,
    pub seats: Vec<SeatKey>,
    classes: Vec<ClassIndex>,
}

impl Witness {
    /// Promises all of these seats, or none. When they cannot all be promised, the witness may hold another assignment, of the same seats.
    ///
    /// # Errors
    /// [`BindingError::Window`], and [`BindingError::Past`] of a start before that of a bound seat.
    pub fn admit(&mut self, seats: &[Seat]) -> Result<Answer, BindingError> {
        for Seat { window, .. } in seats {
            if !window.is_valid() {
                return Err(BindingError::Window);
            }
            if let Some(bound) = self.bound_until.filter(|bound| window.start < *bound) {
                return Err(BindingError::Past { start: window.start, bound });
            }
        }
        let mut keys = Vec::with_capacity(seats.len());
        for seat in seats {
            let key = self.promise(Arc::new(seat.clone()));
            let obstacle = self.place(key).err();
            let Some(obstacle) = obstacle else {
                keys.push(key);
                continue;
            };
            let answer = match obstacle {
                Obstacle::Short(shortage) => Answer::No(self.certificate(&shortage)),
                Obstacle::Unknown => Answer::Undecided,
            };
            self.seats.remove(&key);
            for key in keys {
                self.remove(key)?;
            }
            return Ok(answer);
        }
        Ok(Answer::Yes(keys))
    }

    fn certificate(&self, shortage: &Shortage) -> Certificate {
        let seats = shortage.seats.iter().map(|key| Arc::clone(&self.seats[key].seat)).collect();
        let hosts = shortage.classes.iter().flat_map(|class| self.classes[class.0].hosts.iter().cloned()).collect();
        Certificate { at: shortage.at, seats, hosts }
    }

    /// Gives a promised seat that is in no block its place.
    pub(super) fn place(&mut self, key: SeatKey) -> Result<(), Obstacle> {
        let seat = Arc::clone(&self.seats[&key].seat);
        let candidates = self.by_fit(&self.candidates(&seat.need));
        if !seat.need.is_exclusive && self.join(key, &candidates) {
            return Ok(());
        }
        if let Some(class) = candidates.iter().find(|class| self.classes[class.0].has_room(seat.window)) {
            let index = self.insert(&[key], None);
            self.put(index, *class);
            return Ok(());
        }
        if let Some(shortage) = self.refusal(key, seat.window, &candidates) {
            return Err(Obstacle::Short(shortage));
        }
        let index = self.insert(&[key], None);
        if self.chain(index) || self.rebuild(index) {
            return Ok(());
        }
        self.delete(index);
        Err(Obstacle::Unknown)
    }

    /// A second at which seats that are promised and this one need more hosts than there are.
    fn refusal(&self, key: SeatKey, window: Window, candidates: &[ClassIndex]) -> Option<Shortage> {
        // What is there changes for the worse at starts only.
        let starts = self.classes.iter().flat_map(|class| class.starts(window));
        let mut times: Vec<Time> = starts.chain(self.busy_starts(window)).chain([window.start]).collect();
        times.sort_unstable();
        times.dedup();
        let is_full = |at: &Time| !candidates.iter().any(|class| self.classes[class.0].has_room_at(*at));
        times.into_iter().filter(is_full).find_map(|at| self.shortage(key, candidates, at))
    }

    fn busy_starts(&self, window: Window) -> impl Iterator<Item = Time> {
        let busy = self.members.iter().flat_map(|member| &member.busy).map(|busy| busy.start);
        busy.filter(move |start| window.start <= *start && *start < window.end)
    }

    /// The search for an augmenting path at one second, which fails where seats are left that need more hosts than there are.
    fn shortage(&self, key: SeatKey, candidates: &[ClassIndex], at: Time) -> Option<Shortage> {
        let mut is_reached = vec![false; self.classes.len()];
        let mut reached = candidates.to_vec();
        candidates.iter().for_each(|class| is_reached[class.0] = true);
        let mut seats = vec![key];
        let mut next = 0;
        while let Some(class) = reached.get(next).copied() {
            next += 1;
            if self.classes[class.0].has_room_at(at) {
                return None;
            }
            for block in self.there_at(class, at).map(|index| &self.blocks[index.0]) {
                for key in &block.seats {
                    let other = &self.seats[key].seat;
                    // A block of parts may be there without this one.
                    let is_there = other.window.start <= at && at < other.window.end;
                    if !is_there {
                        continue;
                    }
                    seats.push(*key);
                    if block.host.is_some() {
                        continue;
                    }
                    let single = (block.seats.len() == 1).then(|| Arc::clone(&block.candidates));
                    for wider in single.unwrap_or_else(|| self.candidates(&other.need)).iter() {
                        if !std::mem::replace(&mut is_reached[wider.0], true) {
                            reached.push(*wider);
                        }
                    }
                }
            }
        }
        self.is_short(&seats, &reached, at).then_some(Shortage { at, seats, classes: reached })
    }

    /// Whether seats, none of which can use another class, need more hosts of these classes than are usable: whole hosts first, then those
    /// with the most of a resource for the parts.
    fn is_short(&self, keys: &[SeatKey], classes: &[ClassIndex], at: Time) -> bool {
        let seats: Vec<&Seat> = keys.iter().map(|key| self.seats[key].seat.as_ref()).collect();
        let usable: usize = classes.iter().map(|class| self.classes[class.0].usable_at(at)).sum();
        let whole = seats.iter().filter(|seat| seat.need.is_exclusive).count();
        let Some(left) = usable.checked_sub(whole) else { return true };
        let names: BTreeSet<_> = seats.iter().flat_map(|seat| seat.need.amounts.keys()).collect();
        let is_part = |seat: &&&Seat| !seat.need.is_exclusive;
        (left == 0 && whole < seats.len())
            || names.into_iter().any(|name| {
                let needed: Amount = seats.iter().filter(is_part).map(|seat| amount_of(&seat.need.amounts, name)).sum();
                let each = |class: &ClassIndex| {
                    let class = &self.classes[class.0];
                    std::iter::repeat_n(amount_of(&class.kind.capacity, name), class.usable_at(at))
                };
                let mut capacities: Vec<Amount> = classes.iter().flat_map(each).collect();
                capacities.sort_unstable_by_key(|amount| Reverse(*amount));
                needed > capacities.into_iter().take(left).sum()
            })
    }

    /// Finds the shortest chain of moves that gives a block a place, and makes it. Nothing has moved when there is none.
    fn chain(&mut self, index: BlockIndex) -> bool {
        let mut steps = STEPS_MAX;
        (1..=CHAIN_MAX).any(|moves| {
            let mut moved = Vec::new();
            steps > 0 && self.settle(vec![index], moves, &mut steps, &mut moved)
        })
    }

    /// Gives all these blocks a place with so many more moves. What `moved` holds stays where it was put.
    fn settle(
        &mut self,
        mut out: Vec<BlockIndex>,
        moves: usize,
        steps: &mut usize,
        moved: &mut Vec<BlockIndex>,
    ) -> bool {
        let Some(index) = out.pop() else { return true };
        let classes = self.by_fit(&Arc::clone(&self.blocks[index.0].candidates));
        moved.push(index);
        for class in &classes {
            if self.has_room(*class, index) {
                self.put(index, *class);
                if self.settle(out.clone(), moves, steps, moved) {
                    return true;
                }
                self.take(index);
                // Another class with room would leave the others no better off often enough to be worth the steps.
                break;
            }
        }
        for class in classes {
            for victims in self.victims(class, self.blocks[index.0].window, moved, moves, steps) {
                victims.iter().for_each(|victim| self.take(*victim));
                self.put(index, class);
                let next = out.iter().chain(&victims).copied().collect();
                if self.settle(next, moves - victims.len(), steps, moved) {
                    return true;
                }
                self.take(index);
                victims.iter().for_each(|victim| self.put(*victim, class));
            }
        }
        moved.pop();
        false
    }

    /// Sets of at most `most` blocks, each of which makes room for the window in this class when it moves away.
    fn victims(
        &self,
        class: ClassIndex,
        window: Window,
        moved: &[BlockIndex],
        most: usize,
        steps: &mut usize,
    ) -> Vec<Vec<BlockIndex>> {
        let full: Vec<Window> = self.classes[class.0].full(window).collect();
        let Some(first) = full.first().filter(|_| most > 0) else { return Vec::new() };
        let may_move = |victim: &BlockIndex| {
            let block = &self.blocks[victim.0];
            block.host.is_none() && block.candidates.len() > 1 && !moved.contains(victim)
        };
        let movable: Vec<BlockIndex> = self.crossing(class, window).filter(may_move).collect();
        let covers = |victim: &BlockIndex, at: Time| {
            let window = self.blocks[victim.0].window;
            window.start <= at && at < window.end
        };
        let end = |victim: &BlockIndex| self.blocks[victim.0].window.end;
        // What is full behind the first is freed by as few others as can be: each the one that reaches furthest.
        let cover = |first: BlockIndex| {
            let (mut set, mut free_until) = (vec![first], end(&first));
            for full in &full {
                while free_until < full.end {
                    let at = free_until.max(full.start);
                    let next = movable.iter().filter(|next| covers(next, at)).max_by_key(|next| end(next))?;
                    set.push(*next);
                    free_until = end(next);
                    if set.len() > most {
                        return None;
                    }
                }
            }
            Some(set)
        };
        let mut sets = Vec::new();
        for victim in movable.iter().filter(|victim| covers(victim, first.start)) {
            let Some(left) = steps.checked_sub(1) else { break };
            *steps = left;
            let Some(set) = cover(*victim) else { continue };
            if self.can_all_leave(&set, class, most) {
                sets.push(set);
            }
        }
        // Those that leave at once by themselves come first.
        sets.sort_by_key(|set| (set.len(), !self.can_all_leave(set, class, 1)));
        sets
    }

    /// Whether each of the set has another class, and room there when no more than these may move.
    fn can_all_leave(&self, set: &[BlockIndex], class: ClassIndex, most: usize) -> bool {
        let has_room = |victim: &BlockIndex| {
            let others = self.blocks[victim.0].candidates.iter().filter(|other| **other != class);
            others.into_iter().any(|other| self.has_room(*other, *victim))
        };
        set.len() < most || set.iter().all(has_room)
    }

    /// Assigns every floating block anew, in the order of starts, each to a class that has a host left then; false, and nothing has moved,
    /// where one finds none.
    fn rebuild(&mut self, new: BlockIndex) -> bool {
        let floating = |index: &BlockIndex| self.blocks[index.0].host.is_none();
        let mut ends: Vec<BinaryHeap<Reverse<Time>>> = Vec::with_capacity(self.classes.len());
        let mut order = vec![new];
        for class in &self.classes {
            let bound = class.blocks().filter(|index| !floating(index));
            ends.push(bound.map(|index| Reverse(self.blocks[index.0].window.end)).collect());
            order.extend(class.blocks().filter(floating));
        }
        order.sort_by_key(|index| self.blocks[index.0].window.start);
        let mut places = Vec::with_capacity(order.len());
        for index in order {
            let block = &self.blocks[index.0];
            let mut has_room = |class: &ClassIndex| {
                let ends = &mut ends[class.0];
                while ends.peek().is_some_and(|end| end.0 <= block.window.start) {
                    ends.pop();
                }
                let class = &self.classes[class.0];
                ends.len() < class.hosts.len() && class.is_idle(block.window)
            };
            let with_room = block.candidates.iter().copied().filter(|class| has_room(class));
            let Some(class) = with_room.min_by_key(|class| self.classes[class.0].wanted) else { return false };
            ends[class.0].push(Reverse(block.window.end));
            places.push((index, class));
        }
        let is_elsewhere = |(index, class): &(BlockIndex, ClassIndex)| self.blocks[index.0].class != Some(*class);
        places.retain(is_elsewhere);
        places.iter().for_each(|(index, _)| self.take(*index));
        places.iter().for_each(|(index, class)| self.put(*index, *class));
        true
    }
}
