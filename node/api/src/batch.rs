//! A batch on the live view: requests that are planned together, and nothing is held.

use broker::{
    batch::{BatchLine, BatchObjective, Order},
    request::RequestDocument,
    trust::Authorization,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    plan::{LivePlan, UsedSchedule},
    schema,
};

/// Most requests of a live batch.
pub const REQUESTS_MAX: usize = 1_000;

fn one_slice() -> String {
    "slices:1".to_owned()
}

/// Body of `POST /v1/batches/plan`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchQuestion {
    /// The requests; they take each other into account.
    #[schema(value_type = Vec<schema::Request>, min_items = 1, max_items = 1000)]
    pub requests: Vec<RequestDocument>,
    /// A policy by its name, such as `in-order`, `slices:K`, `oas` or `colocate:best`.
    #[schema(
        default = "slices:1",
        pattern = "^(in-order|slices:[1-9][0-9]{0,17}|oas(:slots)?|mesd(:literal)?|pas|cbs|jpr|colocate:(set|partition|best))$"
    )]
    #[serde(default = "one_slice")]
    pub policy: String,
    /// Whose turn is first.
    #[schema(value_type = schema::BatchOrder)]
    #[serde(default)]
    pub order: Order,
    /// What is least for all together; without it, what the policy looks at, or the sum of the ends.
    #[schema(value_type = Option<schema::BatchObjectiveKind>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<BatchObjective>,
    /// All plans together cost at most this, in thousandths of a credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Most alternatives looked for of each request; fewer for a large batch.
    #[schema(minimum = 1, maximum = 1000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternatives: Option<usize>,
    /// Whether alternatives of different requests may take the same hosts; what is chosen does not.
    #[serde(default)]
    pub overlap: bool,
    /// Any signed request of the user for whom it is asked; the node's operator when absent.
    #[schema(value_type = Option<schema::Authorization>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Authorization>,
    /// So many of the requests, the first, come before the others in every order: an earlier batch has postponed them.
    #[schema(maximum = 1000)]
    #[serde(default)]
    pub first: usize,
}

/// The plans of a batch; nothing is held.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchPlans {
    /// One a request, in their order.
    pub plans: Vec<LivePlan>,
    /// All of them together.
    #[schema(value_type = schema::BatchLine)]
    pub batch: BatchLine,
    /// Of every site whose hosts were looked at, taken or not.
    pub schedules: Vec<UsedSchedule>,
}
