//! Who has reserved what and when, at all sites: what a Gantt chart shows.

use broker::{
    ids::{HostId, RequestId, SiteId},
    resources::Amounts,
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{grid::ScheduleState, schema};

/// Answer of `GET /v1/bookings`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BookingList {
    /// The node's clock (Unix seconds).
    pub now: Time,
    /// Every site that was looked at, with or without reservations.
    pub sites: Vec<BookedSite>,
    /// By start.
    pub bookings: Vec<BookingView>,
    /// For `after`, when there are more.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BookedSite {
    pub site: SiteId,
    pub name: String,
    /// What is known of its schedule.
    pub schedule: ScheduleState,
    /// How long ago it reported its reservations; none when it never has.
    pub told_age_s: Option<u64>,
    /// Whether it has reported more than is kept.
    pub is_cut: bool,
    /// Whether its owner publishes no reservations.
    pub is_withheld: bool,
    /// What its uplink carries, if it has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_mbps: Option<u64>,
    /// When its owner offers its hosts to nobody, of the time asked for; of many only the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<NotOffered>,
}

/// From when to when hosts are not to be had.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NotOffered {
    pub start: Time,
    pub end: Time,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BookingView {
    pub site: SiteId,
    pub request: RequestId,
    /// The request of this node that this one lengthens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<RequestId>,
    pub entry_point: SiteId,
    pub attempt: u32,
    pub user: String,
    pub start: Time,
    pub end: Time,
    pub hosts: Vec<BookedHost>,
    /// What its hosts put on the site's uplink.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub uplink_mbps: u64,
}

fn is_nothing(mbps: &u64) -> bool {
    *mbps == 0
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BookedHost {
    pub host: HostId,
    /// Its own end; that of the whole is the latest.
    pub end: Time,
    #[schema(value_type = schema::Amounts)]
    pub amounts: Amounts,
}

impl BookingView {
    /// The request whose reservation it is a part of, as far as this node knows.
    pub fn reservation(&self) -> &RequestId {
        self.part_of.as_ref().unwrap_or(&self.request)
    }
}
