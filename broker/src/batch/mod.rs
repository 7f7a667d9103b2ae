//! A batch: requests that are planned together on one snapshot (`formats.md`, version 2, section "Batch").
//!
//! Source: chapter 2 of the dissertation on windows of slots (cyclic scheme, slicing). A [`policy::Policy`] decides what of each request
//! is taken: one file each below `policies`, and a line in [`POLICIES`]; what it cannot treat is planned by itself ([`ByItself`]). Invariant: all plans of an answer fit into the snapshot together.

mod alternatives;
mod apart;
#[cfg(test)]
mod apart_tests;
pub mod choice;
#[cfg(test)]
mod cluster_cases_tests;
mod clusters;
mod colocation;
mod figures;
pub mod multicluster;
mod objective;
mod order;
#[cfg(test)]
mod order_tests;
mod policies;
mod policy;
mod room;
mod run;
#[cfg(test)]
mod tests;
mod watch;

pub use self::{
    alternatives::Alternative,
    apart::ByItself,
    colocation::Thresholds,
    figures::{BatchLine, ObjectiveLine},
    objective::BatchObjective,
    order::{Order, Turn},
    policies::{ColocationForm, POLICIES, PolicyError, colocation, pairings_tried, policy_named},
    policy::{BatchError, Given, Options, Policy},
    run::Run,
    watch::{Progress, Watch},
};
use crate::{
    cost::Cost,
    offline::{Asked, OfflinePlanner, PlanLine},
    plan::{Plan, PlanOutcome, Rejection},
    reason::{Absence, Reason},
};

/// What came of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchAnswer {
    /// One line a request, in the order of the requests.
    pub lines: Vec<PlanLine>,
    /// The figures of all of them.
    pub batch: BatchLine,
    /// Everything that was found, in the order in which it was found.
    pub alternatives: Vec<Alternative>,
}

/// Plans a batch on the planner's snapshot, which stays as it is. Orders look at the first shape of a request.
///
/// # Errors
/// [`BatchError`] when there are no requests, too many, or options that the policy does not look at.
pub fn plan(
    policy: &dyn Policy,
    planner: &OfflinePlanner,
    requests: &[Asked],
    options: &Options,
    watch: Watch<'_>,
) -> Result<BatchAnswer, BatchError> {
    if requests.is_empty() {
        return Err(BatchError::NoRequests);
    }
    if requests.len() > choice::REQUESTS_MAX {
        return Err(BatchError::TooMany { count: requests.len() });
    }
    let started = (watch.clock)();
    let options = &Options { objective: policy.objective().unwrap_or(options.objective), ..*options };
    let mut run = Run::new(planner, requests, options, watch);
    policy.check(&run)?;
    let (plans, by_itself) = apart::plan(policy, &mut run);
    let phases_us = run.phases_us.clone();
    let bound = if plans.iter().all(Option::is_some) { run.proven.or_else(|| run.bound(planner)) } else { None };
    let us = (watch.clock)().saturating_sub(started).as_micros() as u64;
    let batch = BatchLine { by_itself, ..BatchLine::new(policy.name(), &plans, &run, bound, us) };
    let Run { alternatives, reasons, .. } = run;
    let mut found = vec![(0_u64, None::<Cost>); requests.len()];
    for Alternative { request, plan, .. } in &alternatives {
        let (count, cheapest) = &mut found[*request];
        *count += 1;
        *cheapest = Some(cheapest.map_or(plan.cost(), |least: Cost| least.min(plan.cost())));
    }
    let spent: Cost = plans.iter().flatten().map(Plan::cost).sum();
    let left = options.budget.map(|budget| Cost(budget.saturating_sub(spent.0)));
    let too_dear = |request: usize| left.zip(found[request].1).filter(|(left, cheapest)| cheapest > left);
    let outcome = |request: usize, plan: Option<Plan>| match plan {
        Some(plan) => PlanOutcome::Allocated(plan),
        None => {
            let because = match too_dear(request) {
                Some((left, cheapest)) => Some(Absence::Spent { left, cheapest }),
                None => reasons[request].clone(),
            };
            let reason = Reason::Postponed { alternatives: found[request].0, because };
            PlanOutcome::Rejected(Rejection { reason, start_proven: false })
        }
    };
    let line = |(request, plan): (usize, Option<Plan>)| {
        let (asked, outcome) = (&requests[request], outcome(request, plan));
        PlanLine { id: asked.id.clone(), shape: asked.shape_of(&outcome), outcome, phases_us: phases_us[request] }
    };
    let lines = plans.into_iter().enumerate().map(line).collect();
    Ok(BatchAnswer { lines, batch, alternatives })
}
