//! Phase V among the host sets whose value by the objective is as good as that of the solution found.
//!
//! Invariant: the value of what is chosen is not worse, and its cost is within the budget.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{bounds::Judge, limits::Limits, optimize, preference, problem::Problem, sites, sweep::Solution};
use crate::{
    objective::{Objective, Within},
    time::Time,
};

/// What the seats of a plan of this value may cost together, in thousandths of a credit.
pub(super) fn cost_limit(problem: &Problem<'_>, objective: &dyn Objective, start: Time, value: i64) -> i64 {
    match objective.within(start.0, value) {
        Within::Cost(most) => most.min(problem.budget),
        Within::Any | Within::Longest(_) | Within::Together(_) => problem.budget,
    }
}

/// The hosts with the best efficiency factor among those whose value is as good, and the slot that they are positions of.
pub(super) fn most_efficient(
    problem: &Problem<'_>,
    solution: Solution,
    objective: &dyn Objective,
    limits: &Limits,
    ranks: Option<&[u64]>,
    (random, judge): (&mut Xoshiro256PlusPlus, &mut Judge),
) -> (Solution, optimize::Optimum) {
    let factor = optimize::factor(problem, &solution.slot, &solution.chosen);
    if factor >= 1.0 && ranks.is_none() {
        let optimum = optimize::Optimum { chosen: solution.chosen.clone(), factor, bound: factor };
        return (solution, optimum);
    }
    let mut pool = solution.slot;
    let hosts: Vec<u32> = solution.chosen.iter().map(|at| pool.hosts[*at as usize]).collect();
    if let Some(limit) = &problem.sites {
        pool = sites::of_same_sites(limit, problem, &pool, &solution.chosen);
    }
    let within = objective.within(pool.start.0, solution.value);
    if let Within::Longest(most) = within {
        pool = pool.filtered(problem.width(), |host| problem.lengths[host as usize] <= most);
    }
    let chosen = hosts.iter().map(|host| pool.position_of(*host)).collect();
    let solution = Solution { slot: pool, chosen, value: solution.value };
    let mut best = |problem: &Problem<'_>, solution: &Solution| {
        let mut optimum = optimize::optimize(problem, solution, limits, random, &mut judge.picker);
        if let Some(ranks) = ranks {
            preference::prefer(problem, &solution.slot, &mut optimum, ranks);
        }
        optimum
    };
    let mut limits = Vec::new();
    if let Within::Together(most) = within {
        limits.push((problem.lengths.clone(), most));
    }
    let most = cost_limit(problem, objective, solution.slot.start, solution.value);
    if let Some(costs) = problem.costs.as_ref().filter(|costs| !costs.has_shares()) {
        let start = solution.slot.start.0;
        let of_host = |host: u32| costs.of_minima(costs.step_at(host as usize, start));
        limits.push((problem.every_host().into_iter().map(of_host).collect(), most));
    }
    let mut limited = None;
    for (weights, most) in limits.into_iter().filter(|(_, most)| *most < i64::MAX) {
        let (problem, slot) = limited.as_ref().map_or((problem, &solution.slot), |(problem, slot)| (problem, slot));
        let (mut with, slot) = problem.with_limit(slot, &weights);
        with.set_limit(&slot, &weights, most);
        limited = Some((with, slot));
    }
    let mut optimum = match limited {
        Some((limited, slot)) => {
            best(&limited, &Solution { slot, chosen: solution.chosen.clone(), value: solution.value })
        }
        None => best(problem, &solution),
    };
    if problem.cost_of(&solution.slot, &optimum.chosen) > most {
        // Shares have prices of their own: such a set is sought without them, and given up where it costs too much.
        (optimum.chosen, optimum.factor) = (solution.chosen.clone(), factor);
    }
    if problem.sites.is_some() {
        // Hosts of other sites were not looked at; no factor is above 1.
        optimum.bound = optimum.bound.max(1.0);
    }
    (solution, optimum)
}
