//! What happened over time, as means over equal pieces of the makespan: processors in use, and jobs waiting.
//!
//! Invariant: the means are exact; a piece's mean times its length, summed over the pieces, is the total over all jobs.

use super::{engine::Run, job::Job, metrics::last_end_s};
use crate::clusters::usage::add;

/// Pieces of a series.
pub const PIECES: usize = 360;

/// Both series.
#[derive(Debug)]
pub struct Series {
    /// Length of a piece, in seconds.
    pub piece_s: f64,
    /// Mean processors in use, by piece.
    pub processors: Vec<f64>,
    /// Mean number of waiting jobs, by piece.
    pub waiting: Vec<f64>,
}

impl Series {
    /// Of a whole replay.
    pub fn of(jobs: &[Job], runs: &[Run]) -> Series {
        let piece_s = (last_end_s(runs) as f64 / PIECES as f64).max(f64::MIN_POSITIVE);
        let mut series = Series { piece_s, processors: vec![0.0; PIECES], waiting: vec![0.0; PIECES] };
        for (job, run) in jobs.iter().zip(runs) {
            let place = |second: i64| (second as f64 / piece_s).clamp(0.0, PIECES as f64);
            let [submit, start, end] = [job.known.submit_s, run.start.second(), run.end.second()].map(place);
            add(&mut series.waiting, submit, start, 1.0);
            add(&mut series.processors, start, end, job.known.shape.processors() as f64);
        }
        series
    }
}
