//! Shortest job first, by the run time that the scheduler expects. The shortest job is never passed by another.
//!
//! Invariant: at every start, no waiting job is expected to be shorter.

use super::ordered::Ordered;

/// The policy.
pub fn sjf() -> Ordered {
    Ordered::by(|job| job.length_s)
}
