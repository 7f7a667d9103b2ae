//! Requests that are reserved as a whole or not at all.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{request_view::RequestView, schema};

/// Body of `POST /v1/batches/submit`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TogetherQuestion {
    /// As for `POST /v1/requests`, each with its plan, and none `replans`.
    #[schema(value_type = Vec<schema::Submission>, min_items = 1, max_items = 100, required)]
    #[serde(default)]
    pub requests: Vec<Value>,
}

/// Requests that are reserved as a whole or not at all.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TiedRequests {
    /// In the order of the call.
    pub requests: Vec<RequestView>,
}
