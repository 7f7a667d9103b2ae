//! Measured times and sizes.

use std::time::Duration;

pub use crate::stats::{Percentiles, percentiles};

/// A time in milliseconds, to the microsecond.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
