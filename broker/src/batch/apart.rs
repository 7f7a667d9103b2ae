//! Requests that a policy cannot treat are planned by themselves, in the order of the batch, beside those that it plans together.
//!
//! Those that an earlier batch has postponed come before the policy's, the others after them, so that none waits for ever. A budget of a
//! request is not looked at by policies that place all at once: what they find is dropped where it costs more, and the request is planned
//! by itself. Invariant: whatever the policy, each request of a batch is planned, and all plans fit into the snapshot together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    policy::{Options, Policy},
    run::Run,
};
use crate::{ids::RequestId, offline::Asked, plan::Plan, request::Request};

/// A request that was planned by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByItself {
    /// Its name, or `line-K` when it has none.
    pub request: RequestId,
    /// What of it the policy cannot treat.
    pub why: String,
}

/// Plans all requests of a run, by request, and tells which of them the policy has not planned.
pub(super) fn plan(policy: &dyn Policy, run: &mut Run<'_>) -> (Vec<Option<Plan>>, Vec<ByItself>) {
    let mut untreated = untreated(policy, run);
    let mut plans = vec![None; run.requests.len()];
    let first = run.options.first;
    let early: Vec<usize> = untreated.keys().copied().filter(|at| *at < first).collect();
    early.iter().for_each(|at| plans[*at] = by_itself(run, *at));
    let together: Vec<usize> = (0..run.requests.len()).filter(|at| !untreated.contains_key(at)).collect();
    plan_together(policy, run, &together, &mut plans);
    if !early.is_empty() {
        // It was proven on what these had left.
        run.proven = None;
    }
    untreated.extend(drop_too_dear(run, &together, &mut plans));
    for at in untreated.keys().filter(|at| !early.contains(at)) {
        plans[*at] = by_itself(run, *at);
    }
    let named = |(at, why): (usize, String)| ByItself { request: run.requests[at].id.clone(), why };
    (plans, untreated.into_iter().map(named).collect())
}

/// What the policy cannot treat, by request.
fn untreated(policy: &dyn Policy, run: &Run<'_>) -> BTreeMap<usize, String> {
    let has_one_shape = policy.ignores().contains(&"shapes");
    let is_left = |at: &usize| has_one_shape && run.requests[*at].has_shapes;
    let (shaped, others): (Vec<usize>, Vec<usize>) = (0..run.requests.len()).partition(is_left);
    let mut untreated = policy.untreated(run, &others);
    untreated.extend(shaped.into_iter().map(|at| (at, "shapes: one shape only can be placed".to_owned())));
    untreated
}

/// Lets the policy plan these as a batch of their own, beside what is occupied.
fn plan_together(policy: &dyn Policy, run: &mut Run<'_>, together: &[usize], plans: &mut [Option<Plan>]) {
    if together.is_empty() {
        return;
    }
    let requests: Vec<Asked> = together.iter().map(|at| run.requests[*at].clone()).collect();
    let first = together.iter().filter(|at| **at < run.options.first).count();
    let options = Options { first, ..*run.options };
    let mut part = Run::new(&run.planner, &requests, &options, run.watch);
    (part.origin, part.left) = (run.origin, run.left);
    let found = policy.plan(&mut part);
    let Run { planner, left, alternatives, phases_us, reasons, proven, .. } = part;
    (run.planner, run.left, run.proven) = (planner, left, proven);
    for (at, ((plan, us), reason)) in together.iter().zip(found.into_iter().zip(phases_us).zip(reasons)) {
        (plans[*at], run.phases_us[*at], run.reasons[*at]) = (plan, us, reason);
    }
    run.alternatives.extend(alternatives.into_iter().map(|mut one| {
        one.request = together[one.request];
        one
    }));
}

/// Takes plans back that cost more than their requests allow, and says so of each.
fn drop_too_dear(run: &mut Run<'_>, together: &[usize], plans: &mut [Option<Plan>]) -> BTreeMap<usize, String> {
    let mut dropped = BTreeMap::new();
    for at in together {
        let budget = run.requests[*at].request().and_then(Request::budget);
        let cost = plans[*at].as_ref().map(Plan::cost);
        let Some((budget, cost)) = budget.zip(cost).filter(|(budget, cost)| cost > budget) else { continue };
        if let Some(plan) = plans[*at].take() {
            run.planner.vacate(&plan);
        }
        run.alternatives.iter_mut().filter(|one| one.request == *at).for_each(|one| one.chosen = false);
        dropped.insert(*at, format!("budget: its place beside the others costs {cost}, more than {budget}"));
    }
    dropped
}

/// Plans one request on what is left.
fn by_itself(run: &mut Run<'_>, request: usize) -> Option<Plan> {
    let plan = run.plan(request, false)?;
    run.take(request, &plan);
    Some(plan)
}
