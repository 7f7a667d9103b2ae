//! `slices:K`: the batch is cut into K parts, which are planned one after another, each as a whole.
//!
//! Source: batch slicing (section 3 of the dissertation on windows of slots); K = 1 is the cyclic scheme. Of each part: alternatives of every
//! request, the best choice of them, and what was chosen is occupied. Where alternatives may collide, both ways are gone and the better
//! end counts. Those that keep precedence are a part by themselves before the K. Invariant: with colliding alternatives an answer is never
//! worse than without.

use super::PolicyError;
use crate::{
    batch::{
        alternatives::{disjoint, is_among, own},
        choice::{Aim, Choice, Item, Question, WORK_MAX, choose, choose_in},
        objective::{cost, since},
        order::ordered,
        policy::Policy,
        room::Snapshot,
        run::Run,
    },
    plan::Plan,
};

struct Slices(usize);

/// Makes the policy.
///
/// # Errors
/// K is a whole number from 1 on.
pub(super) fn make(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    match parameter.unwrap_or_default().parse() {
        Ok(parts) if parts > 0 => Ok(Box::new(Slices(parts))),
        _ => {
            let got = parameter.unwrap_or_default().to_owned();
            Err(PolicyError::Parameter {
                policy: "slices",
                expected: "slices:K with a whole number K of 1 or more",
                got,
            })
        }
    }
}

impl Policy for Slices {
    fn name(&self) -> String {
        format!("slices:{}", self.0)
    }

    fn plan(&self, run: &mut Run<'_>) -> Vec<Option<Plan>> {
        let order = ordered(run);
        let parts = self.parts(&order, run.options.first);
        // A single part keeps by itself what does not collide, if that is better.
        if !run.options.overlap || parts.len() == 1 {
            return planned(run, &parts, run.options.overlap);
        }
        let begun = run.planner.clone();
        let plans = planned(run, &parts, false);
        let apart = (std::mem::take(&mut run.alternatives), std::mem::replace(&mut run.planner, begun));
        let colliding = planned(run, &parts, true);
        if worth(run, &colliding) <= worth(run, &plans) {
            return colliding;
        }
        (run.alternatives, run.planner) = apart;
        plans
    }
}

/// Requests postponed, first of those that keep precedence, the objective, and the latest end.
fn worth(run: &Run<'_>, plans: &[Option<Plan>]) -> (usize, usize, i64, i64) {
    let first = run.options.first.min(plans.len());
    let again = plans[..first].iter().filter(|plan| plan.is_none()).count();
    let placed: Vec<&Plan> = plans.iter().flatten().collect();
    let end = placed.iter().map(|plan| since(plan.end(), run.origin)).max().unwrap_or(0);
    (again, plans.len() - placed.len(), run.options.objective.of_plans(&placed, run.origin), end)
}

impl Slices {
    /// The parts in which these are planned, of which none is empty; the first `first` are one by themselves.
    fn parts<'a>(&self, order: &'a [usize], first: usize) -> Vec<&'a [usize]> {
        let (first, mut rest) = order.split_at(first.min(order.len()));
        let mut parts: Vec<&[usize]> = Some(first).filter(|part| !part.is_empty()).into_iter().collect();
        for part in 0..self.0.min(rest.len()) {
            let (next, after) = rest.split_at(rest.len().div_ceil(self.0 - part));
            parts.push(next);
            rest = after;
        }
        parts
    }
}

fn planned(run: &mut Run<'_>, parts: &[&[usize]], overlap: bool) -> Vec<Option<Plan>> {
    let mut plans = vec![None; run.requests.len()];
    let mut purse = Purse::new(run);
    for (slice, requests) in parts.iter().enumerate() {
        let budget = purse.share(run, requests);
        let spent = Part { slice, requests, budget, overlap }.plan(run, &mut plans);
        purse.pay(spent);
    }
    plans
}

/// What is left of the budget, and of the batch that it is for.
struct Purse {
    left: Option<u64>,
    /// Hosts times length at reference speed.
    size: u128,
}

impl Purse {
    fn new(run: &Run<'_>) -> Purse {
        let all: Vec<usize> = (0..run.requests.len()).collect();
        Purse { left: run.options.budget, size: size(run, &all) }
    }

    /// The part of what is left that is due to these requests by their size.
    fn share(&mut self, run: &Run<'_>, part: &[usize]) -> Option<u64> {
        let due = size(run, part);
        let share = self.left.map(|left| (u128::from(left) * due / self.size.max(1)) as u64);
        self.size -= due;
        if self.size == 0 { self.left } else { share }
    }

    fn pay(&mut self, spent: u64) {
        self.left = self.left.map(|left| left.saturating_sub(spent));
    }
}

fn size(run: &Run<'_>, requests: &[usize]) -> u128 {
    let demands = requests.iter().filter_map(|request| run.requests[*request].request());
    demands.map(|asked| asked.demand().seats() as u128 * u128::from(asked.demand().length().at_reference().0)).sum()
}

/// A part of the batch.
struct Part<'a> {
    slice: usize,
    requests: &'a [usize],
    budget: Option<u64>,
    overlap: bool,
}

impl Part<'_> {
    /// Plans the part on what is occupied so far, and occupies it. Says what it costs.
    fn plan(&self, run: &mut Run<'_>, plans: &mut [Option<Plan>]) -> u64 {
        run.left = self.budget;
        let mut found = disjoint(run, self.requests);
        let apart: Vec<usize> = found.iter().map(Vec::len).collect();
        if self.overlap {
            for (plans, request) in found.iter_mut().zip(self.requests) {
                let more = own(run, *request);
                let is_new: Vec<Plan> = more.into_iter().filter(|plan| !is_among(plans, plan)).collect();
                plans.extend(is_new);
            }
        }
        let fixed: Vec<&Plan> = plans.iter().flatten().collect();
        let choice = self.choose(run, &found, &apart, &fixed);
        let mut spent = 0;
        for (place, (request, alternatives)) in self.requests.iter().zip(found).enumerate() {
            let pick = choice.picks[place];
            for (at, plan) in alternatives.iter().enumerate() {
                run.note(*request, self.slice, plan, pick == Some(at));
            }
            let Some(plan) = pick.and_then(|at| alternatives.into_iter().nth(at)) else { continue };
            run.planner.occupy(&plan);
            spent += cost(&plan);
            plans[*request] = Some(plan);
        }
        spent
    }

    /// The best choice of what was found; the first `apart` alternatives of each request do not collide.
    fn choose(&self, run: &mut Run<'_>, found: &[Vec<Plan>], apart: &[usize], fixed: &[&Plan]) -> Choice {
        let (objective, origin) = (run.options.objective, run.origin);
        let items: Vec<Vec<Item>> =
            found.iter().map(|plans| plans.iter().map(|plan| objective.item(plan, origin)).collect()).collect();
        let floor = fixed.iter().map(|plan| since(plan.end(), origin)).max().unwrap_or(0);
        let question = Question { items: &items, budget: self.budget, floor, work: WORK_MAX };
        let first: Vec<Vec<Item>> = items.iter().zip(apart).map(|(items, count)| items[..*count].to_vec()).collect();
        let of_first = Question { items: &first, ..question };
        let aim = objective.aim();
        let mut room = Snapshot::new(&mut run.planner, found, objective, origin, fixed);
        let known = match aim {
            Aim::Together => choose_in(&of_first, aim, &mut room, None),
            Aim::Sum | Aim::Latest => choose(&of_first, aim),
        };
        match self.overlap {
            true => choose_in(&question, aim, &mut room, Some(&known.picks)),
            false => known,
        }
    }
}
