//! Means, medians, percentiles and spreads: the one definition of each in this crate.
//!
//! The median of an even number of values is the mean of the middle two; any other percentile is the smallest value that
//! at least that share of the values does not exceed (nearest rank). Invariant: of nothing a mean, median or spread is
//! zero, never "not a number".

use serde::{Deserialize, Serialize};

/// Values in ascending order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample(Vec<f64>);

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Sample {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        Sample(values)
    }
}

impl Sample {
    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().fold(0.0, |sum, value| sum + value) / self.0.len().max(1) as f64
    }

    /// Half of the values are no larger, half no smaller.
    pub fn median(&self) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0.0 };
        f64::midpoint(self.0[last / 2], self.0[last.div_ceil(2)])
    }

    /// The smallest value that `percent` of 100 values do not exceed.
    pub fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or(0.0)
    }

    /// Least, most, mean and deviation.
    pub fn spread(&self) -> Spread {
        let mean = self.mean();
        let squares = self.0.iter().map(|value| (value - mean).powi(2));
        let sd = (squares.sum::<f64>() / self.0.len().max(1) as f64).sqrt();
        Spread { min: self.percentile(0), max: self.percentile(100), mean, sd }
    }
}

/// The least, the most, the mean and the standard deviation of some values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Least value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the values themselves, not of a sample.
    pub sd: f64,
}

/// The middle, the tail and the worst of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Median, 99th percentile and largest value; `None` for an empty sample.
pub fn percentiles(values: &[f64]) -> Option<Percentiles> {
    let sample: Sample = values.iter().copied().collect();
    (!values.is_empty()).then(|| Percentiles {
        p50: sample.median(),
        p99: sample.percentile(99),
        max: sample.percentile(100),
    })
}

/// The mean of some values.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    values.collect::<Sample>().mean()
}

/// The median of some values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    values.collect::<Sample>().median()
}

/// The spread of some values.
pub fn spread(values: impl Iterator<Item = f64>) -> Spread {
    values.collect::<Sample>().spread()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_midpoints_and_percentiles_nearest_ranks() {
        assert_eq!(percentiles(&[]), None);
        assert_eq!(percentiles(&[7.0]), Some(Percentiles { p50: 7.0, p99: 7.0, max: 7.0 }));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentiles(&hundred), Some(Percentiles { p50: 50.5, p99: 99.0, max: 100.0 }));
        assert_eq!(percentiles(&[3.0, 1.0, 2.0, 4.0]), Some(Percentiles { p50: 2.5, p99: 4.0, max: 4.0 }));
        assert_eq!(percentiles(&[3.0, 1.0, 2.0]).map(|found| found.p50), Some(2.0));
        assert_eq!(hundred.iter().copied().collect::<Sample>().percentile(95), 95.0);
    }

    #[test]
    fn of_nothing_all_is_zero() {
        assert_eq!(spread([].into_iter()), Spread::default());
        assert_eq!((mean([].into_iter()), median([].into_iter())), (0.0, 0.0));
        assert_eq!(spread([1.0, 3.0].into_iter()), Spread { min: 1.0, max: 3.0, mean: 2.0, sd: 1.0 });
    }
}
