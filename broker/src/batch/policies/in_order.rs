//! `in-order`: one request after the other, each by its own objective on what those before it leave.

use std::collections::BTreeMap;

use super::PolicyError;
use crate::{
    batch::{Order, objective::cost, order::ordered, policy::Policy, run::Run},
    ids::{HostId, SiteId},
    objective::unproven,
    plan::Plan,
    request::ObjectiveKind,
    time::Time,
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

    fn ignores(&self) -> &'static [&'static str] {
        &["alternatives", "overlap"]
    }

    fn plan(&self, run: &mut Run<'_>) -> Vec<Option<Plan>> {
        let mut plans = vec![None; run.requests.len()];
        let mut last_ends = BTreeMap::new();
        let is_packed = matches!(run.options.order, Order::Lpt | Order::Hdf);
        for request in ordered(run) {
            let plan = if is_packed { packed(run, request, &last_ends) } else { run.plan(request, false) };
            let Some(plan) = plan else { continue };
            for seat in &plan.seats {
                let end = last_ends.entry((seat.site.clone(), seat.host().clone())).or_insert(seat.window.end);
                *end = seat.window.end.max(*end);
            }
            run.take(request, &plan);
            plans[request] = Some(plan);
        }
        plans
    }
}

/// As the source's LJF and HDF: at the earliest start, of the hosts that are free those whose last seat ends latest.
fn packed(run: &mut Run<'_>, request: usize, last_ends: &BTreeMap<(SiteId, HostId), Time>) -> Option<Plan> {
    let mut first = run.plan_by(request, |job| job.objective = ObjectiveKind::Start)?;
    let asked = run.requests[request].shapes.get(first.shape.0 as usize)?.as_ref().ok()?;
    first.objective = unproven(asked.objective(), first.start, &first.seats);
    // Totals, a limit of sites or a budget may need other hosts.
    let packed = run.planner.packed(asked, first.start, last_ends);
    let is_paid = |plan: &Plan| run.left.is_none_or(|left| cost(plan) <= left);
    packed.filter(is_paid).map(|plan| Plan { shape: first.shape, ..plan }).or(Some(first))
}
