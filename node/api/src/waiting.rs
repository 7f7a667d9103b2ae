//! Requests that wait for a batch, or have waited.

use broker::{
    ids::RequestId,
    request::{Request, RequestDocument},
    scale::Factor,
    time::Time,
    trust::Authorization,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{request_view::RequestState, schema};

/// Body of `POST /v1/batches/waiting`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddQuestion {
    /// The node signs these for its operator. Each says what it may cost (`budget`).
    #[schema(value_type = Vec<schema::Request>, max_items = 1000)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestDocument>,
    /// Their users have signed these. Each says what it may cost (`budget`).
    #[schema(value_type = Vec<schema::Authorization>, max_items = 1000)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed: Vec<Authorization>,
}

/// Requests that wait for a batch, or have waited lately.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WaitingList {
    /// Those that wait, in the order in which they are planned, then the others.
    pub requests: Vec<WaitingView>,
    /// Seconds from one run of the node to the next; none: it runs none by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<u64>,
}

/// A request that waits for a batch, or has waited.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WaitingView {
    pub id: RequestId,
    pub label: Option<RequestId>,
    pub user: String,
    pub state: WaitingState,
    /// The request's own state, once it is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<RequestState>,
    /// The factor by which it is scaled, in thousandths, once it is reserved, where it is moldable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, nullable = false)]
    pub scale: Option<Factor>,
    pub added_ms: u64,
    /// It starts by then, or not at all.
    pub latest: Time,
    /// Batches that have postponed it.
    pub postponed: u32,
    /// Why it was postponed last, refused, or not reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[schema(value_type = schema::Request)]
    pub request: Request,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingState {
    /// No batch has planned it yet.
    Waiting,
    /// It found no place, and waits for the next batch.
    Postponed,
    /// It is a request of this node now.
    Submitted,
    /// It could start no more.
    Passed,
    /// The grid or this node does not take it any more.
    Refused,
}
