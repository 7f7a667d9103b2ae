//! Phases III and IV over the open ranges: one sweep over the changes of all hosts, in order of time.
//!
//! Between two changes nothing is recomputed: `V_a`, the `a_ij^t` and the guards (bounds that excluded an earlier start)
//! are updated host by host, and a start is looked at only where something free rose. As long as a guard excludes it,
//! that costs nothing more.
//!
//! Invariant: starts are settled in ascending order, and `is_proven` stays true only while all of them were excluded by
//! proof.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    Phase, PhaseObserver,
    bounds::{Guard, Judge, Verdict, Weights},
    exact::{self, Settled},
    limits::Limits,
    miss::Miss,
    problem::{Problem, Slot},
    select_and_swap::swap_until_feasible,
    start_times::OpenRange,
    windowed::SlidingPeak,
};
use crate::time::Time;

/// Guards kept at a time; the oldest makes room.
const GUARDS_MAX: usize = 4;
/// Changes gathered before they are swept; a longer range is taken in parts.
const CHANGES_MAX: usize = 1 << 20;

/// A start and N positions of its slot that reach every total.
pub(crate) struct Solution {
    /// Who is available, and what they have free.
    pub slot: Slot,
    /// N positions of the slot.
    pub chosen: Vec<u32>,
}

/// A change of what one host has free of one resource.
#[derive(Clone, Copy)]
struct Change {
    time: i64,
    /// `host * width + resource`.
    cell: u32,
    used: i64,
}

/// The search for the earliest start.
pub(crate) struct Sweep<'s, 'a, O> {
    /// The numbers.
    pub problem: &'s Problem<'a>,
    /// How much work is allowed.
    pub limits: Limits,
    /// Random choices.
    pub random: Xoshiro256PlusPlus,
    /// The bounds.
    pub judge: Judge,
    /// The nearest miss so far.
    pub miss: Miss,
    /// Whether every start so far was excluded by proof.
    pub is_proven: bool,
    /// The first start that was not.
    pub first_unproven: Option<Time>,
    searches_left: u32,
    guards: Vec<Guard>,
    next_guard: usize,
    /// `a_ij^t` of the hosts in the current range.
    free: Vec<i64>,
    /// Resources of a host whose free amount is below `d_i`; not 0 for hosts outside the range.
    short: Vec<u32>,
    available: usize,
    changes: Vec<Change>,
    observer: &'s mut O,
}

impl<'s, 'a, O: PhaseObserver> Sweep<'s, 'a, O> {
    /// A search that has not looked at any start yet.
    pub fn new(
        problem: &'s Problem<'a>,
        limits: Limits,
        random: Xoshiro256PlusPlus,
        judge: Judge,
        miss: Miss,
        observer: &'s mut O,
    ) -> Self {
        Sweep {
            problem,
            limits,
            random,
            judge,
            miss,
            is_proven: true,
            first_unproven: None,
            searches_left: limits.feasibility_searches,
            guards: Vec::new(),
            next_guard: 0,
            free: Vec::new(),
            short: Vec::new(),
            available: 0,
            changes: Vec::new(),
            observer,
        }
    }

    /// Looks at one start by itself.
    pub fn settle(&mut self, slot: Slot) -> Option<Solution> {
        if slot.len() < self.problem.pick {
            self.miss.note(slot.start, Miss::too_few(slot.len(), self.problem.pick));
            return None;
        }
        self.observer.enter(Phase::SelectAndSwap);
        let chosen = match self.judge.judge(self.problem, &slot, self.limits.multiplier_steps) {
            Verdict::Reached(chosen) => Some(chosen),
            Verdict::Excluded(weights, threshold) => {
                self.keep(Guard::new(self.problem, weights, threshold), &slot);
                None
            }
            Verdict::Open(weights, nearest) => {
                let swaps_max = self.limits.l1 as usize * self.problem.pick;
                let found = swap_until_feasible(
                    self.problem,
                    &slot,
                    nearest,
                    swaps_max,
                    &mut self.random,
                    &mut self.judge.picker,
                );
                found.or_else(|| self.search(&slot, &weights))
            }
        };
        self.observer.enter(Phase::StartTimes);
        chosen.map(|chosen| Solution { slot, chosen })
    }

    fn search(&mut self, slot: &Slot, weights: &Weights) -> Option<Vec<u32>> {
        self.miss.note(slot.start, 1.0);
        let settled = match self.searches_left.checked_sub(1) {
            Some(left) => {
                self.searches_left = left;
                exact::search(self.problem, slot, weights, self.limits.feasibility_nodes)
            }
            None => Settled::Unknown,
        };
        match settled {
            Settled::Found(chosen) => return Some(chosen),
            Settled::Impossible => {}
            Settled::Unknown => {
                self.is_proven = false;
                self.first_unproven.get_or_insert(slot.start);
            }
        }
        None
    }

    fn keep(&mut self, mut guard: Guard, slot: &Slot) {
        let width = self.problem.width();
        for (host, free) in slot.hosts.iter().zip(slot.free.chunks_exact(width)) {
            guard.update(self.problem, *host as usize, Some(free));
        }
        self.miss.note(slot.start, guard.reach(self.problem));
        if self.guards.len() < GUARDS_MAX {
            self.guards.push(guard);
        } else {
            self.guards[self.next_guard] = guard;
            self.next_guard = (self.next_guard + 1) % GUARDS_MAX;
        }
    }

