//! How much of the grid is reserved from now on, by resource.

use broker::{resources::ResourceName, time::Time};
use serde::Serialize;
use utoipa::ToSchema;

/// Answer of `GET /v1/usage`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Usage {
    pub from: Time,
    pub step_s: u64,
    /// Hosts whose schedules are known; the others do not count.
    pub hosts: usize,
    pub resources: Vec<ResourceUsage>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ResourceUsage {
    pub name: ResourceName,
    pub capacity: u64,
    /// Mean use in each step, reservations and owners' own work.
    pub used: Vec<u64>,
}
