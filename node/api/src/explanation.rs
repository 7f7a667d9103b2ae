//! Why a request was answered as it was: what each round found, and what each asked site said.

use broker::{
    ids::{RequestId, SiteId},
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request_view::{ReasonView, RequestState};

/// Answer of `GET /v1/requests/{id}/explain`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub id: RequestId,
    pub user: String,
    pub state: RequestState,
    pub reason: Option<ReasonView>,
    /// Which of its shapes and factors was chosen, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What the prices and the budget have to do with it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    pub rounds: Vec<RoundView>,
    pub attempts: Vec<AttemptView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RoundView {
    pub multiplier: u32,
    pub asked_hosts: usize,
    pub found_hosts: usize,
    pub known_hosts: usize,
    pub without_schedule: usize,
    /// Hosts that fit, and whose schedules are not known and were not asked for.
    #[serde(default)]
    pub left_out: usize,
    pub cut: Vec<CutView>,
    /// `planned` or `rejected`.
    pub outcome: String,
    pub start: Option<Time>,
    pub detail: String,
    /// What sites said that the plan would cost their own jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotes: Vec<QuoteView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QuoteView {
    pub site: SiteId,
    pub site_name: String,
    pub answer: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CutView {
    pub constraint: String,
    pub hosts: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    pub attempt: u32,
    pub start: Time,
    pub sites: Vec<SiteAnswerView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SiteAnswerView {
    pub site: SiteId,
    pub site_name: String,
    pub hosts: usize,
    pub answer: String,
    pub detail: Option<String>,
    pub milliseconds: u64,
}
