//! Roomiest hosts first, the worked example of docs/dev/placement-policies.md: at the earliest start that works, the hosts that have
//! the largest part of themselves free.
//!
//! Invariant: no search. Where the roomiest hosts lack what is asked in sum, the start is passed over, even if others
//! would do.

use broker::{
    phases::{Candidate, Job, PhaseObserver, plan_on},
    plan::PlanOutcome,
    request::Effort,
    strategy::Strategy,
};

use super::{Asked, FreeHost};

/// The strategy.
#[derive(Debug)]
pub struct Roomiest;

impl Strategy for Roomiest {
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        _: Effort,
        _: u64,
        _: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        let asked = Asked { job: *job, candidates };
        let plan = asked.starts().into_iter().find_map(|start| {
            let mut hosts = asked.free_at(start);
            hosts.sort_by(|a, b| room(b).total_cmp(&room(a)));
            hosts.truncate(job.demand.seats());
            let chosen: Vec<Candidate<'_>> = hosts.iter().map(|host| candidates[host.at]).collect();
            plan_on(job, &chosen, start)
        });
        plan.map_or_else(|| PlanOutcome::unexplained(job.earliest, job.demand.seats()), PlanOutcome::Allocated)
    }
}

/// The least free part of any resource.
fn room(host: &FreeHost) -> f64 {
    let parts = host.free.iter().zip(&host.capacity).map(|(free, capacity)| *free as f64 / (*capacity).max(1) as f64);
    parts.fold(1.0, f64::min)
}
