//! Which starts are looked at, and which of them in full.
//!
//! Where all seats are to be at one site, the search over the sites first looks at hosts of all of them together, which a limit of costs
//! rarely excludes; each site by itself is excluded soon. A start at which all of them are has no plan, and is set aside. A full look
//! there would still leave prices and multipliers behind, and those say which of equally good hosts a later one finds first. So what is set
//! aside is made up for in order before the next full look; after the last one nothing depends on it. The same holds for each question whether
//! something cheaper than the plan found at a start is to be had there.
//!
//! Invariant: a sweep finds what it would find without setting anything aside.

use std::ops::ControlFlow;

use super::{
    super::{
        Phase, PhaseObserver,
        bounds::{Judge, Verdict},
        costs::Costs,
        exact::Settled,
        market::Market,
        miss::Miss,
        problem::{Problem, Slot},
        spend,
    },
    Aside, Goal, Solution, Sweep,
};
use crate::{objective::Within, time::Time};

/// Nodes of the search for the cheapest hosts of one site; where more are needed, the start is looked at in full.
const NODES_AT_SITE: u64 = 8;

impl<O: PhaseObserver> Sweep<'_, '_, O> {
    /// Looks at one start by itself.
    pub fn settle(&mut self, slot: Slot) -> Option<Solution> {
        if slot.len() < self.problem.pick {
            self.miss.note(slot.start, Miss::too_few(slot.len(), self.problem.pick));
            return None;
        }
        self.observer.enter(Phase::SelectAndSwap);
        let settled = self.decide_at(self.problem, &slot, true);
        self.observer.enter(Phase::StartTimes);
        match settled {
            Settled::Found(chosen) => {
                let value = slot.start.0;
                Some(Solution { slot, chosen, value })
            }
            Settled::Impossible => None,
            Settled::Unknown => {
                self.first_unproven.get_or_insert(slot.start);
                if let Goal::Most { unsettled_hosts, .. } = &mut self.goal {
                    *unsettled_hosts = slot.len().max(*unsettled_hosts);
                }
                None
            }
        }
    }

    /// Settles a start unless the count, a guard or its value excludes it; breaks when the search is over.
    pub(super) fn look(&mut self, start: Time) -> ControlFlow<Option<Solution>> {
        let problem = self.problem;
        let available = self.timeline.available();
        if let Goal::Best(best) = &self.goal
            && best.is_over(start)
        {
            return ControlFlow::Break(None);
        }
        if available < problem.pick {
            self.miss.note(start, Miss::too_few(available, problem.pick));
            return ControlFlow::Continue(());
        }
        let is_worth_it = match &self.goal {
            Goal::First => true,
            Goal::Most { most, .. } => most.is_none_or(|(_, hosts)| available > hosts),
            Goal::Best(best) => best.may_improve(problem, start, self.rounded, &self.cost_guards),
        };
        if !is_worth_it {
            return ControlFlow::Continue(());
        }
        let reach = self.guards.iter().map(|guard| guard.reach(problem)).fold(1.0, f64::min);
        if reach < 1.0 {
            self.miss.note(start, reach);
            return ControlFlow::Continue(());
        }
        let Some(slot) = self.set_aside(self.timeline.slot(start)) else { return ControlFlow::Continue(()) };
        self.make_up();
        if matches!(self.goal, Goal::Best(_)) {
            self.improve(slot);
            return ControlFlow::Continue(());
        }
        match (self.settle(slot), &mut self.goal) {
            (Some(_), Goal::Most { most, .. }) => *most = Some((start, available)),
            (Some(found), _) => return ControlFlow::Break(Some(found)),
            (None, _) => {}
        }
        ControlFlow::Continue(())
    }

    /// Sets a start aside where no site has a plan that is of interest; otherwise the slot is given back.
    fn set_aside(&mut self, slot: Slot) -> Option<Slot> {
        let is_out = |most: &i64| self.least_at_a_site(&slot, *most) > *most;
        if self.cost_of_interest().filter(is_out).is_none() {
            return Some(slot);
        }
        self.put_aside(Aside { slot, cost_most: None });
        None
    }

