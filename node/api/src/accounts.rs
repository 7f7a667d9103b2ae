//! What the use of hosts costs: what a site has earned, and what requests of a node have spent.

use broker::{
    cost::Cost,
    ids::{RequestId, SiteId},
    time::Window,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// Answer of `GET /v1/accounts`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Accounts {
    /// What bookings of this site have cost their users.
    pub earned: Vec<AccountLine>,
    /// What requests of this node have cost, site by site.
    pub spent: Vec<AccountLine>,
    /// What was reserved of this site's hosts and what commands have used of it, where it runs commands.
    #[serde(default)]
    pub used: Vec<UsedLine>,
    /// Whether there are more lines than these.
    pub is_cut: bool,
}

/// A part of a reservation at one site.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReservedPart {
    pub user: String,
    pub site: SiteId,
    pub site_name: String,
    pub request: RequestId,
    #[schema(value_type = schema::Window)]
    pub window: Window,
    pub seats: u32,
}

/// One user's reservation at this site: the time reserved until now, or until its end, and the time used.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UsedLine {
    pub part: ReservedPart,
    /// Commands that have ended.
    pub runs: u64,
    /// Seconds of its seats together; seats that the owner took away do not count.
    pub reserved_s: u64,
    /// Milliseconds of its seats together in which such a command ran.
    pub used_ms: u64,
    /// Milliseconds on processors.
    pub cpu_ms: u64,
}

/// What a part of a reservation costs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AccountLine {
    pub part: ReservedPart,
    /// For how much it was reserved, in thousandths of a credit.
    #[schema(value_type = u64)]
    pub agreed: Cost,
    /// What of that is to be paid, as far as it is known.
    #[schema(value_type = u64)]
    pub charged: Cost,
    pub state: AccountState,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountState {
    /// Reserved, and not over.
    Stands,
    /// Over: it is paid, used or not.
    Over,
    /// Given back before its end.
    Cancelled,
    /// Given back, and the site has not said yet what that costs: at most this.
    Open,
}
