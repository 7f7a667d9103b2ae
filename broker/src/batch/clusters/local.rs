//! Good placements by local search over orders: the gangs are placed one after the other, each where it ends first.
//!
//! Annealing over insertions, begun anew several times. Work is counted in looked-at levels of the room, never in time, and the arithmetic
//! is whole. Invariant: the same problem and the same work give the same answer.

use std::{
    cmp::{Ordering, Reverse},
    ops::Range,
};

use rand::{Rng, RngExt};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::{
    super::watch::{Patience, Progress, Watch},
    modes::Modes,
    problem::{Gang, Placement, Problem, Units},
    room::{Room, fits},
};

/// A placement by gang, none for one that found no place.
pub(in crate::batch) type Placed = Vec<Option<Placement>>;

/// What a placement is worth; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth {
    /// Gangs without a place.
    pub postponed: usize,
    /// The latest end.
    pub makespan: i64,
    /// All ends together.
    pub ends: i64,
}

impl Worth {
    /// What a placement is worth.
    pub fn of(placed: &Placed, modes: &[Modes]) -> Worth {
        let mut worth = Worth { postponed: 0, makespan: 0, ends: 0 };
        for (gang, placement) in placed.iter().enumerate() {
            let Some(placement) = placement else {
                worth.postponed += 1;
                continue;
            };
            let end = placement.start + modes[gang].all[placement.mode].seconds;
            worth.makespan = worth.makespan.max(end);
            worth.ends += end;
        }
        worth
    }

    /// How much worse this one is than the other, in parts of a second; ends break ties.
    fn rise(&self, other: &Worth, gangs: i64) -> i64 {
        match self.postponed.cmp(&other.postponed) {
            Ordering::Less => -1,
            Ordering::Greater => i64::MAX,
            Ordering::Equal => {
                (self.makespan - other.makespan) * PARTS + (self.ends - other.ends) * PARTS / (ENDS_PART * gangs)
            }
        }
    }

    fn reaches(&self, target: i64) -> bool {
        self.postponed == 0 && self.makespan <= target
    }
}

/// Modes that are tried in the time of a look at a level.
const MODES_IN_LOOK: u64 = 8;

/// Parts of a second.
const PARTS: i64 = 64;
/// The mean end counts as much less than the latest one.
const ENDS_PART: i64 = 10;
/// How much worse an order may be at first, as a part of the latest end.
const HEAT_PART: i64 = 256;

/// Looked-at levels between two questions whether to go on, some milliseconds of work.
const ASK_EVERY: u64 = 200_000;

/// Places gangs in an order.
pub(super) struct Placer<'a> {
    problem: &'a Problem,
    modes: &'a [Modes],
    /// By gang: its lengths, and the modes that have each of them.
    lengths: Vec<Vec<(i64, Range<usize>)>>,
    empty: &'a Room,
    least: Vec<Units>,
    /// Levels looked at so far, and modes tried, of which several count as a level.
    pub work: u64,
    patience: Patience<'a>,
}

