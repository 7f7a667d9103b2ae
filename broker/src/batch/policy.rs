//! What a policy of batches is, and what it is told.

use std::collections::BTreeMap;

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

    /// The options, by their names in the format, that are nothing to it; with `shapes`, a request that has any is planned by itself.
    fn ignores(&self) -> &'static [&'static str] {
        &[]
    }

    /// What of which of these requests it cannot treat; they are planned by themselves.
    fn untreated(&self, _: &Run<'_>, _: &[usize]) -> BTreeMap<usize, String> {
        BTreeMap::new()
    }

    /// Whether it can treat such a batch at all.
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
    /// So many requests, the first of the batch, come before all others in every order: an earlier batch has postponed them. Of the
    /// policies, those that place all requests at once do not look at it.
    pub first: usize,
}

impl Default for Options {
    /// The source finds 11 to 13 alternatives a request where hosts are plenty.
    fn default() -> Options {
        let (order, objective) = (Order::default(), BatchObjective::default());
        Options { order, objective, budget: None, alternatives: 10, overlap: false, first: 0 }
    }
}

/// What is said beside the policy; the rest is as [`Options::default`] has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given {
    /// Whose turn it is first.
    pub order: Option<Order>,
    /// What is best for the batch.
    pub objective: Option<BatchObjective>,
    /// See [`Options::budget`].
    pub budget: Option<u64>,
    /// See [`Options::alternatives`].
    pub alternatives: Option<usize>,
    /// See [`Options::overlap`].
    pub overlap: bool,
}

impl Given {
    /// The options for a policy.
    ///
    /// # Errors
    /// [`BatchError::Ignored`] names what is nothing to the policy.
    pub fn options(self, policy: &dyn Policy) -> Result<Options, BatchError> {
        let own = policy.objective();
        let is_other = self.objective.is_some_and(|asked| own.is_some_and(|own| own != asked));
        let said =
            [("order", self.order.is_some()), ("alternatives", self.alternatives.is_some()), ("overlap", self.overlap)];
        let ignored = said.into_iter().filter(|(name, is_said)| *is_said && policy.ignores().contains(name));
        if let Some(option) = ignored.map(|(name, _)| name).chain(is_other.then_some("objective")).next() {
            return Err(BatchError::Ignored { policy: policy.name(), option });
        }
        let default = Options::default();
        Ok(Options {
            order: self.order.unwrap_or(default.order),
            objective: self.objective.unwrap_or(default.objective),
            budget: self.budget,
            alternatives: self.alternatives.unwrap_or(default.alternatives),
            overlap: self.overlap,
            first: 0,
        })
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
    /// Something is asked for that the policy does not look at.
    #[error("the policy {policy} does not look at {option}; leave that out")]
    Ignored {
        /// The policy.
        policy: String,
        /// The option, by its name in the format.
        option: &'static str,
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
