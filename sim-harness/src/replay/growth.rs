//! How the time of a replay grows with the number of jobs: the first thousand, the first three thousand, and so on.
//!
//! Invariant: the last point is the whole trace, and sizes ascend.

use serde::Serialize;

use super::output::Speed;

/// The fewest jobs that are worth measuring.
const JOBS_MIN: usize = 1000;

/// One prefix of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Its jobs.
    pub jobs: usize,
    /// How long they took.
    #[serde(flatten)]
    pub speed: Speed,
}

/// Two sizes to each power of ten, below `jobs`.
pub fn sizes_below(jobs: usize) -> Vec<usize> {
    let thousands = std::iter::successors(Some(JOBS_MIN), |size| size.checked_mul(10));
    thousands.flat_map(|size| [size, size.saturating_mul(3)]).take_while(|size| *size < jobs).collect()
}

/// In words: by what power of the jobs the time grew from the first point to the last; nothing for less than two points.
pub fn exponent(points: &[Point]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let ratio = |from: f64, to: f64| (to / from).ln();
    let jobs = ratio(first.jobs as f64, last.jobs as f64);
    (jobs > 0.0).then(|| ratio(first.speed.replay_seconds, last.speed.replay_seconds) / jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend_below_the_whole_and_a_square_has_exponent_two() {
        assert_eq!(sizes_below(30_000), [1000, 3000, 10_000]);
        assert!(sizes_below(1000).is_empty());
        let point = |jobs: usize, replay_seconds: f64| Point {
            jobs,
            speed: Speed { replay_seconds, jobs_per_second: jobs as f64 / replay_seconds },
        };
        let square = [point(1000, 1.0), point(3000, 9.0), point(10_000, 100.0)];
        assert!((exponent(&square).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(exponent(&square[..1]), None);
    }
}
