//! The least value at one start.
//!
//! Invariant: what is neither reached nor excluded there is noted as open.

use super::{
    super::{
        Phase, PhaseObserver,
        exact::Settled,
        front::Improvement,
        links::{Caps, Overload},
        market::Market,
        overloads,
        problem::Slot,
        spend,
    },
    Goal, Solution, Sweep, UNSETTLED_NODES, UNSETTLED_NODES_AGAIN, measures,
};
use crate::objective::Within;

impl<O: PhaseObserver> Sweep<'_, '_, O> {
    /// Looks for the plan with the least value at one start, and keeps it when it is better than the best so far.
    pub(super) fn improve(&mut self, slot: Slot) {
        let Goal::Best(best) = &self.goal else { return };
        let (problem, objective, start) = (self.problem, best.objective, slot.start.0);
        let is_cost = matches!(objective.within(start, 0), Within::Cost(_));
        if is_cost && problem.sites.is_none() {
            return self.improve_cost(slot);
        }
        let lowest = objective.value(start, measures(best.ranks.least(problem.pick)));
        let mut below = best.solution.as_ref().map(|solution| solution.value);
        self.observer.enter(Phase::SelectAndSwap);
        let (mut found, mut low, mut limited) = (None, lowest, None);
        if is_cost && let Some(outcome) = self.cheapest_anywhere(&slot, below) {
            low = outcome.bound;
            if let Some((chosen, shares)) = outcome.found {
                (below, found) = (Some(shares.cost), Some(chosen));
            }
            if low > problem.budget {
                self.too_dear = self.too_dear.or(Some(None).filter(|_| below.is_none() && low < i64::MAX));
                return self.observer.enter(Phase::StartTimes);
            }
        }
        // The N shortest seats reach the bound, if they reach the totals.
        let shortest = slot.shortest(problem);
        if !is_cost && problem.accepts(&slot, &shortest) {
            (below, found) = (Some(lowest), Some(shortest));
        }
        // Everything below `low` is excluded, or was not settled; `below` is reached. The first question is for any better plan, the
        // others halve what is left.
        let mut least = None;
        while below.is_none_or(|below| low < below) {
            let most = below.map(|below| if found.is_none() { below - 1 } else { low + (below - 1 - low) / 2 });
            if let (Some(most), Some(below), true) = (most, below, is_cost && found.is_some()) {
                let least = *least.get_or_insert_with(|| self.least_at_a_site(&slot, below - 1));
                if self.set_question_aside(&slot, (least, most)) {
                    low = most + 1;
                    continue;
                }
                self.make_up();
            }
            let within = most.map_or(Within::Any, |most| objective.within(start, most));
            match self.decide_within(&slot, within, &mut limited) {
                Settled::Found(chosen) => {
                    below = Some(objective.value(start, slot.measures(problem, &chosen)));
                    found = Some(chosen);
                }
                settled => {
                    if settled == Settled::Unknown {
                        self.leave_open((low, slot.start));
                    }
                    match most.filter(|_| found.is_some()) {
                        Some(most) => low = most + 1,
                        None => break,
                    }
                }
            }
        }
        self.observer.enter(Phase::StartTimes);
        if let (Some(chosen), Some(value)) = (found, below) {
            self.keep_better(Solution { slot, chosen, value });
        }
    }

    /// Looks for a cheaper plan at one start, over links that bear it, whatever its sites.
    fn improve_cost(&mut self, slot: Slot) {
        let problem = self.problem;
        let (Goal::Best(best), Some(costs)) = (&self.goal, &problem.costs) else { return };
        let below = best.solution.as_ref().map_or(i64::MAX, |solution| solution.value);
        // What large sets were rounded up by is noted as open where they were found, and not looked for elsewhere.
        let mut most = problem.budget.min(below - 1 - self.rounded);
        self.observer.enter(Phase::SelectAndSwap);
        // Without any limit, hosts that reach the totals give one.
        let any = if most == i64::MAX - 1 { self.decide_at(problem, &slot, true) } else { Settled::Unknown };
        if let Settled::Found(chosen) = &any {
            most = problem.cost_of(&slot, chosen);
        }
        if any == Settled::Impossible {
            return self.observer.enter(Phase::StartTimes);
        }
        let market = Market::new(problem, costs, &slot);
        let is_known = below < i64::MAX || matches!(any, Settled::Found(_));
        let nodes = if is_known { UNSETTLED_NODES_AGAIN } else { UNSETTLED_NODES };
        let outcome = match &problem.links {
            None => self.spend((&market, None), (most, i64::MIN), nodes),
            Some(links) => {
                let cheapest = |caps: Option<&Caps>, most| {
                    let outcome = self.spend((&market, caps), (most, i64::MIN), nodes);
                    (outcome, self.nodes_left > 0)
                };
                match overloads::cheapest(problem, links, &slot, most, cheapest) {
                    Ok(outcome) => outcome,
                    Err(overload) => {
                        self.overload = self.overload.or(overload);
                        return self.observer.enter(Phase::StartTimes);
                    }
                }
            }
        };
        self.observer.enter(Phase::StartTimes);
        if let Some(duals) = outcome.duals {
            self.cost_guards.keep(problem, &slot, duals);
        }
        if let Some((_, shares)) = outcome.found.as_ref().filter(|_| !market.is_settled()) {
            self.rounded = shares.cost - shares.bound;
        }
        let known = if let Settled::Found(chosen) = any { Some((chosen, most)) } else { None };
        let found = outcome.found.map(|(chosen, shares)| (chosen, shares.cost)).or(known);
        let value = found.as_ref().map(|(_, cost)| *cost);
        if outcome.bound < value.unwrap_or(most.saturating_add(1)) {
            self.leave_open((outcome.bound, slot.start));
        } else if value.is_none() && below == i64::MAX && self.overload.is_none() {
            self.overload = self.overload_of(&market, &slot, most);
            self.too_dear =
                self.too_dear.or(Some(None).filter(|_| self.overload.is_none() && outcome.bound < i64::MAX));
        }
        if let Some((chosen, value)) = found {
            self.keep_better(Solution { slot, chosen, value });
        }
    }

    /// The link that hosts which cost no more than this overload, when there are such hosts.
    fn overload_of(&mut self, market: &Market, slot: &Slot, most: i64) -> Option<Overload> {
        let links = self.problem.links.as_ref()?;
        let (chosen, _) = self.spend((market, None), (most, most), UNSETTLED_NODES).found?;
        overloads::overload(self.problem, links, slot, &chosen)
    }

    fn keep_better(&mut self, solution: Solution) {
        let Goal::Best(best) = &mut self.goal else { return };
        let (start, value, open) = (solution.slot.start, solution.value, self.unproven.map(|(open, _)| open));
        self.reached.push(Improvement { start, value, open });
        best.solution = Some(solution);
    }

    /// The least cost of hosts wherever they are, when some limit of costs is known; and the hosts, when they serve.
    fn cheapest_anywhere(&mut self, slot: &Slot, below: Option<i64>) -> Option<spend::Outcome> {
        let (problem, costs) = (self.problem, self.problem.costs.as_ref()?);
        let most = problem.budget.min(below.map_or(i64::MAX, |below| below - 1));
        if most == i64::MAX {
            return None;
        }
        let outcome = self.spend((&Market::new(problem, costs, slot), None), (most, i64::MIN), UNSETTLED_NODES);
        let found = outcome.found.filter(|(chosen, _)| problem.accepts(slot, chosen));
        Some(spend::Outcome { found, ..outcome })
    }
}
