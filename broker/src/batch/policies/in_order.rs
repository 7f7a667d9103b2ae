//! `in-order`: one request after the other, each by its own objective on what those before it leave.

use super::PolicyError;
use crate::{
    batch::{objective::cost, order::ordered, policy::Policy, run::Run},
    plan::Plan,
};

struct InOrder;

/// Makes the policy.
///
/// # Errors
/// It takes nothing behind its name.
pub(super) fn make(parameter: Option<&str>) -> Result<Box<dyn Policy>, PolicyError> {
    match parameter {
        None => Ok(Box::new(InOrder)),
        Some(got) => Err(PolicyError::Parameter { policy: "in-order", expected: "no colon", got: got.to_owned() }),
    }
}

impl Policy for InOrder {
    fn name(&self) -> String {
        "in-order".to_owned()
    }

    fn plan(&self, run: &mut Run<'_>) -> Vec<Option<Plan>> {
        let mut plans = vec![None; run.requests.len()];
        let mut left = run.options.budget;
        for request in ordered(run) {
            let Some(plan) = run.plan(request, false) else { continue };
            run.planner.occupy(&plan);
            left = left.map(|left| left.saturating_sub(cost(&plan)));
            run.note(request, 0, &plan, true);
            plans[request] = Some(plan);
        }
        plans
    }
}
