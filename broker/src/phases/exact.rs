//! The small exact search of phase IV: whether N of the available hosts reach every total, by branch and bound.
//!
//! Hosts are ordered by their worth under the multipliers that came nearest to excluding the start, so the worthiest sets
//! are met first, and leaving a worthy host out soon costs more than the surplus allows. A branch ends where the
//! worthiest completion misses the target, or where the most of one resource misses its total.
//!
//! Invariant: [`Settled::Impossible`] is only returned when every N-subset was looked at or cut by such a bound.

use super::{
    bounds::Weights,
    problem::{Problem, Slot},
};

/// Most entries of the table of largest sums; without it the search relies on worths alone.
const TABLE_MAX: usize = 1 << 20;

/// What the search found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// These positions reach every total.
    Found(Vec<u32>),
    /// No N of the hosts do.
    Impossible,
    /// The limit was reached first.
    Unknown,
}

struct Tree<'t> {
    pick: usize,
    binding: Vec<usize>,
    needed: &'t [i64],
    /// Positions by falling worth.
    order: Vec<u32>,
    /// Sums of the worths of the first hosts in order.
    worth_before: Vec<i64>,
    target: i64,
    /// Free amounts in order, only of binding resources.
    free: Vec<i64>,
    /// Sum of the k largest amounts among the hosts from p on, indexed `((p * (pick + 1)) + k) * binding + resource`.
    largest: Option<Vec<i64>>,
}

/// Settles one start within `nodes_max` nodes; tells how many it took.
pub(crate) fn search(problem: &Problem<'_>, slot: &Slot, weights: &Weights, nodes_max: u32) -> (Settled, u32) {
    let tree = Tree::new(problem, slot, weights);
    tree.search(nodes_max)
}

impl<'t> Tree<'t> {
    fn new(problem: &'t Problem<'_>, slot: &Slot, weights: &Weights) -> Tree<'t> {
        let width = problem.width();
        let binding: Vec<usize> = (0..width).filter(|resource| problem.is_binding[*resource]).collect();
        let worths: Vec<i64> = slot.free.chunks_exact(width).map(|free| weights.worth(problem, free)).collect();
        let mut order: Vec<u32> = (0..slot.len() as u32).collect();
        order.sort_by_key(|at| std::cmp::Reverse(worths[*at as usize]));
        let mut worth_before = vec![0];
        let mut free = Vec::with_capacity(slot.len() * binding.len());
        let mut sum = 0;
        for at in &order {
            sum += worths[*at as usize];
            worth_before.push(sum);
            free.extend(binding.iter().map(|resource| slot.free[*at as usize * width + resource]));
        }
        let mut tree = Tree {
            pick: problem.pick,
            binding,
            needed: &problem.needed,
            order,
            worth_before,
            target: weights.target,
            free,
            largest: None,
        };
        tree.largest = tree.largest_sums();
        tree
    }

    fn largest_sums(&self) -> Option<Vec<i64>> {
        let (hosts, kinds, row) = (self.order.len(), self.binding.len(), self.pick + 1);
        if (hosts + 1).saturating_mul(row).saturating_mul(kinds) > TABLE_MAX {
            return None;
        }
        let mut sums = vec![0; (hosts + 1) * row * kinds];
        for kind in 0..kinds {
            let mut largest: Vec<i64> = Vec::with_capacity(self.pick + 1);
            for from in (0..hosts).rev() {
                let amount = self.free[from * kinds + kind];
                let at = largest.partition_point(|other| *other >= amount);
                if at < self.pick {
                    largest.truncate(self.pick - 1);
                    largest.insert(at, amount);
                }
                let mut sum = 0;
                for (count, amount) in largest.iter().enumerate() {
                    sum += amount;
                    sums[(from * row + count + 1) * kinds + kind] = sum;
                }
            }
        }
        Some(sums)
    }

    /// Whether some completion by hosts from `from` on is not cut.
    fn can_complete(&self, from: usize, chosen: usize, worth: i64, sums: &[i64]) -> bool {
        let left = self.pick - chosen;
        if from + left > self.order.len()
            || worth + self.worth_before[from + left] - self.worth_before[from] < self.target
        {
            return false;
        }
        let Some(largest) = &self.largest else { return true };
        let kinds = self.binding.len();
        let row = &largest[(from * (self.pick + 1) + left) * kinds..][..kinds];
        self.binding.iter().enumerate().all(|(kind, resource)| sums[kind] + row[kind] >= self.needed[*resource])
    }

    fn search(&self, nodes_max: u32) -> (Settled, u32) {
        let kinds = self.binding.len();
        let mut chosen: Vec<usize> = Vec::with_capacity(self.pick);
        let mut sums = vec![0_i64; kinds];
        let (mut next, mut worth) = (0, 0);
        for nodes in 0..nodes_max {
            if chosen.len() == self.pick
                && self.binding.iter().zip(&sums).all(|(resource, sum)| *sum >= self.needed[*resource])
            {
                return (Settled::Found(chosen.iter().map(|at| self.order[*at]).collect()), nodes);
            }
            if chosen.len() < self.pick && self.can_complete(next, chosen.len(), worth, &sums) {
                chosen.push(next);
                worth += self.worth_before[next + 1] - self.worth_before[next];
                sums.iter_mut().zip(&self.free[next * kinds..]).for_each(|(sum, free)| *sum += free);
                next += 1;
                continue;
            }
            // Both bounds only fall with later hosts, so the whole rest of this level is cut as well.
            let Some(last) = chosen.pop() else { return (Settled::Impossible, nodes) };
            worth -= self.worth_before[last + 1] - self.worth_before[last];
            sums.iter_mut().zip(&self.free[last * kinds..]).for_each(|(sum, free)| *sum -= free);
            next = last + 1;
        }
        (Settled::Unknown, nodes_max)
    }
}
