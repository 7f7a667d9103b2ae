//! What a policy of batches is, and what it is told.

use super::{choice::REQUESTS_MAX, objective::BatchObjective, order::Order, run::Run};
use crate::plan::Plan;

/// Decides what of each request of a batch is taken. A new policy is one file and one line in the registry.
pub trait Policy {
    /// Its name, with what it was asked to do.
    fn name(&self) -> String;

    /// What it makes least, when it is always the same.
    fn objective(&self) -> Option<BatchObjective> {
        None
    }

    /// Whether it can treat these requests.
    ///
    /// # Errors
    /// [`BatchError::Refused`], which names what it cannot treat.
    fn check(&self, _: &Run<'_>) -> Result<(), BatchError> {
        Ok(())
    }

    /// The plans, by request; none for a request that is postponed. Together they fit into the snapshot, and keep the budget.
    fn plan(&self, run: &mut Run<'_>) -> Vec<Option<Plan>>;
}

/// How a batch is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whose turn it is first.
    pub order: Order,
    /// What is best for the batch.
    pub objective: BatchObjective,
    /// What all plans cost together is at most this, in thousandths of a credit.
    pub budget: Option<u64>,
    /// Most alternatives of a request, at least 1.
    pub alternatives: usize,
    /// Whether alternatives of different requests may collide.
    pub overlap: bool,
}

impl Default for Options {
    /// The source finds 11 to 13 alternatives a request where hosts are plenty.
    fn default() -> Options {
        let (order, objective) = (Order::default(), BatchObjective::default());
        Options { order, objective, budget: None, alternatives: 10, overlap: false }
    }
}

/// Why a batch cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Nothing to do, and so no earliest start to measure from.
    #[error("a batch has at least one request; there is none")]
    NoRequests,
    /// Sums would not be exact any more.
    #[error("a batch has at most {REQUESTS_MAX} requests; there are {count}")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// The policy cannot treat something.
    #[error("{policy}: {what}")]
    Refused {
        /// The policy.
        policy: String,
        /// What it cannot treat.
        what: String,
    },
}
