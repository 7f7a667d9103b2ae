//! The configuration of the peer-to-peer layer: the grid, addresses, limits, intervals, and where schedules and membership come from.

mod grid_id;
mod intervals;
mod limits;
mod settings;

pub use self::{
    grid_id::{GridId, GridIdError},
    intervals::{DhtUpkeep, Intervals, TIME_TO_LIVE_MAX},
    limits::{HEAVY_ANSWER, Limits},
    settings::{
        ConfigError, DiscoveryConfig, FIND_TIMEOUT, SCHEDULE_AGE_MAX, SCHEDULE_AGE_MAX_AFTER_CONFLICT,
        SILENCE_REMEMBERED, ScheduleSource, TransportKind,
    },
};
