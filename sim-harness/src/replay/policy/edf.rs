//! Earliest due date first. Traces have no due dates, so one is made up: the submission plus twice the user's limit.
//!
//! Invariant: at every start, no waiting job is due earlier.

use super::ordered::Ordered;

/// The policy.
pub fn edf() -> Ordered {
    Ordered::by(|job| job.submit_s.saturating_add(job.limit_s.saturating_mul(2)))
}
