//! What an entry point tells participants of its tries.

use crate::protocol::AttemptStatus;

/// What is known of every try of a request at one moment. Taken when what it says is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses {
    pub(super) last_attempt: u32,
    pub(super) last: AttemptStatus,
    /// Tries that have reserved what stands.
    pub(super) standing: Vec<u32>,
}

impl Statuses {
    /// What is known of a try. A try that is neither the last nor part of what stands was decided against, or was made in
    /// a run that a crash has ended before a decision.
    #[must_use]
    pub fn of(&self, attempt: u32) -> AttemptStatus {
        if self.standing.contains(&attempt) {
            AttemptStatus::Confirmed
        } else if attempt == self.last_attempt {
            self.last
        } else {
            AttemptStatus::Dead
        }
    }
}
