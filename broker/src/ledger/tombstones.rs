//! Attempts that have ended, remembered for a while so that their late messages are refused.
//!
//! Invariant: at most `limit` requests are remembered. At the bound the one that would be forgotten first makes room;
//! its late messages could then hold amounts once more, until that hold's own deadline.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::{RequestId, SiteId},
    protocol::AttemptId,
    time::Millis,
};

type Key = (SiteId, RequestId);

#[derive(Debug)]
struct Tombstone {
    /// This attempt and every earlier one of the request are over.
    attempt: u32,
    forget_at: Millis,
}

/// Attempts that have ended.
#[derive(Debug)]
pub(super) struct Tombstones {
    limit: usize,
    by_request: BTreeMap<Key, Tombstone>,
    by_time: BTreeSet<(Millis, Key)>,
}

impl Tombstones {
    pub(super) fn new(limit: usize) -> Tombstones {
        Tombstones { limit: limit.max(1), by_request: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Remembers until `forget_at` that the attempt, and every earlier one of its request, is over.
    pub(super) fn bury(&mut self, attempt: &AttemptId, forget_at: Millis) {
        let key = (attempt.entry_point.clone(), attempt.request.clone());
        let mut latest = attempt.attempt;
        if let Some(known) = self.by_request.get(&key) {
            latest = latest.max(known.attempt);
            self.by_time.remove(&(known.forget_at, key.clone()));
        } else if self.by_request.len() >= self.limit
            && let Some((_, first)) = self.by_time.pop_first()
        {
            self.by_request.remove(&first);
        }
        self.by_request.insert(key.clone(), Tombstone { attempt: latest, forget_at });
        self.by_time.insert((forget_at, key));
    }

    pub(super) fn is_buried(&self, attempt: &AttemptId) -> bool {
        self.by_request
            .get(&(attempt.entry_point.clone(), attempt.request.clone()))
            .is_some_and(|tombstone| attempt.attempt <= tombstone.attempt)
    }

    pub(super) fn forget(&mut self, now: Millis) {
        while let Some((forget_at, _)) = self.by_time.first()
            && *forget_at <= now
        {
            if let Some((_, key)) = self.by_time.pop_first() {
                self.by_request.remove(&key);
            }
        }
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
        tombstones.bury(&attempt("a", 3), Millis(10));
        tombstones.bury(&attempt("a", 2), Millis(20));
        assert!(tombstones.is_buried(&attempt("a", 1)) && tombstones.is_buried(&attempt("a", 3)));
        assert!(!tombstones.is_buried(&attempt("a", 4)));
        tombstones.bury(&attempt("b", 1), Millis(15));
        tombstones.bury(&attempt("c", 1), Millis(30));
        assert!(!tombstones.is_buried(&attempt("b", 1)), "b was to be forgotten first");
        tombstones.forget(Millis(20));
        assert!(!tombstones.is_buried(&attempt("a", 1)) && tombstones.is_buried(&attempt("c", 1)));
        assert_eq!(tombstones.by_time.len(), tombstones.by_request.len());
    }
}
