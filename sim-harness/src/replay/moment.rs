//! Virtual time of a replay.
//!
//! Traces count whole seconds. The microseconds below them only order what happens within one second: a start takes
//! one, so jobs that start "at the same time" have an order that does not depend on how events are stored.
//! Invariant: a moment counts from the first submission of the trace.

pub use crate::engine::{Moment, SECOND_US};

/// What a start takes: long enough to give simultaneous starts an order, too short to be seen in any figure.
pub const START_US: i64 = 1;
