//! How the users of a seed have their batches planned: together, on what their coordinator knows; each request is then submitted with
//! its plan, and planned again alone when that cannot be had.
//!
//! Invariant: planning draws nothing.

use std::collections::BTreeMap;

use broker::{
    batch::{self, Options as BatchOptions, Watch, policy_named},
    negotiation::HandedPlan,
    offline::{Asked, OfflinePlanner, PlanLine},
    plan::PlanOutcome,
    request::{Request, RequestDocument},
    snapshot::{GridSnapshot, SnapshotHost, SnapshotSite},
    time::Span,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    batches::{Batches, Drawn},
    canary::Canary,
    event::Event,
    grid::Grid,
    names,
};

/// Most alternatives of a request.
const ALTERNATIVES: usize = 3;

/// A request of a batch that has a plan.
pub struct Placed {
    /// The number of the request.
    pub number: u64,
    /// With a budget that keeps it within that of the batch.
    pub request: Request,
    pub plan: HandedPlan,
}

/// Plans when batches are handed in, and what of them is cancelled.
pub fn plan_ahead(batches: &Batches, grid: &mut Grid) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!batches.seed);
    for batch in 0..batches.count {
        let at = random.random_range(50..grid.options.faulty_ms);
        grid.after(at, Event::SubmitBatch { batch });
        for number in batches.draw_one(batch).numbers {
            if random.random_range(0..100) < grid.options.cancel_percent {
                grid.after(at + random.random_range(1..8_000), Event::Cancel { number });
            }
        }
    }
}

/// Plans these requests, by their numbers, together on what a node knows.
pub fn place(drawn: &Drawn, grid: &Grid, node: usize, requests: Vec<(u64, Request)>) -> Vec<Placed> {
    let Some(running) = grid.nodes[node].running() else { return Vec::new() };
    let now = grid.clock(node);
    let timed = |(number, request): (u64, Request)| {
        let (earliest, latest) = request.starts(now.utc, Span(3_600)).ok()?;
        let document = RequestDocument { earliest: Some(earliest), latest: Some(latest), ..request.into() };
        Some((number, Request::try_from(document).ok()?))
    };
    let requests: Vec<(u64, Request)> = requests.into_iter().filter_map(timed).collect();
    let (mut hosts, mut uplinks) = (BTreeMap::new(), BTreeMap::new());
    for (_, request) in &requests {
        let found = running.find(&request.widest(), &Default::default(), now).0;
        uplinks.extend(found.uplinks.iter().map(|(site, link)| (site.clone(), link.clone())));
        for found in found.hosts {
            let schedule = found.offered(now.utc).into_owned();
            let host = SnapshotHost { site: found.site, host: found.host, schedule };
            hosts.insert((host.site.clone(), host.host.id.clone()), host);
        }
    }
    let site = |(id, uplink)| SnapshotSite { id, uplink: Some(uplink) };
    let sites = uplinks.into_iter().map(site).collect();
    let snapshot = GridSnapshot { sites, hosts: hosts.into_values().collect() };
    let settings = grid.options.negotiation().planner;
    let planner = OfflinePlanner::new(snapshot, settings, 0, false).asked_at(now.utc);
    let options = BatchOptions {
        order: drawn.order,
        budget: drawn.budget.map(|budget| budget.0),
        alternatives: ALTERNATIVES,
        ..BatchOptions::default()
    };
    let asked = |(number, request): &(u64, Request)| Asked::new(names::request(*number), request);
    let asked: Vec<Asked> = requests.iter().map(asked).collect();
    let Ok(policy) = policy_named(drawn.policy) else { return Vec::new() };
    let Ok(answer) = batch::plan(&*policy, &planner, &asked, &options, Watch::NOBODY) else {
        return Vec::new();
    };
    let forgets = grid.canary == Some(Canary::BatchBudgetForgotten);
    let placed = |((number, request), line): ((u64, Request), PlanLine)| match line.outcome {
        PlanOutcome::Allocated(plan) => {
            // What is planned again costs no more than what was planned here.
            let budget = if drawn.budget.is_some() && !forgets { Some(plan.cost()) } else { request.budget() };
            let request = Request::try_from(RequestDocument { budget, ..request.into() }).ok()?;
            Some(Placed { number, request, plan: HandedPlan::from(plan) })
        }
        PlanOutcome::Rejected(_) => None,
    };
    requests.into_iter().zip(answer.lines).filter_map(placed).collect()
}
