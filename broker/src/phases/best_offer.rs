//! Phases III and IV for requests whose hosts need not reach anything together: one sweep over the starts at which a host comes.
//!
//! Any N of the hosts that are there serve, so the N cheapest decide what a budget pays for, and among those whose seats are no longer
//! than some length whether a value can be undercut; both are kept up to date in logarithmic time. Only the least host time under a
//! budget needs more ([`super::knapsack`]). Source: the scan of the dissertation on windows of slots, chapter 2, made exact.
//!
//! Invariant: starts are looked at in ascending order, and every start that is passed over is no better than the best so far.

use std::collections::BinaryHeap;

use super::{
    front::Improvement,
    knapsack::{self, Item, Multiplier},
    offers::Offers,
    problem::Problem,
    ranks::Ranks,
};
use crate::{
    objective::{Measures, Objective, Within},
    time::Time,
};

/// A start and N hosts there.
pub(crate) struct Choice {
    pub start: Time,
    /// The hosts, by their numbers in the problem.
    pub hosts: Vec<u32>,
    /// What they are worth.
    pub value: i64,
}

/// The search; read what it knows when it has ended.
pub(crate) struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    objective: &'p dyn Objective,
    offers: Offers,
    /// The kinds that are there and not too long, by cost.
    cheap: Ranks,
    /// The kinds that are there, by length.
    short: Ranks,
    /// Kinds by falling length; those before `cut` are too long for anything better.
    by_length: Vec<u32>,
    cut: usize,
    /// What proved the last bound of host times, and how far the hosts there lie below its threshold.
    guard: Option<(Multiplier, i128)>,
    nodes_left: u64,
    /// The best so far.
    pub best: Option<Choice>,
    /// What the N cheapest cost at the start where that is least, when they were too dear at all of them.
    pub cheapest: Option<i64>,
    /// The start at which most hosts are there, and how many.
    pub most: (Time, usize),
    /// The least value that was neither reached nor excluded, and the first start that may have it.
    pub unproven: Option<(i64, Time)>,
    /// The better and better values on the way to the best.
    pub reached: Vec<Improvement>,
}

impl<'p, 'a> Search<'p, 'a> {
    /// Looks at all starts of the window.
    pub fn run(
        problem: &'p Problem<'a>,
        objective: &'p dyn Objective,
        window: (Time, Time),
        nodes_max: u64,
    ) -> Search<'p, 'a> {
        let offers = Offers::new(problem, window);
        let mut by_length: Vec<u32> = (0..offers.host.len() as u32).collect();
        by_length.sort_unstable_by_key(|kind| (-offers.length[*kind as usize], offers.cost[*kind as usize], *kind));
        let mut search = Search {
            problem,
            objective,
            cheap: Ranks::new(&offers.cost),
            short: Ranks::new(&offers.length),
            offers,
            by_length,
            cut: 0,
            guard: None,
            nodes_left: nodes_max,
            best: None,
            cheapest: None,
            most: (window.0, 0),
            unproven: None,
            reached: Vec::new(),
        };
        search.sweep();
        search
    }

    fn sweep(&mut self) {
        let events = std::mem::take(&mut self.offers.events);
        let least = self.least_of_all();
        let is_timed = matches!(self.objective.within(0, i64::MAX), Within::Together(_));
        let mut came = Vec::new();
        for same_time in events.chunk_by(|a, b| a.0 == b.0) {
            came.clear();
            for (_, event) in same_time {
                let (kind, comes) = ((event / 2) as usize, event % 2 == 1);
                came.extend(comes.then_some(kind));
                self.set(kind, comes, is_timed);
            }
            let start = same_time[0].0;
            if let (Some(best), Some(least)) = (&self.best, least)
                && self.objective.value(start, least) >= best.value
            {
                return;
            }
            if !came.is_empty() {
                self.look(start, &came);
            }
        }
    }

    /// The least of every measure that N hosts have, wherever and whenever; none when there are fewer.
    fn least_of_all(&self) -> Option<Measures> {
        let pick = self.problem.pick;
        if self.offers.host.len() < pick {
            return None;
        }
        let short = self.short.least_of_all(pick);
        Some(Measures { longest: short.last, together: short.sum, cost: self.cheap.least_of_all(pick).sum })
    }

    fn set(&mut self, kind: usize, comes: bool, is_timed: bool) {
        let is_short = self
            .by_length
            .get(self.cut)
            .is_some_and(|longest| self.offers.length[kind] <= self.offers.length[*longest as usize]);
        self.cheap.set(kind, comes && is_short);
        if is_timed {
            self.short.set(kind, comes);
            if let Some((multiplier, below)) = &mut self.guard {
                let change = multiplier.below(item(&self.offers, kind));
                *below += if comes { change } else { -change };
            }
        }
    }

    /// Drops the kinds that are longer than `most`.
    fn shorten(&mut self, most: i64) {
        while let Some(longest) = self.by_length.get(self.cut)
            && self.offers.length[*longest as usize] > most
        {
            self.cheap.set(*longest as usize, false);
            self.cut += 1;
        }
    }

