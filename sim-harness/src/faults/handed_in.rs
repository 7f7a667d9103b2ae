//! Plans that users hand in with their requests: made on what another node knows, as `kolo plan` does there.
//!
//! Invariant: draws nothing, so that seeds without such plans run as they would.

use broker::{
    negotiation::{HandedPlan, HandedSeat, PlanMisfit},
    phases::{Candidate, Job},
    plan::{Plan, PlanOutcome},
    request::Effort,
    strategy::plan_best,
    time::Time,
    trust::RequestStatement,
};

use super::{grid::Grid, node::Running};

/// The plan of the last node that runs, as the coordinator of the request takes it; none when that node has none. A plan that does
/// not fit its own demand is a violation.
pub fn plan(grid: &mut Grid, statement: &RequestStatement, starts: (Time, Time)) -> Option<Plan> {
    let node = (0..grid.nodes.len()).rev().find(|node| grid.nodes[*node].running().is_some())?;
    let (now, running) = (grid.clock(node), grid.nodes[node].running()?);
    let request = &statement.request;
    let found = running.find(&request.widest(), &Default::default(), now).0.hosts;
    let candidates: Vec<Candidate<'_>> = found
        .iter()
        .map(|found| Candidate { site: &found.site, host: &found.host, schedule: &found.schedule })
        .collect();
    let jobs = Job::of_shapes(request, starts).map(|(shape, job)| (shape, Job { asked_at: Some(now.utc), ..job }));
    let PlanOutcome::Allocated(plan) = plan_best(jobs, &candidates, Effort::Fast, 0, &mut ()) else { return None };
    match checked(grid, node, statement, starts.1, HandedPlan::from(plan)) {
        Ok(plan) => Some(plan),
        Err(misfit) => {
            grid.violate("a plan fits its demand", Some(&statement.id), misfit.to_string());
            None
        }
    }
}

/// A plan as the coordinator of the request takes it, with what its hosts cost as far as this node knows.
pub fn checked(
    grid: &Grid,
    node: usize,
    statement: &RequestStatement,
    latest: Time,
    plan: HandedPlan,
) -> Result<Plan, PlanMisfit> {
    let now = grid.clock(node);
    let demand = statement.request.widest();
    let find = |running: &Running| running.find(&demand, &Default::default(), now).0.hosts;
    let found = grid.nodes[node].running().map(find).unwrap_or_default();
    let agreed = |seat: &HandedSeat, window| {
        let host = found.iter().find(|found| found.site == seat.site && found.host.id == seat.host);
        host.map(|found| found.host.tariff.agreement(Some(now.utc), window, &seat.amounts)).unwrap_or_default()
    };
    plan.check(statement, latest, agreed)
}
