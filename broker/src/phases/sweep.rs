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
    bounds::{Guard, Judge, Open, Verdict},
    exact::{self, Settled},
    limits::Limits,
    miss::Miss,
    problem::{Problem, Slot},
    select_and_swap::swap_until_feasible,
    start_times::OpenRange,
    timeline::{Change, Timeline},
};
use crate::time::Time;

/// Guards kept at a time; the oldest makes room.
const GUARDS_MAX: usize = 4;
/// Steps of the second search for multipliers at one start.
const ESCALATED_STEPS: u32 = 400;

/// A start and N positions of its slot that reach every total.
pub(crate) struct Solution {
    /// Who is available, and what they have free.
    pub slot: Slot,
    /// N positions of the slot.
    pub chosen: Vec<u32>,
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
    /// Nodes that exact searches may still take.
    nodes_left: u64,
    guards: Vec<Guard>,
    next_guard: usize,
    /// Starts with fewer available hosts are passed over: N, or more once a start with N or more was found possible.
    available_min: usize,
    is_after_most: bool,
    /// The start with most available hosts so far, and how many.
    most: Option<(Time, usize)>,
    /// Most hosts that were available at a start that was not settled.
    unsettled_hosts: usize,
    timeline: Timeline<'s, 'a>,
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
            nodes_left: limits.feasibility_nodes_in_all,
            guards: Vec::new(),
            next_guard: 0,
            available_min: problem.pick,
            is_after_most: false,
            most: None,
            unsettled_hosts: 0,
            timeline: Timeline::new(problem),
            observer,
        }
    }

    /// The start with most available hosts at which the totals can be reached, the earliest of such starts; and whether
    /// it is proven that no start with more hosts exists.
    pub fn most(mut self, all: &OpenRange) -> Option<(Time, bool)> {
        self.is_after_most = true;
        self.range(all);
        self.most.map(|(start, hosts)| (start, self.unsettled_hosts <= hosts))
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
            Verdict::Open(open) => self.settle_open(&slot, open),
        };
        self.observer.enter(Phase::StartTimes);
        chosen.map(|chosen| Solution { slot, chosen })
    }

    /// Settles a start that the first look left open: by swaps and a small exact search, then by a longer search for a proof
    /// and a large exact one.
    fn settle_open(&mut self, slot: &Slot, mut open: Open) -> Option<Vec<u32>> {
        let problem = self.problem;
        let Limits { feasibility_nodes, feasibility_nodes_max, .. } = self.limits;
        for nodes_max in [feasibility_nodes, feasibility_nodes_max] {
            if nodes_max == feasibility_nodes_max {
                match self.judge.judge(problem, slot, ESCALATED_STEPS) {
                    Verdict::Reached(chosen) => return Some(chosen),
                    Verdict::Excluded(weights, threshold) => {
                        self.keep(Guard::new(problem, weights, threshold), slot);
                        return None;
                    }
                    Verdict::Open(again) => open = again,
                }
            }
            let swaps_max = self.limits.l1 as usize * problem.pick;
            let picker = &mut self.judge.picker;
            let found = swap_until_feasible(problem, slot, open.nearest.clone(), swaps_max, &mut self.random, picker);
            if found.is_some() {
                return found;
            }
            self.miss.note(slot.start, 1.0);
            let nodes_max = u32::try_from(self.nodes_left).unwrap_or(u32::MAX).min(nodes_max);
            let (settled, nodes) = exact::search(problem, slot, &open.weights, nodes_max);
            self.nodes_left -= u64::from(nodes);
            match settled {
                Settled::Found(chosen) => return Some(chosen),
                Settled::Impossible => return None,
                Settled::Unknown => {}
            }
        }
        self.is_proven = false;
        self.unsettled_hosts = self.unsettled_hosts.max(slot.len());
        self.first_unproven.get_or_insert(slot.start);
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
        while first <= range.last {
            let last = self.timeline.begin(&range.hosts, first, range.last);
            let found = self.part(first);
            if found.is_some() {
                return found;
            }
            first = Time(last.0 + 1);
        }
        None
    }

    fn part(&mut self, first: Time) -> Option<Solution> {
        for guard in &mut self.guards {
            for host in 0..self.problem.hosts.len() {
                guard.update(self.problem, host, self.timeline.free(host));
            }
        }
        if let Some(found) = self.look(first) {
            return Some(found);
        }
        let changes = self.timeline.take_changes();
        let mut found = None;
        for same_time in changes.chunk_by(|a, b| a.time == b.time) {
            let mut rose = false;
            for (host, same_host) in self.timeline.by_host(same_time) {
                rose |= self.apply(host, same_host);
            }
            if rose {
                found = self.look(Time(same_time[0].time));
                if found.is_some() {
                    break;
                }
            }
        }
        self.timeline.keep(changes);
        found
    }

    /// Applies all changes of one host at one time; true when it is available now and something free rose.
    fn apply(&mut self, host: usize, changes: &[Change]) -> bool {
        let was_available = self.timeline.free(host).is_some();
        let rose = self.timeline.apply(host, changes);
        let free = self.timeline.free(host);
        if free.is_some() || was_available {
            self.guards.iter_mut().for_each(|guard| guard.update(self.problem, host, free));
        }
        rose && free.is_some()
    }

    /// Settles a start unless the count or a guard excludes it.
    fn look(&mut self, start: Time) -> Option<Solution> {
        let problem = self.problem;
        let available = self.timeline.available();
        if available < self.available_min {
            self.miss.note(start, Miss::too_few(available, problem.pick));
            return None;
        }
        let reach = self.guards.iter().map(|guard| guard.reach(problem)).fold(1.0, f64::min);
        if reach < 1.0 {
            self.miss.note(start, reach);
            return None;
        }
        let mut slot = Slot { start, hosts: Vec::with_capacity(available), free: Vec::new() };
        slot.free.reserve(available * problem.width());
        for host in 0..problem.hosts.len() {
            if let Some(free) = self.timeline.free(host) {
                slot.hosts.push(host as u32);
                slot.free.extend_from_slice(free);
            }
        }
        let found = self.settle(slot)?;
        if !self.is_after_most {
            return Some(found);
        }
        self.available_min = available + 1;
        self.most = Some((start, available));
        None
    }
}
