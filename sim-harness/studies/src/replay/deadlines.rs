//! Deadlines for traces, which have none: the submission, and the user's limit times a factor that is drawn for each job.
//!
//! Invariant: the factor depends on the seed and on the job's place in the trace alone.

use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::job::Job;

/// How many limits after its submission a job should have ended, in thousandths; at least 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "f64")]
pub struct Factor(i64);

/// The factors unless others are given.
pub const FACTORS: [Factor; 3] = [Factor(1_500), Factor(2_000), Factor(4_000)];
/// The largest.
const FACTOR_MAX: f64 = 1_000.0;

impl From<Factor> for f64 {
    fn from(factor: Factor) -> f64 {
        factor.0 as f64 / 1000.0
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

/// Reads a factor.
///
/// # Errors
/// What was expected.
pub fn factor(text: &str) -> Result<Factor, String> {
    let number = text.parse::<f64>().ok().filter(|number| (1.0..=FACTOR_MAX).contains(number));
    // In range.
    number
        .map(|number| Factor((number * 1000.0).round() as i64))
        .ok_or(format!("expected 1 to {FACTOR_MAX}, got {text}"))
}

/// Gives each job its deadline.
pub fn draw(jobs: &mut [Job], factors: &[Factor], seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for known in jobs.iter_mut().map(|job| &mut job.known) {
        let Factor(thousandths) = factors[random.random_range(0..factors.len())];
        known.deadline_s = known.submit_s.saturating_add(known.limit_s.saturating_mul(thousandths) / 1000);
    }
}
