//! What is remembered until a time.
//!
//! Invariant: at most `limit` entries; at the bound the one whose time comes first makes room.

use std::collections::{BTreeMap, BTreeSet};

/// Entries by key, each until its time.
#[derive(Debug)]
pub(super) struct Expiring<K, T, V> {
    limit: usize,
    entries: BTreeMap<K, (T, V)>,
    by_time: BTreeSet<(T, K)>,
}

impl<K: Ord + Clone, T: Ord + Copy, V> Expiring<K, T, V> {
    /// Remembers nothing yet, and one entry at least.
    pub(super) fn new(limit: usize) -> Expiring<K, T, V> {
        Expiring { limit: limit.max(1), entries: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Remembers an entry in place of the one with its key; returns the key of the entry that makes room for it.
    pub(super) fn insert(&mut self, key: K, until: T, value: V) -> Option<K> {
        if let Some((before, _)) = self.entries.insert(key.clone(), (until, value)) {
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.insert((until, key));
        if self.entries.len() > self.limit { self.pop_first() } else { None }
    }

    /// What is remembered with this key.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Until when what has this key is remembered.
    pub(super) fn until(&self, key: &K) -> Option<T> {
        self.entries.get(key).map(|(until, _)| *until)
    }

    /// Forgets an entry before its time; whether it was there.
    pub(super) fn remove(&mut self, key: &K) -> bool {
        let Some((until, _)) = self.entries.remove(key) else { return false };
        self.by_time.remove(&(until, key.clone()))
    }

    /// Forgets an entry whose time has come; none when there is none left.
    pub(super) fn pop_due(&mut self, now: T) -> Option<K> {
        self.by_time.first().is_some_and(|(until, _)| *until <= now).then(|| self.pop_first())?
    }

    fn pop_first(&mut self) -> Option<K> {
        let (_, key) = self.by_time.pop_first()?;
        self.entries.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lives_until_its_time_and_the_first_to_end_makes_room() {
        let mut known = Expiring::new(2);
        assert_eq!((known.insert("a", 5, 1), known.insert("a", 30, 2), known.insert("b", 20, 3)), (None, None, None));
        assert_eq!(known.insert("c", 40, 4), Some("b"));
        assert_eq!((known.get(&"a"), known.get(&"b")), (Some(&2), None));
        assert_eq!(known.pop_due(29), None);
        assert_eq!(known.pop_due(30), Some("a"));
        assert_eq!(known.pop_due(30), None);
        assert_eq!(known.get(&"c"), Some(&4));
        assert_eq!(known.by_time.len(), known.entries.len());
    }
}
