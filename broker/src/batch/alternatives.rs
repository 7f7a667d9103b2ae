//! Plans to choose from: the planner is asked again and again, on what earlier answers leave.
//!
//! Source: the search for alternatives of the cyclic scheme. In rounds, so that no request takes all before another has one; every
//! other round asks by the objective of the batch. Invariant: the snapshot is afterwards what it was; the alternatives of a request differ
//! in start or hosts.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    objective::{cost, host_time},
    run::Run,
};
use crate::{
    ids::RequestId,
    objective::unproven,
    phases::{Job, Windows},
    plan::Plan,
    request::Request,
};

/// One way to serve a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// Which request of the batch.
    pub request: usize,
    /// Its name.
    pub id: RequestId,
    /// The part of the batch that it was planned in, from 0.
    pub slice: usize,
    /// The plan.
    pub plan: Plan,
    /// Whether it is part of the plan of the batch.
    pub chosen: bool,
}

impl Serialize for Alternative {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hosts: Vec<_> = self.plan.seats.iter().map(|seat| seat.host()).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("slice", &self.slice)?;
        map.serialize_entry("start", &self.plan.start)?;
        map.serialize_entry("hosts", &hosts)?;
        map.serialize_entry("cost", &cost(&self.plan))?;
        map.serialize_entry("host_time", &host_time(&self.plan))?;
        map.serialize_entry("finish", &self.plan.end())?;
        map.serialize_entry("chosen", &self.chosen)?;
        map.end()
    }
}

/// Alternatives of these requests, in the order given, that all fit into the snapshot together.
pub(super) fn disjoint(run: &mut Run<'_>, requests: &[usize]) -> Vec<Vec<Plan>> {
    if let [request] = requests
        && let Some(plans) = of_one(run, *request)
    {
        return vec![plans];
    }
    let mut found: Vec<Vec<Plan>> = vec![Vec::new(); requests.len()];
    let mut open: Vec<usize> = (0..requests.len()).collect();
    for round in 0..run.options.alternatives {
        open.retain(|place| {
            // Another plan on the same hosts at the same time would be no choice, also where there is room for both.
            found[*place].iter().for_each(|plan| run.planner.take_whole(plan));
            let planned = run.plan(requests[*place], round % 2 == 1);
            found[*place].iter().for_each(|plan| run.planner.give_back_whole(plan));
            let Some(mut plan) = planned.filter(|plan| !is_among(&found[*place], plan)) else { return false };
            disprove(run, requests[*place], &mut plan);
            run.planner.occupy(&plan);
            found[*place].push(plan);
            true
        });
    }
    found.iter().flatten().for_each(|plan| run.planner.vacate(plan));
    found
}

/// The same for one request, by searches that keep what they know; none where there are none for it.
fn of_one(run: &mut Run<'_>, request: usize) -> Option<Vec<Plan>> {
    let requests = run.requests;
    let [Ok(asked)] = &requests[request].shapes[..] else { return None };
    let asked = asked.unscaled();
    if !Windows::are_of(asked.demand()) {
        return None;
    }
    let planner = run.planner.clone();
    let (job, candidates) = (planner.job(&asked).ok()?, planner.eligible(asked.demand()).ok()?);
    let job = Job { budget: [job.budget, run.budget_left()].into_iter().flatten().min(), ..job };
    let mut jobs = vec![job, Job { objective: run.options.objective.of_request(), ..job }];
    jobs.dedup_by_key(|job| job.objective);
    let mut searches = planner.windows(&jobs, &candidates, &asked)?;
    let mut plans = Vec::new();
    for round in 0..run.options.alternatives {
        if !run.goes_on(request) {
            break;
        }
        run.stopwatch.reset();
        let outcome = searches[round % jobs.len()].find(&mut run.stopwatch);
        let Some(mut plan) = run.found(request, outcome).filter(|plan| !is_among(&plans, plan)) else { break };
        searches.iter_mut().for_each(|search| search.take(&plan));
        disprove(run, request, &mut plan);
        plans.push(plan);
    }
    Some(plans)
}

/// A plan was made beside others that may not be chosen, or for the batch: nothing is proven of it for its own request.
fn disprove(run: &Run<'_>, request: usize, plan: &mut Plan) {
    let kind = run.requests[request].request().map(Request::objective).unwrap_or_default();
    plan.objective = unproven(kind, plan.start, &plan.seats);
    plan.start_proven = false;
}

/// Whether a plan has the start and the hosts of one of these.
pub(super) fn is_among(plans: &[Plan], plan: &Plan) -> bool {
    let hosts =
        |plan: &Plan| plan.seats.iter().map(|seat| (seat.site.clone(), seat.host().clone())).collect::<BTreeSet<_>>();
    plans.iter().any(|other| other.start == plan.start && hosts(other) == hosts(plan))
}

/// Alternatives of one request by itself, which all fit into the snapshot together.
pub(super) fn own(run: &mut Run<'_>, request: usize) -> Vec<Plan> {
    disjoint(run, &[request]).pop().unwrap_or_default()
}
