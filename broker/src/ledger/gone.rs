//! Bookings that are gone although their attempt may have been complete: they were replaced, the user cancelled, or they have ended
//! before those of other sites.
//!
//! Another participant that has not learnt the outcome must not hear that the attempt was aborted, so this is kept on disk too.
//! Invariant: at most `limit` are remembered, each until its time; at the bound the one whose time comes first makes room.

use std::collections::{BTreeMap, BTreeSet};

use super::GoneRecord;
use crate::{protocol::AttemptId, time::Time};

/// Bookings that are gone.
#[derive(Debug)]
pub(super) struct Gone {
    limit: usize,
    ends: BTreeMap<AttemptId, Time>,
    by_end: BTreeSet<(Time, AttemptId)>,
}

impl Gone {
    pub(super) fn new(limit: usize) -> Gone {
        Gone { limit: limit.max(1), ends: BTreeMap::new(), by_end: BTreeSet::new() }
    }

    /// Remembers one; returns the one that makes room for it.
    pub(super) fn insert(&mut self, GoneRecord { attempt, until }: GoneRecord) -> Option<AttemptId> {
        if let Some(before) = self.ends.insert(attempt.clone(), until) {
            self.by_end.remove(&(before, attempt.clone()));
        }
        self.by_end.insert((until, attempt));
        if self.ends.len() > self.limit { self.pop_first() } else { None }
    }

    /// Whether the attempt is remembered.
    pub(super) fn contains(&self, attempt: &AttemptId) -> bool {
        self.ends.contains_key(attempt)
    }

    /// Forgets one whose time has come; none when there is none left.
    pub(super) fn pop_ended(&mut self, now: Time) -> Option<AttemptId> {
        self.by_end.first().is_some_and(|(until, _)| *until <= now).then(|| self.pop_first())?
    }

    fn pop_first(&mut self) -> Option<AttemptId> {
        let (_, attempt) = self.by_end.pop_first()?;
        self.ends.remove(&attempt);
        Some(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{RequestId, SiteId};

    fn attempt(request: &str) -> AttemptId {
        AttemptId { entry_point: SiteId::new("e").unwrap(), request: RequestId::new(request).unwrap(), attempt: 1 }
    }

    #[test]
    fn each_lives_until_its_time_and_the_first_to_end_makes_room() {
        let mut gone = Gone::new(2);
        let mut insert = |request, until| gone.insert(GoneRecord { attempt: attempt(request), until: Time(until) });
        assert_eq!((insert("a", 5), insert("a", 30), insert("b", 20)), (None, None, None));
        assert_eq!(insert("c", 40), Some(attempt("b")));
        assert!(!gone.contains(&attempt("b")) && gone.contains(&attempt("a")));
        assert_eq!(gone.pop_ended(Time(29)), None);
        assert_eq!(gone.pop_ended(Time(30)), Some(attempt("a")));
        assert_eq!(gone.pop_ended(Time(30)), None);
        assert!(gone.contains(&attempt("c")));
    }
}
