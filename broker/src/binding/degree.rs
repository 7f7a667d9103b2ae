//! The source's own test of admission: every reservation keeps more candidates than those with earlier starts can take (`freeDeg`).
//!
//! It is the textbook baseline of studies and tests, and a loss is never worse than its rule (figure 2). Seats on parts are not in it.
//! Invariant: reservations are in the order of their starts; of equal starts, in the order in which they came.

use crate::model::time::Window;

/// A reservation in the source's graph.
#[derive(Debug, Clone)]
struct Node<K> {
    key: K,
    window: Window,
    /// Numbers of its candidates, sorted.
    candidates: Vec<usize>,
    /// Whether it is on its only candidate already.
    is_bound: bool,
}

/// The resource-reservation graph: reservations by start, and the numbers of the hosts that each could use.
#[derive(Debug, Clone)]
pub struct Degrees<K> {
    nodes: Vec<Node<K>>,
    hosts: usize,
}

impl<K: Copy + PartialEq> Degrees<K> {
    /// The graph of so many hosts, numbered from 0, without reservations.
    #[must_use]
    pub fn new(hosts: usize) -> Degrees<K> {
        Degrees { nodes: Vec::new(), hosts }
    }

    /// Algorithm 1: takes the reservation in if it and every later one that it crosses keep a candidate (1).
    pub fn admit(&mut self, key: K, window: Window, candidates: Vec<usize>) -> bool {
        let at = self.insert(key, window, candidates);
        let is_kept = self.satisfies(at);
        if !is_kept {
            self.nodes.remove(at);
        }
        is_kept
    }

    /// Puts a reservation in, whatever it does to others, and says where.
    pub(super) fn insert(&mut self, key: K, window: Window, mut candidates: Vec<usize>) -> usize {
        candidates.sort_unstable();
        let at = self.nodes.partition_point(|node| node.window.start <= window.start);
        self.nodes.insert(at, Node { key, window, candidates, is_bound: false });
        at
    }

    /// The end of algorithm 2: the reservation is on this host, which later ones that it crosses can no longer have.
    pub fn bind(&mut self, key: K, host: usize) {
        let Some(at) = self.nodes.iter().position(|node| node.key == key) else { return };
        let window = self.nodes[at].window;
        self.nodes[at].candidates = vec![host];
        self.nodes[at].is_bound = true;
        for later in self.nodes[at + 1..].iter_mut().filter(|later| !later.is_bound && later.window.overlaps(window)) {
            later.candidates.retain(|candidate| *candidate != host);
        }
    }

    /// Candidates of a reservation that is not bound.
    #[must_use]
    pub fn candidates(&self, key: K) -> &[usize] {
        self.nodes.iter().find(|node| node.key == key).map_or(&[], |node| &node.candidates)
    }

    /// A reservation has ended.
    pub fn remove(&mut self, key: K) {
        self.nodes.retain(|node| node.key != key);
    }

    /// Figure 2: a host fails. The reservations that are given up.
    pub fn fail(&mut self, host: usize) -> Vec<K> {
        let uses = |node: &Node<K>| node.candidates.contains(&host);
        let mut touched: Vec<K> = self.nodes.iter().filter(|node| uses(node)).map(|node| node.key).collect();
        let mut lost: Vec<K> =
            self.nodes.iter().filter(|node| uses(node) && node.is_bound).map(|node| node.key).collect();
        lost.iter().for_each(|key| self.remove(*key));
        self.nodes.iter_mut().for_each(|node| node.candidates.retain(|candidate| *candidate != host));
        touched.retain(|key| !lost.contains(key));
        loop {
            let at = |key: &K| self.nodes.iter().position(|node| node.key == *key);
            touched.retain(|key| at(key).is_none_or(|at| !self.satisfies(at)));
            // In the order of starts, as the nodes are.
            let Some(first) = touched.first().copied() else { return lost };
            self.remove(first);
            touched.remove(0);
            lost.push(first);
        }
    }

    /// Whether every reservation keeps a candidate.
    pub(super) fn all_are_free(&self) -> bool {
        (0..self.nodes.len()).all(|at| self.is_free(at))
    }

    /// (1): the reservation and every later one that it crosses keep a candidate.
    fn satisfies(&self, at: usize) -> bool {
        let window = self.nodes[at].window;
        let crossed = |later: &usize| self.nodes[*later].window.overlaps(window);
        self.is_free(at) && (at + 1..self.nodes.len()).filter(crossed).all(|later| self.is_free(later))
    }

    /// `freeDeg > 0`: fewer candidates can be taken than there are.
    fn is_free(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        if node.is_bound {
            return true;
        }
        let mut is_candidate = vec![false; self.hosts];
        node.candidates.iter().for_each(|host| is_candidate[*host] = true);
        let (mut is_contested, mut rivals) = (vec![false; self.hosts], 0);
        for earlier in self.nodes[..at].iter().filter(|earlier| earlier.window.overlaps(node.window)) {
            let mut is_rival = false;
            for host in earlier.candidates.iter().filter(|host| is_candidate[**host]) {
                is_contested[*host] = true;
                is_rival = true;
            }
            rivals += usize::from(is_rival);
        }
        let contested = is_contested.into_iter().filter(|is_contested| *is_contested).count();
        node.candidates.len() > contested.min(rivals)
    }
}