    /// Looks for a better plan at one start, where these kinds came.
    fn look(&mut self, start: i64, came: &[usize]) {
        let (pick, budget) = (self.problem.pick, self.problem.budget);
        let most = self.best.as_ref().map_or(i64::MAX, |best| best.value - 1);
        let within = self.objective.within(start, most);
        if let Within::Longest(most) = within {
            self.shorten(most);
        }
        if self.best.is_none() && self.cheap.len() > self.most.1 {
            self.most = (Time(start), self.cheap.len());
        }
        if self.cheap.len() < pick {
            return;
        }
        let cost = self.cheap.least(pick).sum;
        if cost > budget {
            if self.best.is_none() {
                self.cheapest = Some(self.cheapest.map_or(cost, |least| least.min(cost)));
            }
            return;
        }
        let kinds = match within {
            Within::Cost(most) if cost > most => return,
            Within::Any | Within::Cost(_) => self.cheap.members().take(pick).collect(),
            Within::Longest(_) => self.shortest(),
            Within::Together(most) if self.short.least(pick).sum > most => return,
            Within::Together(_) => match self.least_together(start, most, came) {
                Some(kinds) => kinds,
                None => return,
            },
        };
        let of = |values: &[i64]| kinds.iter().map(|kind| values[*kind as usize]).sum();
        let longest = kinds.iter().map(|kind| self.offers.length[*kind as usize]).max().unwrap_or(0);
        let measures = Measures { longest, together: of(&self.offers.length), cost: of(&self.offers.cost) };
        let hosts = kinds.iter().map(|kind| self.offers.host[*kind as usize]).collect();
        let (start, value) = (Time(start), self.objective.value(start, measures));
        self.reached.push(Improvement { start, value, open: self.unproven.map(|(open, _)| open) });
        self.best = Some(Choice { start, hosts, value });
    }

    /// The N cheapest of the shortest kinds that have N within the budget; all that are there have.
    fn shortest(&self) -> Vec<u32> {
        let mut cheapest = BinaryHeap::with_capacity(self.problem.pick + 1);
        let mut sum = 0;
        for kind in self.by_length[self.cut..].iter().rev().filter(|kind| self.cheap.contains(**kind as usize)) {
            let cost = self.offers.cost[*kind as usize];
            cheapest.push((cost, *kind));
            sum += cost;
            if cheapest.len() > self.problem.pick {
                sum -= cheapest.pop().map_or(0, |(dearest, _)| dearest);
            }
            if cheapest.len() == self.problem.pick && sum <= self.problem.budget {
                break;
            }
        }
        cheapest.into_iter().map(|(_, kind)| kind).collect()
    }

    /// N kinds within the budget that take at most `most` together, the least of all, unless a bound or the limit of work excludes it.
    fn least_together(&mut self, start: i64, most: i64, came: &[usize]) -> Option<Vec<u32>> {
        let (pick, budget) = (self.problem.pick, self.problem.budget);
        // Sets of those that were there before were looked at then, so one of those that came is part of any better set.
        let (shortest, cheapest) = (self.short.least(pick - 1).sum, self.cheap.least(pick - 1).sum);
        let may_help = |kind: &usize| {
            let Item { length, cost } = item(&self.offers, *kind);
            let is_possible = length <= most - shortest && cost <= budget.saturating_sub(cheapest);
            is_possible
                && self.guard.as_ref().is_none_or(|(multiplier, below)| {
                    let with = below + multiplier.above(item(&self.offers, *kind));
                    multiplier.bound(pick, with, budget) <= most
                })
        };
        if !came.iter().any(may_help) {
            return None;
        }
        let kinds: Vec<u32> = self.short.members().collect();
        let items: Vec<Item> = kinds.iter().map(|kind| item(&self.offers, *kind as usize)).collect();
        let outcome = knapsack::least_together(&items, pick, budget, most.saturating_add(1), self.nodes_left);
        self.nodes_left -= outcome.nodes;
        if let Some(multiplier) = outcome.multiplier {
            self.guard = Some((multiplier, items.iter().map(|item| multiplier.below(*item)).sum()));
        }
        let found: Option<Vec<u32>> = outcome.found.map(|set| set.iter().map(|at| kinds[*at]).collect());
        let value = found.as_ref().map(|set| set.iter().map(|kind| self.offers.length[*kind as usize]).sum());
        // Without a better set, the bound is one beyond what was asked once all of them are excluded.
        if outcome.bound <= most && value.is_none_or(|value: i64| outcome.bound < value) {
            let open = (outcome.bound, Time(start));
            self.unproven = Some(self.unproven.map_or(open, |known| known.min(open)));
        }
        found
    }
}

fn item(offers: &Offers, kind: usize) -> Item {
    Item { length: offers.length[kind], cost: offers.cost[kind] }
}
