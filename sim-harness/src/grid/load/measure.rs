//! Percentiles of measured times and sizes.

use std::time::Duration;

/// The middle, the tail and the worst of a sample.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Percentiles {
    /// Median (nearest rank).
    pub p50: f64,
    /// 99th percentile (nearest rank).
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Percentiles by nearest rank: the smallest value that at least that share of the sample does not exceed. `None` for
/// an empty sample.
pub fn percentiles(sample: &[f64]) -> Option<Percentiles> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied();
    Some(Percentiles { p50: rank(50)?, p99: rank(99)?, max: rank(100)? })
}

/// A time in milliseconds, to the microsecond.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        assert_eq!(percentiles(&[]), None);
        assert_eq!(percentiles(&[7.0]), Some(Percentiles { p50: 7.0, p99: 7.0, max: 7.0 }));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentiles(&hundred), Some(Percentiles { p50: 50.0, p99: 99.0, max: 100.0 }));
        assert_eq!(percentiles(&[3.0, 1.0, 2.0, 4.0]), Some(Percentiles { p50: 2.0, p99: 4.0, max: 4.0 }));
        assert_eq!(percentiles(&[3.0, 1.0, 2.0]).map(|found| found.p50), Some(2.0));
    }
}
