//! What the sites of the grid have reserved for a request of any entry point.

use broker::{
    ids::{HostId, RequestId, SiteId},
    request::Request,
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// Answer of `GET /v1/reservations/{id}`: what the sites of the grid have reserved for a request of any entry point.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReservationLookup {
    pub id: RequestId,
    /// Node that the request was signed for.
    pub entry_point: Option<SiteId>,
    /// The key that signed it.
    pub user_key: Option<String>,
    #[schema(value_type = Option<schema::Request>)]
    pub request: Option<Request>,
    /// The highest known term that its user has signed; another node coordinates it in a higher one.
    pub term: Option<u64>,
    pub hosts: Vec<FoundHost>,
    pub sites_asked: usize,
    pub sites_silent: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FoundHost {
    pub site: SiteId,
    pub host: HostId,
    pub start: Time,
    pub end: Time,
}
