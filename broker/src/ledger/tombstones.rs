//! Attempts that have ended, remembered for a while so that their late messages are refused.
//!
//! Invariant: at most `limit` requests are remembered. At the bound the one that would be forgotten first makes room;
//! its late messages could then hold amounts once more, until that hold's own deadline.

use super::expiring::Expiring;
use crate::{
    ids::{RequestId, SiteId},
    protocol::AttemptId,
    time::Millis,
};

/// Attempts that have ended: of each request the latest one. It and every earlier one of the request are over.
#[derive(Debug)]
pub(super) struct Tombstones(Expiring<(SiteId, RequestId), Millis, u32>);

impl Tombstones {
    pub(super) fn new(limit: usize) -> Tombstones {
        Tombstones(Expiring::new(limit))
    }

    /// Remembers until `forget_at`, or for as long as before if that is longer, that the attempt, and every earlier one of its
    /// request, is over.
    pub(super) fn bury(&mut self, attempt: &AttemptId, forget_at: Millis) {
        let key = (attempt.entry_point.clone(), attempt.request.clone());
        let latest = self.0.get(&key).copied().unwrap_or_default().max(attempt.attempt);
        let forget_at = self.0.until(&key).map_or(forget_at, |before| before.max(forget_at));
        self.0.insert(key, forget_at, latest);
    }

    pub(super) fn is_buried(&self, attempt: &AttemptId) -> bool {
        let latest = self.0.get(&(attempt.entry_point.clone(), attempt.request.clone()));
        latest.is_some_and(|latest| attempt.attempt <= *latest)
    }

    pub(super) fn forget(&mut self, now: Millis) {
        while self.0.pop_due(now).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(request: &str, attempt: u32) -> AttemptId {
        AttemptId { entry_point: SiteId::new("e").unwrap(), request: RequestId::new(request).unwrap(), attempt }
    }

    #[test]
    fn later_attempts_live_and_the_oldest_grave_makes_room() {
        let mut tombstones = Tombstones::new(2);
        tombstones.bury(&attempt("a", 3), Millis(20));
        tombstones.bury(&attempt("a", 2), Millis(10));
        assert!(tombstones.is_buried(&attempt("a", 1)) && tombstones.is_buried(&attempt("a", 3)));
        assert!(!tombstones.is_buried(&attempt("a", 4)));
        tombstones.bury(&attempt("b", 1), Millis(15));
        tombstones.bury(&attempt("c", 1), Millis(30));
        assert!(!tombstones.is_buried(&attempt("b", 1)), "b was to be forgotten first");
        tombstones.forget(Millis(20));
        assert!(!tombstones.is_buried(&attempt("a", 1)) && tombstones.is_buried(&attempt("c", 1)));
    }
}