    /// Sets the question aside whether a start has a plan that costs at most `most`, where no plan at one site costs less than `least`. False where
    /// that has to be asked.
    pub(super) fn set_question_aside(&mut self, slot: &Slot, (least, most): (i64, i64)) -> bool {
        let is_out = least > most;
        if is_out {
            self.put_aside(Aside { slot: slot.clone(), cost_most: Some(most) });
        }
        is_out
    }

    fn put_aside(&mut self, aside: Aside) {
        if self.aside.iter().map(|aside| aside.slot.len()).sum::<usize>() + aside.slot.len() > self.aside_hosts_max {
            self.make_up();
        }
        self.aside.push(aside);
    }

    /// Looks in full at what was set aside, so that the next full look begins with what that leaves behind.
    pub(super) fn make_up(&mut self) {
        if self.aside.is_empty() {
            return;
        }
        let hosts_max = std::mem::take(&mut self.aside_hosts_max);
        for Aside { slot, cost_most } in std::mem::take(&mut self.aside) {
            if let Some(most) = cost_most {
                self.cost_most = most.min(self.problem.budget);
                self.decide_at(self.problem, &slot, true);
            } else if matches!(self.goal, Goal::Best(_)) {
                self.improve(slot);
            } else {
                self.settle(slot);
            }
        }
        self.aside_hosts_max = hosts_max;
    }

    /// No N hosts of one site that reach the totals at this start cost less, and none cost at most `most` where that is more than it. Least of all
    /// where nothing may be set aside.
    pub(super) fn least_at_a_site(&self, slot: &Slot, most: i64) -> i64 {
        let problem = self.problem;
        let (Some(limit), Some(costs), None) = (&problem.sites, &problem.costs, &problem.links) else {
            return i64::MIN;
        };
        // Where hosts of all sites reach the totals, a full look leaves no guard behind that would exclude later starts.
        let is_reached = || {
            let verdict = Judge::default().judge(problem, slot, self.limits.multiplier_steps);
            matches!(verdict, Verdict::Reached(_))
        };
        if limit.most != 1 || limit.kept > 0 || slot.len() > self.aside_hosts_max || !is_reached() {
            return i64::MIN;
        }
        // Hosts are ordered by site.
        let sites = slot.hosts.chunk_by(|a, b| limit.of[*a as usize] == limit.of[*b as usize]);
        sites.map(|hosts| least((problem, costs), slot, hosts, most)).min().unwrap_or(i64::MIN)
    }

    /// What a plan may cost to be of interest. None where that is not limited, and where a full look that finds nothing is part of the answer.
    fn cost_of_interest(&self) -> Option<i64> {
        let budget = self.problem.budget;
        let (best, is_known) = match &self.goal {
            Goal::Most { .. } => return None,
            Goal::First => (i64::MAX, false),
            Goal::Best(best) => match &best.solution {
                None => (i64::MAX, false),
                Some(solution) => match best.objective.within(solution.slot.start.0, solution.value - 1) {
                    Within::Cost(most) => (most, true),
                    Within::Any | Within::Longest(_) | Within::Together(_) => return None,
                },
            },
        };
        // The first start that is too dear says so in the answer, if there is no plan.
        Some(budget.min(best)).filter(|most| *most < i64::MAX && (is_known || self.too_dear.is_some()))
    }
}

/// No N of these hosts of a slot, which are in order, reach the totals for less, or none for `most` where it is more than that.
fn least((problem, costs): (&Problem<'_>, &Costs), slot: &Slot, hosts: &[u32], most: i64) -> i64 {
    let none = most.saturating_add(1);
    if hosts.len() < problem.pick {
        return none;
    }
    let (width, first) = (problem.width(), slot.position_of(hosts[0]) as usize);
    let free = slot.free[first * width..][..hosts.len() * width].to_vec();
    let market = Market::new(problem, costs, &Slot { start: slot.start, hosts: hosts.to_vec(), free });
    spend::cheapest((&market, None), (most, i64::MIN), &mut spend::Prices::default(), NODES_AT_SITE).bound.min(none)
}
