//! Phases III and IV over the open ranges: one sweep over the changes of all hosts, in order of time.
//!
//! Between two changes nothing is recomputed: `V_a`, the `a_ij^t` and the guards (bounds that excluded an earlier start)
//! are updated host by host, and a start is looked at only where something free rose. As long as a guard excludes it,
//! that costs nothing more.
//!
//! Invariant: starts are settled in ascending order, and `first_unproven` is none only while all of them were settled or excluded
//! by proof.

mod improve;
mod look;

use std::ops::ControlFlow;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    PhaseObserver,
    bounds::{Guard, Judge, Open, Verdict},
    cost_guard::CostGuards,
    exact::{self, Settled},
    front::Improvement,
    limits::Limits,
    links::{Caps, Overload},
    market::Market,
    miss::Miss,
    overloads,
    problem::{Problem, Slot},
    ranks::{Lowest, Ranks},
    select_and_swap::swap_until_feasible,
    sites, spend,
    start_times::OpenRange,
    timeline::{Change, Timeline},
};
use crate::{
    objective::{Measures, Objective, Within},
    time::Time,
};

/// Guards kept at a time; the oldest makes room.
const GUARDS_MAX: usize = 4;
/// Steps of the second search for multipliers at one start.
const ESCALATED_STEPS: u32 = 400;

/// What a node of the search for the cheapest hosts counts, for each so many hosts.
const SPEND_WORK: u64 = 100;
const SPEND_HOSTS: u64 = 64;
/// Nodes of such a search for the cheapest at one start, where sets are too large for their shares to be settled: more find little, and
/// prove nothing.
const UNSETTLED_NODES: u64 = 32;
/// The same where a plan is known, and a cheaper one is sought.
const UNSETTLED_NODES_AGAIN: u64 = 1;
/// Hosts of all starts that are set aside: some megabytes.
const ASIDE_HOSTS_MAX: usize = 1 << 17;

/// A start and N positions of its slot that reach every total.
pub(crate) struct Solution {
    /// Who is available, and what they have free.
    pub slot: Slot,
    /// N positions of the slot.
    pub chosen: Vec<u32>,
    /// What they are worth by the objective of the search.
    pub value: i64,
}

/// A start without a plan that was not looked at in full.
pub(crate) struct Aside {
    slot: Slot,
    /// What a plan was not to cost more than; none for all that is of interest.
    cost_most: Option<i64>,
}

/// What a sweep looks for.
enum Goal<'s> {
    /// The first start that works.
    First,
    /// The start that works with most available hosts.
    Most {
        /// It, and how many; starts with no more are passed over.
        most: Option<(Time, usize)>,
        /// Most hosts that were available at a start that was not settled.
        unsettled_hosts: usize,
    },
    /// The plan with the least value.
    Best(Box<Best<'s>>),
}

/// The search for the plan with the least value.
struct Best<'s> {
    objective: &'s dyn Objective,
    ranks: Ranks,
    /// The least that N hosts measure, available or not.
    least: Measures,
    /// The best plan so far.
    solution: Option<Solution>,
}

