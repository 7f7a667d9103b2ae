//! What the harness reads of a node's local API. Keys that it does not use are not named here, so that the API may grow.

use std::collections::BTreeMap;

use broker::{
    protocol::{Grant, LedgerVersion},
    resources::{Amounts, Attributes, ResourceName},
    time::Window,
};
use serde::Deserialize;

/// `GET /v1/status`.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// The node's own site.
    pub site: String,
    /// Addresses that other nodes can dial, with the peer id.
    pub listen: Vec<String>,
    /// Sites the node knows.
    pub known_sites: usize,
    /// Version of its ledger.
    pub ledger_version: LedgerVersion,
    /// What its network side has counted.
    pub counters: BTreeMap<String, u64>,
}

/// `GET /v1/sites`.
#[derive(Debug, Clone, Deserialize)]
pub struct Sites {
    /// One row a known site.
    pub sites: Vec<SiteRow>,
}

/// One known site.
#[derive(Debug, Clone, Deserialize)]
pub struct SiteRow {
    /// The site.
    pub site: String,
    /// Whether it is the answering node's own.
    pub this_node: bool,
    /// Hosts of it.
    pub hosts: usize,
    /// How far its schedules are known.
    pub schedule: Freshness,
    /// Version of its ledger that the node has.
    pub ledger_version: Option<LedgerVersion>,
}

/// How far a site's schedules are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// As new as can be told.
    Current,
    /// Old or with a gap.
    Stale,
    /// Never heard.
    Unknown,
}

/// A step function as `[time, used]`; 0 before the first step.
pub type Steps = Vec<(i64, u64)>;

/// `GET /v1/ledger`.
#[derive(Debug, Clone, Deserialize)]
pub struct Ledger {
    /// The site.
    pub site: String,
    /// Version of the ledger.
    pub ledger_version: LedgerVersion,
    /// Its hosts.
    pub hosts: Vec<LedgerHost>,
    /// Its holds and reservations.
    pub bookings: Vec<Booking>,
}

/// One host in a ledger.
#[derive(Debug, Clone, Deserialize)]
pub struct LedgerHost {
    /// The host.
    pub id: String,
    /// Capacities.
    pub resources: Amounts,
    /// Attributes.
    #[serde(default)]
    pub attributes: Attributes,
    /// All use as the site sees it.
    pub occupancy: BTreeMap<ResourceName, Steps>,
    /// The owner's own use.
    pub own: BTreeMap<ResourceName, Steps>,
}

/// One hold or reservation in a ledger.
#[derive(Debug, Clone, Deserialize)]
pub struct Booking {
    /// The request.
    pub request: String,
    /// Held or confirmed.
    pub state: BookingState,
    /// Whether the site knows that its part is final.
    pub settled: bool,
    /// When.
    pub window: Window,
    /// What on which hosts.
    pub grants: Vec<Grant>,
}

/// State of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BookingState {
    /// A hold.
    Held,
    /// A reservation.
    Confirmed,
}

/// `GET /v1/requests`.
#[derive(Debug, Clone, Deserialize)]
pub struct RequestList {
    /// Newest first.
    pub requests: Vec<RequestView>,
}

/// A request's life so far.
#[derive(Debug, Clone, Deserialize)]
pub struct RequestView {
    /// Id in the grid.
    pub id: String,
    /// Where it is.
    pub state: RequestState,
    /// Tries so far.
    pub attempts: u64,
    /// Tries that a site refused.
    pub conflicts: u64,
    /// What stands, once it does.
    pub reservation: Option<Reservation>,
    /// Why not, once that is known.
    pub reason: Option<Reason>,
}

/// States of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// Looking for a plan.
    Planning,
    /// Asking the sites.
    Holding,
    /// Telling the sites.
    Confirming,
    /// It stands.
    Confirmed,
    /// It stands and has begun.
    Active,
    /// It stood and is over.
    Ended,
    /// No placement in the window.
    Rejected,
    /// A policy is against it.
    Refused,
    /// Patience over or grid not reachable.
    Failed,
    /// Taken back by its user.
    Cancelled,
    /// Being taken back.
    Cancelling,
    /// It stands, without hosts that are lost.
    Degraded,
    /// As before, and others are being looked for.
    Rebrokering,
    /// Another node acts for it.
    HandedOver,
}

impl RequestState {
    /// Whether the reservation was told to the user.
    pub fn stands(self) -> bool {
        matches!(self, RequestState::Confirmed | RequestState::Active | RequestState::Ended)
    }

    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        self.stands()
            || matches!(
                self,
                RequestState::Rejected | RequestState::Refused | RequestState::Failed | RequestState::Cancelled
            )
    }
}

/// What was promised to the user.
#[derive(Debug, Clone, Deserialize)]
pub struct Reservation {
    /// First second.
    pub start: i64,
    /// First second after.
    pub end: i64,
    /// The hosts.
    pub hosts: Vec<ReservedHost>,
}

/// One promised host.
#[derive(Debug, Clone, Deserialize)]
pub struct ReservedHost {
    /// Its site.
    pub site: String,
    /// The site's name for people.
    pub site_name: String,
    /// The host.
    pub host: String,
    /// What is promised of it.
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
    /// Why not.
    pub reason: Option<Reason>,
    /// What each round found.
    pub rounds: Vec<Round>,
}

/// One round of planning.
#[derive(Debug, Clone, Deserialize)]
pub struct Round {
    /// Hosts that were looked at.
    pub found_hosts: usize,
    /// Hosts that the node knew of.
    pub known_hosts: usize,
    /// Which constraint cut how many of them.
    #[serde(default)]
    pub cut: Vec<Cut>,
}

/// What one constraint cut.
#[derive(Debug, Clone, Deserialize)]
pub struct Cut {
    /// The constraint, in words.
    pub constraint: String,
    /// Hosts that it cut.
    pub hosts: usize,
}

/// A problem document (RFC 9457).
#[derive(Debug, Clone, Deserialize)]
pub struct Problem {
    /// What went wrong.
    pub title: String,
    /// This time.
    pub detail: Option<String>,
}
