//! Runs of a batch: how what waits is planned, how often the node does it by itself, and what a run has come to.

use broker::batch::{BatchLine, BatchObjective, Order};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{schema, waiting::WaitingView};

/// Body of `POST /v1/batches/every`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EveryQuestion {
    /// Seconds from the end of one run to the next; none: only when somebody asks.
    #[schema(minimum = 1)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<u64>,
    /// How each is planned.
    #[serde(default)]
    pub how: RunQuestion,
}

/// How often the node runs batches by itself.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunsEvery {
    /// Seconds from the end of one run to the next; none: only when somebody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<u64>,
}

/// Body of `POST /v1/batches/run`: how what waits is planned.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunQuestion {
    /// A policy by its name, such as `in-order`, `slices:K`, `oas` or `colocate:best`; else that of the configuration.
    #[schema(
        pattern = "^(in-order|slices:[1-9][0-9]{0,17}|oas(:slots)?|mesd(:literal)?|pas|cbs|jpr|colocate:(set|partition|best))$"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Whose turn is first.
    #[schema(value_type = schema::BatchOrder)]
    #[serde(default)]
    pub order: Order,
    /// What is least for all together; without it, what the policy looks at, or the sum of the ends.
    #[schema(value_type = Option<schema::BatchObjectiveKind>, nullable = false)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<BatchObjective>,
}

/// What a run has come to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchRun {
    /// Those that waited when it began.
    pub requests: Vec<WaitingView>,
    /// All of them together; none when none could be planned.
    #[schema(value_type = schema::BatchLine)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchLine>,
}
