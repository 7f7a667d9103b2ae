//! What a node knows of the grid.

use std::collections::BTreeMap;

use broker::{
    cost::PriceList,
    host::Speed,
    ids::{HostId, SiteId},
    protocol::LedgerVersion,
    resources::{Amounts, Attributes},
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    prices::{ConditionsView, NextPrices},
    schema,
};

/// Name and version of this program.
pub const SOFTWARE: &str = concat!("kolo ", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub site: SiteId,
    pub name: String,
    pub grid: String,
    pub grid_form: String,
    pub software: String,
    pub started: u64,
    pub api: String,
    /// The program that has the port of `api` in the node's place; none when the node has it. Local callers have the socket, and the node takes the
    /// port as soon as it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub api_holder: Option<String>,
    /// The program that had the usual port of the API when the node started, which has another one for that; none where the node has the usual
    /// one, or its owner has chosen one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub api_displaced_by: Option<String>,
    pub listen: Vec<String>,
    pub peers: usize,
    pub known_sites: usize,
    pub known_hosts: usize,
    pub active_requests: usize,
    /// Whether this site promises nothing more.
    pub is_draining: bool,
    /// The owner's reason for which all commands of users are stopped; none while they may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub stopped: Option<String>,
    /// Whether this site promises nothing new because its disk is full; what is promised stands.
    #[serde(default)]
    pub lacks_room: bool,
    pub ledger_version: LedgerVersion,
    pub bans: Vec<BanView>,
    /// Sites that speak another version of the protocol between nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<ApartView>,
    /// From when on others are told more than is used of this site's hosts, because its schedules have more steps than are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub coarse_from: Option<Time>,
    /// What peers say this node's address is, most of them first.
    pub seen_as: Vec<String>,
    /// None when no message of another site has come lately.
    pub clock: Option<ClockView>,
    /// Seconds by which this machine's clock is ahead of the time that the node believes; below zero when it is behind. Nothing is
    /// promised, forgotten or ended by a clock with such a doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_s: Option<i64>,
    /// Events for which the owner's hook has failed to the last try, oldest first.
    pub failed_activations: Vec<FailedActivation>,
    pub counters: BTreeMap<String, u64>,
}

/// The clocks of other sites beside this machine's.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClockView {
    /// Sites whose signed messages tell their time.
    pub sites: usize,
    /// How far the clock in the middle of theirs is ahead of this machine's; below zero when it is behind.
    pub ahead_ms: i64,
    /// Whether that is so far that reservations would begin and end at the wrong time here.
    #[serde(default)]
    pub is_off: bool,
}

/// What other sites say of the way to this node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReachView {
    /// Sites that have tried to open a connection to this node, at the addresses that it tells.
    pub asked: usize,
    /// Those of them that could.
    pub reached: usize,
}

/// How fast the link between this site and another is, beside what is configured.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// To the other site, as that one has clocked it.
    pub to_mbps: u64,
    /// From it.
    pub from_mbps: u64,
    /// What this site's uplink carries, if it has a limit.
    pub uplink_mbps: Option<u64>,
    /// The same of the other site.
    pub their_uplink_mbps: Option<u64>,
}

/// A peer that this node refuses to talk to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BanView {
    pub site: SiteId,
    pub why: String,
    pub until: Time,
    pub times: u32,
}

/// A site that speaks another version of the protocol between nodes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ApartView {
    pub site: SiteId,
    /// Which of the two programs is too old, and what to do.
    pub why: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SiteList {
    pub sites: Vec<SiteView>,
    pub bans: Vec<BanView>,
    /// Sites that speak another version of the protocol between nodes; nothing else is known of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<ApartView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SiteView {
    pub site: SiteId,
    pub name: String,
    pub this_node: bool,
    pub hosts: usize,
    pub advert_age_s: u64,
    pub expires_in_s: u64,
    pub schedule: ScheduleState,
    pub ledger_version: Option<LedgerVersion>,
    pub schedule_age_s: Option<u64>,
    /// Why the schedule is not current, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub schedule_trouble: Option<String>,
    /// From when on hosts look busier than they are, because the site has more steps than are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub coarse_from: Option<Time>,
    pub addresses: Vec<String>,
    /// Its link to all others, if that has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<UplinkView>,
}

/// A site's link to all others.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UplinkView {
    /// What it carries.
    pub mbps: u64,
    /// What of that is free now; none when the site's schedules are not known.
    pub free_now_mbps: Option<u64>,
}

/// What is known of a site's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleState {
    /// As it is, or was a short while ago.
    Current,
    /// Changes are known to be missing, or it is old.
    Stale,
    /// Never received.
    Unknown,
}

impl ScheduleState {
    /// The state's name, as in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            ScheduleState::Current => "current",
            ScheduleState::Stale => "stale",
            ScheduleState::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HostList {
    pub hosts: Vec<HostView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    pub site: SiteId,
    pub site_name: String,
    pub host: HostId,
    #[schema(value_type = schema::Amounts)]
    pub resources: Amounts,
    pub attributes: Attributes,
    /// Thousandths of the reference speed; 1000 when it is left out.
    #[serde(default, skip_serializing_if = "Speed::is_reference")]
    #[schema(value_type = u32)]
    pub speed: Speed,
    /// For a start now: thousandths of a credit for a core, a GiB, or one of anything else, for an hour. What is not named is free.
    #[serde(default, skip_serializing_if = "PriceList::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, u32>)]
    pub prices: PriceList,
    /// The next change of the prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_prices: Option<NextPrices>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<ConditionsView>,
    #[schema(value_type = Option<schema::Amounts>)]
    pub free_now: Option<Amounts>,
    pub schedule_age_s: Option<u64>,
}

/// An event that was given up, as people see it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailedActivation {
    pub booking: String,
    pub request: String,
    pub event: String,
    /// When it was given up (Unix seconds).
    pub at: i64,
    /// How the last run failed.
    pub why: String,
}