    /// Sweeps one open range.
    pub fn range(&mut self, range: &OpenRange) -> Option<Solution> {
        let mut first = range.first;
        // A part is all that is left of the range, halved until its changes fit into memory.
        let mut length = range.last.0 - range.first.0 + 1;
        while first <= range.last {
            let last = Time((first.0 + length - 1).min(range.last.0));
            self.gather(range, first, last);
            if self.changes.len() >= CHANGES_MAX && last > first {
                length = ((last.0 - first.0 + 1) / 2).max(1);
                continue;
            }
            let found = self.part(first);
            if found.is_some() {
                return found;
            }
            first = Time(last.0 + 1);
        }
        None
    }

    /// The state at `first` and all changes until `last`.
    fn gather(&mut self, range: &OpenRange, first: Time, last: Time) {
        let problem = self.problem;
        let (hosts, width) = (problem.hosts.len(), problem.width());
        let Sweep { free, short, changes, .. } = self;
        free.clear();
        free.resize(hosts * width, 0);
        short.clear();
        short.resize(hosts, u32::MAX);
        changes.clear();
        let mut peak = SlidingPeak::default();
        for host in range.hosts.iter().map(|host| *host as usize) {
            let before = changes.len();
            short[host] = 0;
            for resource in 0..width {
                let cell = host * width + resource;
                let limit = problem.limit(host, resource);
                let own = changes.len();
                let used = match problem.occupancy[cell] {
                    None => 0,
                    Some(occupancy) => {
                        peak.follow(occupancy, problem.duration, (first, last), limit, |time, used| {
                            // The pool times the width of a request is below 2^32.
                            changes.push(Change { time, cell: cell as u32, used });
                        })
                    }
                };
                free[cell] = problem.capacity[cell] - used;
                short[host] += u32::from(used > limit);
                if used > limit && changes.len() == own {
                    // Short for good: its other resources do not matter.
                    changes.truncate(before);
                    short[host] = u32::MAX;
                    break;
                }
            }
            if changes.len() >= CHANGES_MAX && first < last {
                return;
            }
        }
        changes.sort_by_key(|change| change.time);
    }

    fn part(&mut self, first: Time) -> Option<Solution> {
        let problem = self.problem;
        let width = problem.width();
        self.available = self.short.iter().filter(|short| **short == 0).count();
        for guard in &mut self.guards {
            for host in 0..problem.hosts.len() {
                let free = (self.short[host] == 0).then(|| &self.free[host * width..][..width]);
                guard.update(problem, host, free);
            }
        }
        if let Some(found) = self.look(first) {
            return Some(found);
        }
        let changes = std::mem::take(&mut self.changes);
        let mut found = None;
        for same_time in changes.chunk_by(|a, b| a.time == b.time) {
            let mut rose = false;
            for same_host in same_time.chunk_by(|a, b| a.cell as usize / width == b.cell as usize / width) {
                rose |= self.apply(same_host);
            }
            if rose {
                found = self.look(Time(same_time[0].time));
                if found.is_some() {
                    break;
                }
            }
        }
        self.changes = changes;
        found
    }

    /// Applies all changes of one host at one time; true when it is available now and something free rose.
    fn apply(&mut self, changes: &[Change]) -> bool {
        let problem = self.problem;
        let width = problem.width();
        let host = changes[0].cell as usize / width;
        let was_available = self.short[host] == 0;
        let mut rose = false;
        for change in changes {
            let cell = change.cell as usize;
            let (before, after) = (self.free[cell], problem.capacity[cell] - change.used);
            let minimum = problem.minimum[cell - host * width];
            self.free[cell] = after;
            rose |= after > before;
            self.short[host] = self.short[host] + u32::from(after < minimum) - u32::from(before < minimum);
        }
        let is_available = self.short[host] == 0;
        self.available = self.available + usize::from(is_available) - usize::from(was_available);
        if is_available || was_available {
            let free = is_available.then(|| &self.free[host * width..][..width]);
            for guard in &mut self.guards {
                guard.update(problem, host, free);
            }
        }
        rose && is_available
    }

    /// Settles a start unless the count or a guard excludes it.
    fn look(&mut self, start: Time) -> Option<Solution> {
        let problem = self.problem;
        if self.available < problem.pick {
            self.miss.note(start, Miss::too_few(self.available, problem.pick));
            return None;
        }
        let reach = self.guards.iter().map(|guard| guard.reach(problem)).fold(1.0, f64::min);
        if reach < 1.0 {
            self.miss.note(start, reach);
            return None;
        }
        let width = problem.width();
        let hosts: Vec<u32> = (0..problem.hosts.len() as u32).filter(|host| self.short[*host as usize] == 0).collect();
        let free = hosts.iter().flat_map(|host| &self.free[*host as usize * width..][..width]).copied().collect();
        self.settle(Slot { start, hosts, free })
    }
}
