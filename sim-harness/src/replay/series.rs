//! What happened over time, as means over equal pieces of the makespan: processors in use, and jobs waiting.
//!
//! Invariant: the means are exact; a piece's mean times its length, summed over the pieces, is the total over all jobs.

use super::{engine::Run, job::Job, metrics::last_end_s};

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
        let (mut processors, mut waiting) = (Sums::new(piece_s), Sums::new(piece_s));
        for (job, run) in jobs.iter().zip(runs) {
            let (start_s, end_s) = (run.start.second() as f64, run.end.second() as f64);
            processors.add(start_s, end_s, job.known.shape.processors() as f64);
            waiting.add(job.known.submit_s as f64, start_s, 1.0);
        }
        Series { piece_s, processors: processors.means(), waiting: waiting.means() }
    }
}

/// Adds up intervals; a long one costs as little as a short one.
struct Sums {
    piece_s: f64,
    /// What pieces get that are covered in part, in value times pieces.
    parts: Vec<f64>,
    /// How the value changes at the beginning of each piece, for those covered whole.
    changes: Vec<f64>,
}

impl Sums {
    fn new(piece_s: f64) -> Sums {
        Sums { piece_s, parts: vec![0.0; PIECES], changes: vec![0.0; PIECES + 1] }
    }

    fn add(&mut self, from_s: f64, to_s: f64, value: f64) {
        let place = |second: f64| (second / self.piece_s).clamp(0.0, PIECES as f64);
        let (from, to) = (place(from_s), place(to_s));
        let (first, last) = (from.floor() as usize, (to.floor() as usize).min(PIECES - 1));
        if first >= last {
            self.parts[first.min(PIECES - 1)] += value * (to - from);
            return;
        }
        self.parts[first] += value * ((first + 1) as f64 - from);
        self.parts[last] += value * (to - last as f64);
        self.changes[first + 1] += value;
        self.changes[last] -= value;
    }

    fn means(self) -> Vec<f64> {
        let mut whole = 0.0;
        let piece = |(part, change): (&f64, &f64)| {
            whole += change;
            // Sums of equal values taken away again leave a little dust.
            (part + whole).max(0.0)
        };
        self.parts.iter().zip(&self.changes).map(piece).collect()
    }
}
