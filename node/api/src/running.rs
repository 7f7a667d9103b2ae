//! What users run on a site's hosts, for its owner.

use broker::{
    ids::{RequestId, SeatNumber},
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of `GET /v1/local/running`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunningList {
    /// The owner's reason for which all commands are stopped; none while they may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub stopped: Option<String>,
    /// What runs, or waits for the word of its user.
    pub running: Vec<RunningView>,
    /// Accounts that have runs at this site, or files open for them.
    pub accounts: Vec<AccountShare>,
    /// Runs of one account that this site keeps whatever others have; it may have more while they need none.
    pub runs_max: usize,
    /// Most streams to the runs of one account.
    pub streams_max: usize,
    /// Most files that the node has open for the ports of the runs of one account.
    pub open_files_max: usize,
}

/// Body of `POST /v1/local/stop`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// True ends all commands of users and lets none start, false lets them start again.
    pub is_stopped: bool,
    /// Reason that users are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// Share of this site that the runs of one account take.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AccountShare {
    /// The key of the account: of its user, or of whom an admin has invited first.
    pub account: String,
    /// Runs that are kept, those included that have ended and whose end nobody has fetched.
    pub runs: usize,
    /// Bytes of the disk that the output of these runs takes.
    pub output_bytes: u64,
    /// Streams to the account's runs; a transfer of files counts as three.
    pub streams: usize,
    /// Listeners for the ports of the account's runs, and connections to these.
    pub open_files: usize,
}

/// A run on a seat of this site.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunningView {
    pub request: RequestId,
    #[schema(value_type = u32)]
    pub seat: SeatNumber,
    /// The number of the run.
    pub run: u64,
    /// The key of its user.
    pub user_key: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its process; none while it waits for the word of its user.
    pub pid: Option<u32>,
    /// When it ends at the latest.
    pub end: Time,
}
