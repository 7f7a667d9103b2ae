//! What has been verified before, so that a repeated hold, or the next of the same user, costs no signature check.
//!
//! Invariant: only what was verified is in it, under the whole of its bytes; at most `entries_max` entries of
//! `bytes_max` bytes together. At a bound the oldest goes, which costs time only.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    entries_max: usize,
    bytes_max: usize,
    bytes: usize,
    verified: BTreeMap<K, (V, usize)>,
    oldest_first: VecDeque<K>,
}

impl<K: Ord + Clone, V> Cache<K, V> {
    pub fn new(entries_max: usize, bytes_max: usize) -> Cache<K, V> {
        Cache { entries_max, bytes_max, bytes: 0, verified: BTreeMap::new(), oldest_first: VecDeque::new() }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.verified.get(key).map(|(value, _)| value)
    }

    /// Empties the cache: chains are verified anew once a root has a successor.
    pub fn clear(&mut self) {
        self.verified.clear();
        self.oldest_first.clear();
        self.bytes = 0;
    }

    /// Remembers `value`, which takes `bytes` of memory together with its key.
    pub fn insert(&mut self, key: &K, value: V, bytes: usize) {
        if bytes > self.bytes_max || self.verified.contains_key(key) {
            return;
        }
        while (self.verified.len() >= self.entries_max || self.bytes + bytes > self.bytes_max)
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            if let Some((_, freed)) = self.verified.remove(&oldest) {
                self.bytes -= freed;
            }
        }
        self.bytes += bytes;
        self.verified.insert(key.clone(), (value, bytes));
        self.oldest_first.push_back(key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_bytes_are_bounded_and_the_oldest_goes() {
        let mut cache = Cache::new(3, 100);
        for key in 0..5 {
            cache.insert(&key, key * 10, 20);
        }
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&4)), (None, Some(&20), Some(&40)));
        cache.insert(&9, 90, 70);
        assert_eq!((cache.get(&3), cache.get(&4), cache.get(&9)), (None, Some(&40), Some(&90)));
        cache.insert(&10, 100, 101);
        assert_eq!((cache.get(&10), cache.bytes, cache.oldest_first.len()), (None, 90, 2));
        cache.clear();
        assert_eq!((cache.get(&9), cache.bytes, cache.oldest_first.len()), (None, 0, 0));
    }
}
