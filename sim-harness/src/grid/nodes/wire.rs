//! The documents of a node's local API, as far as the harness reads them. Keys that it does not use are not named here, so that
//! the API may grow.

use std::collections::BTreeMap;

use broker::{
    host::Speed,
    protocol::LedgerVersion,
    resources::{Amounts, Attributes, ResourceName},
    time::Window,
};
use serde::Deserialize;

/// `GET /v1/status`: a node.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    pub site: String,
    /// Addresses that other nodes can dial, with the peer id.
    pub listen: Vec<String>,
    pub known_sites: usize,
    pub ledger_version: LedgerVersion,
    pub counters: BTreeMap<String, u64>,
}

/// A row of `GET /v1/sites`: a site that the node knows.
#[derive(Debug, Clone, Deserialize)]
pub struct SiteRow {
    pub site: String,
    pub this_node: bool,
    /// How many hosts it has.
    pub hosts: usize,
    pub schedule: Freshness,
    /// Version of its ledger that the node knows.
    pub ledger_version: Option<LedgerVersion>,
}

/// `POST /v1/plan`: a plan of which nothing is held.
#[derive(Debug, Deserialize)]
pub struct Plan {
    pub outcome: String,
    /// Hosts that were looked at.
    pub hosts_seen: usize,
}

/// How far a site's schedules are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    Current,
    /// Old or with a gap.
    Stale,
    Unknown,
}

/// A step function as `[time, used]`; 0 before the first step.
pub type Steps = Vec<(i64, u64)>;

/// `GET /v1/ledger`.
#[derive(Debug, Clone, Deserialize)]
pub struct Ledger {
    pub site: String,
    pub ledger_version: LedgerVersion,
    pub hosts: Vec<LedgerHost>,
    pub bookings: Vec<Booking>,
}

/// A host in a ledger.
#[derive(Debug, Clone, Deserialize)]
pub struct LedgerHost {
    pub id: String,
    pub resources: Amounts,
    #[serde(default)]
    pub attributes: Attributes,
    #[serde(default)]
    pub speed: Speed,
    /// All use as the site publishes it.
    pub occupancy: BTreeMap<ResourceName, Steps>,
    /// The owner's own use.
    pub own: BTreeMap<ResourceName, Steps>,
}

/// A hold or a booking in a ledger.
#[derive(Debug, Clone, Deserialize)]
pub struct Booking {
    /// The node that made it.
    pub entry_point: String,
    pub request: String,
    pub state: BookingState,
    /// Whether the site knows the outcome.
    pub settled: bool,
    pub grants: Vec<Grant>,
}

/// A seat of a booking.
#[derive(Debug, Clone, Deserialize)]
pub struct Grant {
    pub host: String,
    pub window: Window,
    pub amounts: Amounts,
}

/// State of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BookingState {
    Held,
    Confirmed,
}

/// `GET /v1/requests/{id}`, or a row of `GET /v1/requests`: a request at its entry point.
#[derive(Debug, Clone, Deserialize)]
pub struct RequestView {
    /// Id in the grid.
    pub id: String,
    pub state: RequestState,
    /// Attempts so far.
    pub attempts: u64,
    /// Attempts that a site refused.
    pub conflicts: u64,
    pub reservation: Option<Reservation>,
    /// Why there is no reservation, once that is known.
    pub reason: Option<Reason>,
}

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    Planning,
    Holding,
    Confirming,
    Confirmed,
    /// Reserved, and its start has passed.
    Active,
    /// It was reserved, and its end has passed.
    Ended,
    /// No placement in the window.
    Rejected,
    /// A policy is against it.
    Refused,
    /// The patience is over, or the grid not reachable.
    Failed,
    Cancelled,
    Cancelling,
    /// Reserved, without hosts that are lost.
    Degraded,
    /// As degraded, and the node looks for other hosts.
    Rebrokering,
    /// Another node is the coordinator.
    HandedOver,
}

impl RequestState {
    /// Whether the user has an acknowledged reservation.
    pub fn is_reserved(self) -> bool {
        matches!(self, RequestState::Confirmed | RequestState::Active | RequestState::Ended)
    }

    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        use RequestState::{Cancelled, Failed, Refused, Rejected};
        self.is_reserved() || matches!(self, Rejected | Refused | Failed | Cancelled)
    }
}

/// What was acknowledged to the user.
#[derive(Debug, Clone, Deserialize)]
pub struct Reservation {
    /// First second.
    pub start: i64,
    /// First second after, on the host that is reserved longest.
    pub end: i64,
    pub hosts: Vec<ReservedHost>,
}

/// A host of a reservation.
#[derive(Debug, Clone, Deserialize)]
pub struct ReservedHost {
    pub site: String,
    /// The site's name for people.
    pub site_name: String,
    pub host: String,
    /// First second after.
    pub end: i64,
    pub amounts: Amounts,
}

/// Why a request was not reserved.
#[derive(Debug, Clone, Deserialize)]
pub struct Reason {
    /// Stable word.
    pub code: String,
    /// For people.
    pub detail: String,
}

/// `GET /v1/requests/{id}/explain`.
#[derive(Debug, Clone, Deserialize)]
pub struct Explanation {
    pub reason: Option<Reason>,
    /// The rounds of planning.
    pub rounds: Vec<Round>,
}

/// A round of planning.
#[derive(Debug, Clone, Deserialize)]
pub struct Round {
    /// Hosts that were looked at.
    pub found_hosts: usize,
    pub known_hosts: usize,
    #[serde(default)]
    pub cut: Vec<Cut>,
}

/// Hosts that one constraint left out.
#[derive(Debug, Clone, Deserialize)]
pub struct Cut {
    /// The constraint, in words.
    pub constraint: String,
    pub hosts: usize,
}
