//! What is on disk of one request that waits for a batch.
//!
//! Invariant: its id is the one that its user has signed, so that it becomes one request at most, whatever crashes between.

use broker::{
    ids::RequestId,
    request::Request,
    time::Time,
    trust::{Authorization, PublicKey},
};
use serde::{Deserialize, Serialize};

/// What is on disk of one such request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingRecord {
    /// Its name in the grid.
    pub id: RequestId,
    /// Counts all that were ever added here: who came first.
    pub number: u64,
    /// Who asks, for people.
    pub user: String,
    /// On whose account it is.
    pub account: PublicKey,
    /// The user of this node for whom its operator has signed, or who has handed it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_for: Option<String>,
    pub request: Request,
    /// As its user, or the node's operator, has signed it.
    pub authorization: Authorization,
    /// When it came, Unix milliseconds.
    pub added_ms: u64,
    /// It starts by then, or not at all.
    pub latest: Time,
    /// Batches that have postponed it.
    #[serde(default)]
    pub postponed: u32,
    /// Why the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// None as long as it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<WaitingEnd>,
}

/// How and when its wait has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingEnd {
    pub at: Time,
    pub how: HowEnded,
}

/// How a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HowEnded {
    /// It is a request of this node now.
    Submitted,
    /// It could start no more.
    Passed,
    /// The grid or this node does not take it any more; [`WaitingRecord::reason`] says why.
    Refused,
}
