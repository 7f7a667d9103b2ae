//! What the owner changes while the node runs: whether the site is being emptied, and the configuration.

use broker::time::Time;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of `POST /v1/reload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Keys with another value, which is in force now.
    pub changed: Vec<String>,
    /// Keys with another value, which waits for the next start.
    pub at_next_start: Vec<String>,
}

/// Body of `POST /v1/drain`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    pub is_draining: bool,
}

/// Answer of `POST /v1/drain`: what of this site is still promised.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    pub is_draining: bool,
    /// Holds and reservations of users.
    pub bookings: usize,
    /// When the last of them ends.
    pub until: Option<Time>,
}

/// Answer of `POST /v1/clock/confirm`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClockConfirmed {
    /// Seconds by which the machine's clock was ahead of the time that the node believed; none when the clock was believed already.
    pub was_ahead_s: Option<i64>,
}
