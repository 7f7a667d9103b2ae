//! How the time of a replay grows with the number of jobs: the first thousand, the first three thousand, and so on.
//!
//! Invariant: the last point is the whole trace, and sizes ascend.

use serde::Serialize;

/// The fewest jobs that are worth measuring.
const JOBS_MIN: usize = 1000;
/// A size is measured again until so many seconds are spent on it, so that a clock tick or another process does not decide.
const SECONDS_MIN: f64 = 0.1;
/// Most measurements of one size.
const MEASUREMENTS_MAX: usize = 100;

/// How long a replay took on this machine, without reading the trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Speed {
    /// Seconds of real time.
    pub replay_seconds: f64,
    /// Jobs in one of them.
    pub jobs_per_second: f64,
}

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

/// The fastest of several replays of one size.
///
/// # Errors
/// The first that `replay` ends with.
pub fn fastest<E>(mut replay: impl FnMut() -> Result<Speed, E>) -> Result<Speed, E> {
    let mut best = replay()?;
    let (mut spent_s, mut count) = (best.replay_seconds, 1);
    while spent_s < SECONDS_MIN && count < MEASUREMENTS_MAX {
        let speed = replay()?;
        spent_s += speed.replay_seconds;
        count += 1;
        best = if speed.replay_seconds < best.replay_seconds { speed } else { best };
    }
    Ok(best)
}

/// By what power of the jobs the time grew from the first point to the last; `None` for fewer than two points.
pub fn exponent(points: &[Point]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let ratio = |from: f64, to: f64| (to / from).ln();
    let jobs = ratio(first.jobs as f64, last.jobs as f64);
    (jobs > 0.0).then(|| ratio(first.speed.replay_seconds, last.speed.replay_seconds) / jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(replay_seconds: f64) -> Speed {
        Speed { replay_seconds, jobs_per_second: 1.0 / replay_seconds }
    }

    #[test]
    fn sizes_ascend_below_the_whole_and_a_square_has_exponent_two() {
        assert_eq!(sizes_below(30_000), [1000, 3000, 10_000]);
        assert!(sizes_below(1000).is_empty());
        let square = [(1000, 1.0), (3000, 9.0), (10_000, 100.0)];
        let square = square.map(|(jobs, seconds)| Point { jobs, speed: speed(seconds) });
        assert!((exponent(&square).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(exponent(&square[..1]), None);
    }

    #[test]
    fn short_replays_are_repeated_and_the_fastest_counts() {
        let mut times = [0.04, 0.02, 0.05, 0.01].into_iter();
        let found = fastest(|| times.next().map(speed).ok_or(()));
        assert_eq!((found, times.next()), (Ok(speed(0.02)), Some(0.01)), "0.11 s are enough");
        let mut count = 0;
        let found = fastest(|| {
            count += 1;
            Ok::<_, ()>(speed(1e-9))
        });
        assert_eq!((found, count), (Ok(speed(1e-9)), MEASUREMENTS_MAX));
        assert_eq!(fastest(|| Err(7)), Err(7));
    }
}
