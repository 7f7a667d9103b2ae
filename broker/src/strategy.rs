//! A strategy decides when and where a request runs: one interface for the node, `kolo plan`, `tables` and `replay`.
//!
//! Invariant: an answer depends on the arguments and on what the strategy was told before; nothing else.

use crate::{
    phases::{self, Candidate, Job, PhaseObserver},
    plan::PlanOutcome,
    request::Effort,
    scan::SlotScan,
};

/// Decides when and where one job runs. A new strategy is one file and one line in a registry.
pub trait Strategy {
    /// The plan, or why there is none. The candidates are ordered by site and name, and could serve the job if they were empty.
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        effort: Effort,
        seed: u64,
        observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome;
}

/// The six phases: the strategy of the product.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases;

impl Strategy for Phases {
    fn plan(
        &mut self,
        job: &Job<'_>,
        candidates: &[Candidate<'_>],
        effort: Effort,
        seed: u64,
        mut observer: &mut dyn PhaseObserver,
    ) -> PlanOutcome {
        phases::plan(job, candidates, effort, seed, &mut observer)
    }
}

/// Makes a strategy for one run.
pub type MakeStrategy = fn() -> Box<dyn Strategy>;

/// The strategy of the product, and the scan that it is compared with, by name.
pub const STRATEGIES: [(&str, MakeStrategy); 3] = [
    ("kolo", || Box::new(Phases)),
    ("scan", || Box::new(SlotScan { shifts: false })),
    ("scan-shift", || Box::new(SlotScan { shifts: true })),
];