impl<'a> Placer<'a> {
    /// For this problem and the modes of its gangs.
    pub fn new(problem: &'a Problem, modes: &'a [Modes], empty: &'a Room, watch: Watch<'a>) -> Placer<'a> {
        let lengths = modes.iter().map(by_length).collect();
        let patience = Patience::new(watch, ASK_EVERY);
        Placer { problem, modes, lengths, empty, least: vec![0; empty.width()], work: 0, patience }
    }

    /// Where a gang ends first; ties: the earlier start, then the order of the modes.
    fn first_end(&mut self, room: &Room, gang: usize) -> Option<Placement> {
        let asked = &self.problem.gangs[gang];
        let lengths = &self.lengths[gang];
        let shortest = lengths.first()?.0;
        let (mut best, mut best_end) = (None, i64::MAX);
        for from in room.step_at(asked.earliest)..room.times().len() {
            let start = asked.earliest.max(room.times()[from]);
            if start + shortest >= best_end || start > asked.latest {
                break;
            }
            self.least.copy_from_slice(room.level(from));
            let mut next = from + 1;
            for (seconds, range) in lengths {
                if start + seconds >= best_end || start > asked.latest_start(*seconds) {
                    break;
                }
                next = room.narrow(next, start + seconds, &mut self.least);
                self.work += 1;
                if !has_hosts(asked, *seconds, &self.least) {
                    continue;
                }
                let mut modes = self.modes[gang].all[range.clone()].iter();
                let found = modes.position(|mode| fits(&self.least, &mode.needs));
                self.work += found.unwrap_or(range.len()) as u64 / MODES_IN_LOOK;
                if let Some(found) = found {
                    best = Some(Placement { start, mode: range.start + found });
                    best_end = start + seconds;
                    break;
                }
            }
        }
        best
    }

    /// Places those from `from` on in this order; `known[k]` is the room before the k-th of them all, known up to `from`, and the rooms
    /// behind it are written to `rooms`.
    fn place(
        &mut self,
        order: &[usize],
        from: usize,
        known: &[Room],
        rooms: &mut [Room],
        placed: &mut Placed,
    ) -> Worth {
        for (at, gang) in order.iter().enumerate().skip(from) {
            let (before, after) = rooms.split_at_mut(at + 1);
            let before = if at == from { &known[at] } else { &before[at] };
            let found = self.first_end(before, *gang);
            after[0].clone_from(before);
            if let Some(placement) = &found {
                let mode = &self.modes[*gang].all[placement.mode];
                after[0].take(&mode.needs, placement.start, mode.seconds);
            }
            placed[*gang] = found;
        }
        Worth::of(placed, self.modes)
    }

    fn is_over(&mut self, worth: Worth) -> bool {
        let placed = self.modes.len() - worth.postponed;
        self.patience.is_over(self.work, || Progress { placed, value: Some(worth.makespan) })
    }

    /// The best placement found from one begin with so much work; stops at `target`.
    fn anneal(&mut self, work_max: u64, target: i64, seed: u64) -> (Placed, Worth) {
        let count = self.modes.len();
        let area = |gang: &usize| {
            let shortest = self.modes[*gang].all.first().map_or(0, |mode| mode.seconds);
            shortest * i64::from(self.problem.gangs[*gang].seats)
        };
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|gang| Reverse(area(gang)));
        let mut rooms = vec![self.empty.clone(); count + 1];
        let mut next_rooms = rooms.clone();
        let mut placed: Placed = vec![None; count];
        let mut worth = self.place(&order, 0, &next_rooms, &mut rooms, &mut placed);
        let mut best = (placed.clone(), worth);
        let mut next_placed = placed.clone();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (begin, warm) = (self.work, worth.makespan * PARTS / HEAT_PART);
        while count > 1 && self.work - begin < work_max && !best.1.reaches(target) && !self.is_over(best.1) {
            // Gangs that fit nowhere cost no looks.
            self.work += 1;
            let heat = cooled(warm, self.work - begin, work_max);
            let (from, to) = (random.random_range(0..count), random.random_range(0..count));
            if from == to {
                continue;
            }
            move_one(&mut order, from, to);
            next_placed.clone_from(&placed);
            let low = from.min(to);
            let next = self.place(&order, low, &rooms, &mut next_rooms, &mut next_placed);
            // Zeros before the first one of random bits: as often as an exponential law says, without its arithmetic.
            if next.rise(&worth, (count as u64).cast_signed()) <= heat * i64::from(random.next_u64().leading_zeros()) {
                worth = next;
                std::mem::swap(&mut placed, &mut next_placed);
                rooms[low + 1..].swap_with_slice(&mut next_rooms[low + 1..]);
                if worth < best.1 {
                    best = (placed.clone(), worth);
                }
            } else {
                move_one(&mut order, to, from);
            }
        }
        best
    }
}

/// Whether enough hosts are free on which the gang lasts at most so long, and one on which it lasts exactly so long.
fn has_hosts(asked: &Gang, seconds: i64, free: &[Units]) -> bool {
    let (mut hosts, mut is_exact) = (0, false);
    for (own, free) in asked.seconds.iter().zip(free) {
        if let Some(own) = own
            && *own <= seconds
            && *free > 0
        {
            hosts += free;
            is_exact |= *own == seconds;
        }
    }
    is_exact && hosts >= asked.seats
}

fn by_length(modes: &Modes) -> Vec<(i64, Range<usize>)> {
    let same = modes.all.chunk_by(|a, b| a.seconds == b.seconds);
    let mut from = 0;
    same.map(|chunk| {
        from += chunk.len();
        (chunk[0].seconds, from - chunk.len()..from)
    })
    .collect()
}

fn move_one(order: &mut Vec<usize>, from: usize, to: usize) {
    let gang = order.remove(from);
    order.insert(to, gang);
}

/// The heat after so much of the work.
fn cooled(warm: i64, done: u64, all: u64) -> i64 {
    let left = all.saturating_sub(done).saturating_mul(1000) / all.max(1);
    warm * left.cast_signed() / 1000
}

/// The best placement found with so many begins and so much work; stops at `target`.
pub(super) fn search(placer: &mut Placer<'_>, (begins, work_max): (u64, u64), target: i64) -> (Placed, Worth) {
    let mut best = placer.anneal(work_max / begins.max(1), target, 0);
    for seed in 1..begins {
        if best.1.reaches(target) || placer.is_over(best.1) {
            break;
        }
        let found = placer.anneal(work_max / begins, target, seed);
        if found.1 < best.1 {
            best = found;
        }
    }
    best
}
