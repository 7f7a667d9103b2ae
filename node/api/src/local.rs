//! The owner's own work, and what users have of the owner's site.

use broker::{
    ids::{HostId, RequestId},
    resources::Amounts,
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{queue::JobView, schema};

/// Body of `POST /v1/local`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalEntry {
    /// May be left out at a site with one host; `uplink` for the site's link to others, which has `mbps`.
    #[schema(value_type = Option<schema::Name>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostId>,
    #[schema(value_type = i64, minimum = 0, maximum = 253_402_300_799_i64)]
    pub start: Time,
    /// Behind the start.
    #[schema(value_type = i64, minimum = 0, maximum = 253_402_300_799_i64)]
    pub end: Time,
    /// What the work takes; left out, the whole host.
    #[schema(value_type = Option<schema::Amounts>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amounts: Option<Amounts>,
}

/// The owner's own work.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LocalView {
    pub id: RequestId,
    pub host: Option<HostId>,
    pub start: Time,
    pub end: Time,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
}

/// Answer of `GET /v1/local`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LocalList {
    /// In the order of the names; a job of the own queue that runs is not among them.
    pub local: Vec<LocalView>,
    /// The own queue, in the order in which its jobs begin.
    pub queue: Vec<JobView>,
    /// What is promised to users of the grid, seat by seat.
    pub promised: Vec<PromiseView>,
    /// Whether this site promises nothing more.
    pub is_draining: bool,
    /// What is known of the feed of own work; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedView>,
}

/// A host of this site that a user has, or what the user's hosts may load its uplink with: `uplink`, with `mbps`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PromiseView {
    pub request: RequestId,
    pub user: String,
    pub host: HostId,
    pub start: Time,
    pub end: Time,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
}

/// The feed of own work.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct FeedView {
    /// When it last reported.
    pub heard: Option<Time>,
    /// Why its last run was of no use; what it reported before stays.
    pub failure: Option<String>,
    /// Whether the site promises nothing until a run is of use, since none has been since the node has started.
    pub is_awaited: bool,
    /// Entries that stand.
    pub entries: usize,
    /// Work on hosts that this site does not offer, or that is over.
    pub elsewhere: usize,
    /// Work of which a part was promised to others before.
    pub short: usize,
    /// Work of which not all could be entered: too much of it, or too far ahead; and jobs that no hosts could hold.
    pub left_out: usize,
    /// Jobs that wait.
    pub queued: usize,
}

/// What an owner has taken back.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TakenBack {
    /// What was promised, from now on free.
    pub promised: Vec<PromiseView>,
}
