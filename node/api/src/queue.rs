//! The owner's own queue: jobs that the site may move, with where each is planned.

use broker::{
    ids::{HostId, RequestId},
    resources::Amounts,
    time::{Span, Time},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// Body of `POST /v1/local/queue`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobEntries {
    /// Taken in all or none.
    pub jobs: Vec<JobEntry>,
}

/// A job for the owner's own queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobEntry {
    /// Left out, a new name.
    #[schema(value_type = Option<schema::Name>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RequestId>,
    /// How long it runs.
    #[schema(value_type = u64, minimum = 1)]
    pub length_s: Span,
    /// When it should have ended; left out, it is never late.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 253_402_300_799_i64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schema(minimum = 1)]
    pub hosts: u32,
    /// What it takes of each host.
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
    /// Whether it may be stopped while it runs, and begin anew later, where a user's hold finds no room otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preempt: bool,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_one(hosts: &u32) -> bool {
    *hosts == 1
}

/// A job of the owner's own queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    pub id: RequestId,
    pub state: JobState,
    pub arrival: Time,
    #[schema(value_type = u64)]
    pub length_s: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    pub hosts: u32,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
    /// When it began, or is planned to; absent when no hosts are known to become free for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Time>,
    /// Its hosts, or those planned.
    pub on: Vec<HostId>,
    /// Whether it ends after its deadline.
    pub is_late: bool,
    /// Whether it may be stopped while it runs; one that is to be has its end before its length is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preempt: bool,
}

/// Where a job of the own queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The site may still move it.
    Waits,
    Runs,
}

/// Answer of `POST /v1/local/queue`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// In the order in which they begin.
    pub jobs: Vec<JobView>,
}

/// Body of `POST /v1/local/queue/{id}/extend`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobExtension {
    /// How much longer it takes.
    #[schema(value_type = u64, minimum = 1)]
    pub longer_s: Span,
}
