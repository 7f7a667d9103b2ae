//! A site's own ledger: its hosts and bookings.

use std::collections::BTreeMap;

use broker::{
    amount::Amount,
    host::Speed,
    ids::{HostId, RequestId, SiteId},
    protocol::LedgerVersion,
    resources::{Amounts, Attributes, ResourceName},
    time::{Time, Window},
    trust::PublicKey,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::schema;

#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerView {
    pub site: SiteId,
    pub ledger_version: LedgerVersion,
    pub hosts: Vec<LedgerHost>,
    /// The uplink, as a host with `mbps`; left out when it has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<LedgerHost>,
    pub bookings: Vec<LedgerBooking>,
}

/// By resource, times and the amount from each of them on.
pub type Steps = BTreeMap<ResourceName, Vec<(Time, Amount)>>;

#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerHost {
    pub id: HostId,
    #[schema(value_type = schema::Amounts)]
    pub resources: Amounts,
    pub attributes: Attributes,
    /// Thousandths of the reference speed.
    #[schema(value_type = u32)]
    pub speed: Speed,
    /// The owner's own work and all reservations.
    #[schema(value_type = std::collections::BTreeMap<String, Vec<schema::Step>>)]
    pub occupancy: Steps,
    /// The owner's own work.
    #[schema(value_type = std::collections::BTreeMap<String, Vec<schema::Step>>)]
    pub own: Steps,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerBooking {
    pub entry_point: SiteId,
    pub request: RequestId,
    pub attempt: u32,
    pub state: &'static str,
    pub settled: bool,
    pub user: String,
    pub user_key: Option<PublicKey>,
    #[schema(value_type = schema::Window)]
    pub window: Window,
    pub grants: Vec<LedgerGrant>,
    /// What they put on the uplink.
    pub uplink_mbps: u64,
}

/// A seat.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Grant)]
pub struct LedgerGrant {
    /// Which of the seats of the request.
    pub seat: u32,
    pub host: HostId,
    #[schema(value_type = schema::Window)]
    pub window: Window,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
}
