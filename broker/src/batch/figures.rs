//! The last line of a batch: what all of its plans are together.
//!
//! Invariant: `bound` is none unless all requests are placed.

use serde::{Deserialize, Serialize};

use super::{
    apart::ByItself,
    objective::{BatchObjective, cost, host_time, last_ends, since},
    run::Run,
};
use crate::plan::Plan;

/// The objective, what is reached, and what nothing is better than.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectiveLine {
    /// The objective.
    pub kind: BatchObjective,
    /// Of what was placed.
    pub value: i64,
    /// No plan of all requests has a smaller value.
    pub bound: Option<i64>,
}

/// The figures of a batch. Times are seconds after the earliest start of all requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchLine {
    /// The policy.
    pub policy: String,
    /// Requests that have a plan.
    pub placed: usize,
    /// Requests that have none.
    pub postponed: usize,
    /// The latest end.
    pub makespan: i64,
    /// In thousandths of a credit.
    pub cost: u64,
    /// The lengths of all seats, in seconds.
    pub host_time: u64,
    /// The latest ends of all requests together.
    pub finish_sum: i64,
    /// The last ends of all hosts together.
    pub run_time: i64,
    /// What was minimised.
    pub objective: ObjectiveLine,
    /// The budget, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_budget: Option<u64>,
    /// Alternatives found.
    pub alternatives: usize,
    /// What planning took, in microseconds.
    pub us: u64,
    /// Those that the policy could not treat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_itself: Vec<ByItself>,
}

impl BatchLine {
    pub(super) fn new(policy: String, plans: &[Option<Plan>], run: &Run<'_>, bound: Option<i64>, us: u64) -> BatchLine {
        let placed = || plans.iter().flatten();
        let finishes = || placed().map(|plan| since(plan.end(), run.origin));
        let ends = last_ends(placed());
        let kind = run.options.objective;
        let value = kind.of_plans(&placed().collect::<Vec<_>>(), run.origin);
        BatchLine {
            policy,
            placed: placed().count(),
            postponed: plans.len() - placed().count(),
            makespan: finishes().max().unwrap_or(0),
            cost: placed().map(cost).sum(),
            host_time: placed().map(host_time).sum(),
            finish_sum: finishes().sum(),
            run_time: ends.values().map(|end| since(*end, run.origin)).sum(),
            objective: ObjectiveLine { kind, value, bound },
            batch_budget: run.options.budget,
            alternatives: run.alternatives.len(),
            us,
            by_itself: Vec::new(),
        }
    }
}