/// One search over the starts of a window.
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
    /// The first start that was neither settled nor excluded by proof.
    pub first_unproven: Option<Time>,
    /// The least value that was neither reached nor excluded by proof, and the first start that may have it.
    pub unproven: Option<(i64, Time)>,
    /// The better and better values on the way to the least one.
    pub reached: Vec<Improvement>,
    /// That hosts were there, but cost too much, and the least that N of them cost where that is known.
    pub too_dear: Option<Option<i64>>,
    /// The first link that excluded a start.
    pub overload: Option<Overload>,
    /// What seats may cost together at present.
    cost_most: i64,
    /// By how much the best set was rounded up, where it is too large for that to be settled.
    rounded: i64,
    /// Prices of the totals that the search for the cheapest hosts begins with.
    prices: spend::Prices,
    /// Nodes that exact searches may still take.
    pub nodes_left: u64,
    guards: Vec<Guard>,
    next_guard: usize,
    cost_guards: CostGuards,
    /// What was not looked at in full, and how many hosts all of that may have.
    pub aside: Vec<Aside>,
    pub aside_hosts_max: usize,
    goal: Goal<'s>,
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
            first_unproven: None,
            unproven: None,
            reached: Vec::new(),
            too_dear: None,
            overload: None,
            cost_most: problem.budget,
            rounded: 0,
            prices: spend::Prices::default(),
            nodes_left: limits.feasibility_nodes_in_all,
            guards: Vec::new(),
            next_guard: 0,
            cost_guards: CostGuards::default(),
            aside: Vec::new(),
            aside_hosts_max: ASIDE_HOSTS_MAX,
            goal: Goal::First,
            timeline: Timeline::new(problem),
            observer,
        }
    }

    /// The start with most available hosts at which the totals can be reached, the earliest of such starts; and whether
    /// it is proven that no start with more hosts exists.
    pub fn most(mut self, all: &OpenRange) -> Option<(Time, bool)> {
        self.goal = Goal::Most { most: None, unsettled_hosts: 0 };
        self.range(all);
        let Goal::Most { most, unsettled_hosts } = self.goal else { return None };
        most.map(|(start, hosts)| (start, unsettled_hosts <= hosts))
    }

    /// The plan with the least value by `objective`, the earliest of such plans.
    pub fn best(&mut self, objective: &'s dyn Objective, all: &OpenRange) -> Option<Solution> {
        let ranks = Ranks::new(&self.problem.lengths);
        let least = measures(ranks.least_of_all(self.problem.pick));
        self.goal = Goal::Best(Box::new(Best { objective, ranks, least, solution: None }));
        self.range(all);
        self.aside.clear();
        match std::mem::replace(&mut self.goal, Goal::First) {
            Goal::Best(best) => best.solution,
            Goal::First | Goal::Most { .. } => None,
        }
    }

    /// Whether N hosts of the slot reach every total, at few enough sites, over links that bear it. `is_whole`: the slot has every host
    /// that is available.
    fn decide_at(&mut self, problem: &Problem<'a>, slot: &Slot, is_whole: bool) -> Settled {
        let Some(links) = &self.problem.links else { return self.decide_at_sites(problem, slot, is_whole) };
        let (settled, overload) = overloads::decide(problem, links, slot, |limited, slot, is_same| {
            if is_same {
                return self.decide_at_sites(limited, slot, is_whole);
            }
            let judge = std::mem::take(&mut self.judge);
            let settled = self.decide_at_sites(limited, slot, false);
            self.judge = judge;
            settled
        });
        self.overload = self.overload.or(overload.filter(|_| settled == Settled::Impossible));
        settled
    }

    fn decide_at_sites(&mut self, problem: &Problem<'_>, slot: &Slot, is_whole: bool) -> Settled {
        match &problem.sites {
            None => self.decide(problem, slot, is_whole),
            Some(limit) => sites::decide(problem, limit, slot, |pool| {
                self.decide(problem, pool, is_whole && pool.len() == slot.len())
            }),
        }
    }

    /// The same with one more limit on the hosts. `limited` is the problem with the limit of lengths, once it was needed.
    fn decide_within(&mut self, slot: &Slot, within: Within, limited: &mut Option<(Problem<'a>, Slot)>) -> Settled {
        let problem = self.problem;
        match within {
            Within::Any => self.decide_at(problem, slot, true),
            Within::Cost(most) => {
                self.cost_most = most.min(problem.budget);
                self.decide_at(problem, slot, true)
            }
            Within::Longest(most) => {
                let pool = slot.filtered(problem.width(), |host| problem.lengths[host as usize] <= most);
                match self.decide_at(problem, &pool, false) {
                    Settled::Found(mut chosen) => {
                        chosen.iter_mut().for_each(|at| *at = slot.position_of(pool.hosts[*at as usize]));
                        Settled::Found(chosen)
                    }
                    other => other,
                }
            }
            Within::Together(most) => {
                let (limited, slot) = limited.get_or_insert_with(|| problem.with_limit(slot, &problem.lengths));
                limited.set_limit(slot, &problem.lengths, most);
                // The multipliers of the judge are by column, of which there is one more now.
                let judge = std::mem::take(&mut self.judge);
                let settled = self.decide_at(limited, slot, false);
                self.judge = judge;
                settled
            }
        }
    }

    /// Whether N hosts of the slot reach every total, whatever their sites. A bound that excludes the whole slot of a start is
    /// kept for later starts.
    fn decide(&mut self, problem: &Problem<'_>, slot: &Slot, is_whole: bool) -> Settled {
        if slot.len() < problem.pick {
            return Settled::Impossible;
        }
        let whole = self.problem;
        match (self.judge.judge(problem, slot, self.limits.multiplier_steps), &whole.costs) {
            (Verdict::Excluded(weights, threshold), _) => {
                if is_whole {
                    self.keep(Guard::new(problem, weights, threshold), slot);
                }
                Settled::Impossible
            }
            (verdict, Some(costs)) if self.cost_most < i64::MAX => {
                let most = self.cost_most;
                let outcome = self.spend((&Market::new(problem, costs, slot), None), (most, most), u64::MAX);
                match outcome.found {
                    Some((chosen, _)) => Settled::Found(chosen),
                    None if outcome.bound < most.saturating_add(1) => Settled::Unknown,
                    None => {
                        let is_too_dear = matches!(verdict, Verdict::Reached(_));
                        self.too_dear = self.too_dear.or(is_too_dear.then_some(None));
                        Settled::Impossible
                    }
                }
            }
            // Any cost will do.
            (Verdict::Reached(chosen), _) => Settled::Found(chosen),
            (Verdict::Open(open), _) => self.decide_open(problem, slot, open, is_whole),
        }
    }

    /// The cheapest N hosts of a market, within limits of sites and costs. `unsettled`: nodes where shares are not settled.
    fn spend(
        &mut self,
        (market, caps): (&Market, Option<&Caps>),
        limits: (i64, i64),
        unsettled: u64,
    ) -> spend::Outcome {
        // A node there is as much work as this many of an exact search.
        let work = SPEND_WORK * (market.len() as u64 / SPEND_HOSTS).max(1);
        let most = if market.is_settled() { u64::MAX } else { unsettled };
        let nodes_max = (u64::from(self.limits.feasibility_nodes_max).min(self.nodes_left) / work).min(most);
        let outcome = spend::cheapest((market, caps), limits, &mut self.prices, nodes_max);
        self.nodes_left = self.nodes_left.saturating_sub(outcome.nodes * work);
        outcome
    }

    /// Notes that a value at a start was not settled.
    fn leave_open(&mut self, open: (i64, Time)) {
        self.unproven = Some(self.unproven.map_or(open, |known| known.min(open)));
        self.first_unproven.get_or_insert(open.1);
    }

    /// Settles a slot that the first look left open: by swaps and a small exact search, then by a longer search for a proof
    /// and a large exact one.
    fn decide_open(&mut self, problem: &Problem<'_>, slot: &Slot, mut open: Open, is_whole: bool) -> Settled {
        let Limits { feasibility_nodes, feasibility_nodes_max, .. } = self.limits;
        for nodes_max in [feasibility_nodes, feasibility_nodes_max] {
            if nodes_max == feasibility_nodes_max {
                match self.judge.judge(problem, slot, ESCALATED_STEPS) {
                    Verdict::Reached(chosen) => return Settled::Found(chosen),
                    Verdict::Excluded(weights, threshold) => {
                        if is_whole {
                            self.keep(Guard::new(problem, weights, threshold), slot);
                        }
                        return Settled::Impossible;
                    }
                    Verdict::Open(again) => open = again,
                }
            }
            let swaps_max = self.limits.l1 as usize * problem.pick;
            let picker = &mut self.judge.picker;
            let found = swap_until_feasible(problem, slot, open.nearest.clone(), swaps_max, &mut self.random, picker);
            if let Some(chosen) = found {
                return Settled::Found(chosen);
            }
            self.miss.note(slot.start, 1.0);
            let nodes_max = u32::try_from(self.nodes_left).unwrap_or(u32::MAX).min(nodes_max);
            let (settled, nodes) = exact::search(problem, slot, &open.weights, nodes_max);
            self.nodes_left -= u64::from(nodes);
            if settled != Settled::Unknown {
                return settled;
            }
        }
        Settled::Unknown
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

    /// Sweeps one open range; the solution when the first one ends the search.
    pub fn range(&mut self, range: &OpenRange) -> Option<Solution> {
        let mut first = range.first;
        while first <= range.last {
            // Every start at which a cost changes is looked at, as the first of a part.
            let change = self.problem.costs.as_ref().and_then(|costs| costs.change_after(first.0));
            let last = change.map_or(range.last, |change| range.last.min(Time(change - 1)));
            let last = self.timeline.begin(&range.hosts, first, last);
            if let ControlFlow::Break(found) = self.part((first, last)) {
                return found;
            }
            first = Time(last.0 + 1);
        }
        None
    }

    /// Looks at the starts of a part at which a host has more free, or a link more room.
    fn part(&mut self, (first, last): (Time, Time)) -> ControlFlow<Option<Solution>> {
        let problem = self.problem;
        self.cost_guards.begin(problem, first);
        for host in 0..problem.hosts.len() {
            let free = self.timeline.free(host);
            self.guards.iter_mut().for_each(|guard| guard.update(problem, host, free));
            self.cost_guards.update(problem, host, free);
            if let Goal::Best(best) = &mut self.goal {
                best.ranks.set(host, free.is_some());
            }
        }
        self.look(first)?;
        let changes = self.timeline.take_changes();
        let flow = self.pass(&changes, first, last);
        self.timeline.keep(changes);
        flow
    }

    /// Applies the changes up to the last start of a part.
    fn pass(&mut self, changes: &[Change], first: Time, last: Time) -> ControlFlow<Option<Solution>> {
        let problem = self.problem;
        let falls = problem.links.as_ref().map_or(&[][..], |links| links.falls());
        let mut falls = falls[falls.partition_point(|fall| *fall <= first.0)..].iter().copied().peekable();
        let mut groups = changes.chunk_by(|a, b| a.time == b.time).peekable();
        loop {
            let next = groups.peek().map(|same_time| same_time[0].time).into_iter().chain(falls.peek().copied()).min();
            let Some(start) = next.filter(|start| *start <= last.0) else { return ControlFlow::Continue(()) };
            let mut is_more = false;
            if let Some(same_time) = groups.next_if(|same_time| same_time[0].time == start) {
                for (host, same_host) in self.timeline.by_host(same_time) {
                    is_more |= self.apply(host, same_host);
                }
            }
            if falls.next_if_eq(&start).is_some() {
                self.cost_guards.charge(problem, Time(start));
                is_more = true;
            }
            if is_more {
                self.look(Time(start))?;
            }
        }
    }

    /// Applies all changes of one host at one time; true when it is available now and something free rose.
    fn apply(&mut self, host: usize, changes: &[Change]) -> bool {
        let was_available = self.timeline.free(host).is_some();
        let rose = self.timeline.apply(host, changes);
        let free = self.timeline.free(host);
        if free.is_some() || was_available {
            self.guards.iter_mut().for_each(|guard| guard.update(self.problem, host, free));
            self.cost_guards.update(self.problem, host, free);
            if let Goal::Best(best) = &mut self.goal {
                best.ranks.set(host, free.is_some());
            }
        }
        rose && free.is_some()
    }
}

/// The least that N hosts measure whose shortest seats are these; what they cost is looked at by itself.
fn measures(shortest: Lowest) -> Measures {
    Measures { longest: shortest.last, together: shortest.sum, cost: 0 }
}

impl Best<'_> {
    /// Whether no plan that begins at `start` or later is better than the best so far, whatever the schedules.
    fn is_over(&self, start: Time) -> bool {
        let Some(solution) = &self.solution else { return false };
        self.objective.value(start.0, self.least) >= solution.value
    }

    /// Whether a plan that begins at `start` may be better than the best so far; N hosts are available.
    fn may_improve(&self, problem: &Problem<'_>, start: Time, rounded: i64, guards: &CostGuards) -> bool {
        let Some(solution) = &self.solution else { return true };
        let least = Measures { cost: guards.least(problem), ..measures(self.ranks.least(problem.pick)) };
        self.objective.value(start.0, least) < solution.value - rounded
    }
}
