//! What an entry point tells participants of its tries.

use std::collections::BTreeSet;

use crate::{
    ids::SiteId,
    protocol::{AttemptId, AttemptStatus},
};

/// What is known of every try of a request at one moment. Taken when what it says is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses {
    pub(super) entry_point: SiteId,
    /// The last try, and how far it is.
    pub(super) last: (AttemptId, AttemptStatus),
    /// Tries of other entry points that this one has taken over.
    pub(super) taken_over: BTreeSet<AttemptId>,
    /// What makes up what stands: a try, and a site of it.
    pub(super) standing: Vec<(AttemptId, SiteId)>,
    /// What another node may be about to take over.
    pub(super) left_to_another: Vec<(AttemptId, SiteId)>,
}

impl Statuses {
    /// What `asker`, a site of the try, may know of it. A try that is neither the last nor, as far as that site is
    /// concerned, part of what stands was decided against, was made good for elsewhere, or was made in a run that a crash
    /// has ended before a decision.
    #[must_use]
    pub fn of(&self, attempt: &AttemptId, asker: &SiteId) -> AttemptStatus {
        let is_in = |list: &[(AttemptId, SiteId)]| list.iter().any(|(of, site)| of == attempt && site == asker);
        if is_in(&self.standing) {
            AttemptStatus::Confirmed
        } else if *attempt == self.last.0 {
            self.last.1
        } else if is_in(&self.left_to_another) {
            AttemptStatus::Unknown
        } else if attempt.entry_point == self.entry_point || self.taken_over.contains(attempt) {
            AttemptStatus::Dead
        } else {
            AttemptStatus::Unknown
        }
    }
}
