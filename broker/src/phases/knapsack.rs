//! N of the hosts at one start with the least host time that a budget pays for: a knapsack problem with a fixed number of items.
//!
//! Under a price `p / q` of time in money, a host weighs `q length + p cost`; the N lightest bound what any N within the budget take.
//! The best such price comes from the lines through the sets found so far. What lies between bound and best set is searched by the
//! hosts in which a set differs from the N lightest: each difference costs its distance from the N-th weight. Source: the 0/1 problem
//! of the dissertation on windows of slots, chapter 2; Lagrange relaxation and core search are the textbook's.
//!
//! Invariant: whole numbers only, so a bound is one. Lengths are below 2^39 and costs below 2^49, so a weight of N of them is below 2^116.

/// Swaps of the sets found are tried while there are at most so many.
const SWAPS_MAX: usize = 1 << 16;

/// Most hosts in which a set that is looked at differs from the lightest: each is a call inside another.
const FLIPS_MAX: usize = 1_000;

/// A host that can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    /// How long its seat lasts.
    pub length: i64,
    /// What it costs.
    pub cost: i64,
}

/// A price of time in money, and the N-th weight under it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Multiplier {
    length: i128,
    cost: i128,
    threshold: i128,
}

impl Multiplier {
    /// How far the host lies below the threshold; nothing when above.
    pub fn below(&self, item: Item) -> i128 {
        (self.weight(item) - self.threshold).min(0)
    }

    /// How far the host lies above the threshold; nothing when below. A set that has it weighs so much more.
    pub fn above(&self, item: Item) -> i128 {
        (self.weight(item) - self.threshold).max(0)
    }

    /// No N hosts within the budget take less time together, when those that can be had lie so far `below` the threshold.
    pub fn bound(&self, pick: usize, below: i128, budget: i64) -> i64 {
        let least = self.threshold * pick as i128 + below - self.cost * i128::from(budget);
        div_ceil(least, self.length).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    fn weight(&self, item: Item) -> i128 {
        self.length * i128::from(item.length) + self.cost * i128::from(item.cost)
    }
}

/// What is known of the hosts at one start.
pub(crate) struct Outcome {
    /// The best N that are better than asked.
    pub found: Option<Vec<usize>>,
    /// No N within the budget take less time.
    pub bound: i64,
    /// What proves the bound; none when the N shortest are within the budget.
    pub multiplier: Option<Multiplier>,
    /// Nodes searched.
    pub nodes: u64,
}

/// N of these items, at least N, that cost at most `budget` and take less time than `below` together. The N cheapest are within the
/// budget.
pub(crate) fn least_together(items: &[Item], pick: usize, budget: i64, below: i64, nodes_max: u64) -> Outcome {
    let (mut dear, mut cheap) = (lightest(items, pick, 1, 0), lightest(items, pick, 0, 1));
    let shortest = sums(items, &dear);
    if shortest.cost <= budget {
        let found = (shortest.length < below).then_some(dear);
        return Outcome { found, bound: shortest.length, multiplier: None, nodes: 0 };
    }
    let mut best = Best { below, set: None };
    best.offer(items, &cheap, budget);
    let (multiplier, lightest_set) = loop {
        let (of_dear, of_cheap) = (sums(items, &dear), sums(items, &cheap));
        let length = i128::from(of_dear.cost - of_cheap.cost);
        let cost = i128::from(of_cheap.length - of_dear.length);
        let set = lightest(items, pick, length, cost);
        let of_set = sums(items, &set);
        let weight = |sums: Item| length * i128::from(sums.length) + cost * i128::from(sums.cost);
        best.offer(items, &set, budget);
        if weight(of_set) == weight(of_dear) {
            let mut multiplier = Multiplier { length, cost, threshold: 0 };
            multiplier.threshold = set.iter().map(|at| multiplier.weight(items[*at])).max().unwrap_or(0);
            break (multiplier, set);
        }
        if of_set.cost <= budget {
            cheap = set;
        } else {
            dear = set;
        }
    };
    let gathered = items.iter().map(|item| multiplier.below(*item)).sum();
    let bound = multiplier.bound(pick, gathered, budget);
    if bound < best.below && pick * (items.len() - pick) <= SWAPS_MAX {
        best.try_swaps(items, &dear, budget);
        best.try_swaps(items, &cheap, budget);
    }
    let mut core = Core::new(items, &lightest_set, multiplier, budget, best, nodes_max);
    let of_lightest = sums(items, &lightest_set);
    core.search(0, 0, 0, of_lightest);
    let is_settled = core.nodes_left > 0;
    let Best { below: least, set } = core.best;
    let bound = if is_settled { least } else { bound.min(least) };
    Outcome { found: set, bound, multiplier: Some(multiplier), nodes: nodes_max - core.nodes_left }
}

/// The N items that weigh least, in no order.
fn lightest(items: &[Item], pick: usize, length: i128, cost: i128) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    let weight = |at: &usize| length * i128::from(items[*at].length) + cost * i128::from(items[*at].cost);
    // Among equals the one that is least in the other way.
    order.select_nth_unstable_by_key(pick - 1, |at| (weight(at), items[*at].cost, items[*at].length, *at));
    order.truncate(pick);
    order
}

fn sums(items: &[Item], set: &[usize]) -> Item {
    let add =
        |sums: Item, at: &usize| Item { length: sums.length + items[*at].length, cost: sums.cost + items[*at].cost };
    set.iter().fold(Item { length: 0, cost: 0 }, add)
}

fn div_ceil(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) > 0)
}

/// The best set within the budget so far.
struct Best {
    /// It takes so long, or this was asked to be undercut.
    below: i64,
    set: Option<Vec<usize>>,
}

impl Best {
    fn offer(&mut self, items: &[Item], set: &[usize], budget: i64) {
        let sums = sums(items, set);
        if sums.cost <= budget && sums.length < self.below {
            (self.below, self.set) = (sums.length, Some(set.to_vec()));
        }
    }

    /// Takes the best of all swaps of one member for one that is not.
    fn try_swaps(&mut self, items: &[Item], set: &[usize], budget: i64) {
        let whole = sums(items, set);
        let mut is_in = vec![false; items.len()];
        set.iter().for_each(|at| is_in[*at] = true);
        let mut swap = None;
        for (place, leaving) in set.iter().map(|at| items[*at]).enumerate() {
            let rest = Item { length: whole.length - leaving.length, cost: whole.cost - leaving.cost };
            for (at, entering) in items.iter().enumerate().filter(|(at, _)| !is_in[*at]) {
                if rest.cost + entering.cost <= budget && rest.length + entering.length < self.below {
                    self.below = rest.length + entering.length;
                    swap = Some((place, at));
                }
            }
        }
        if let Some((place, at)) = swap {
            let mut set = set.to_vec();
            set[place] = at;
            self.set = Some(set);
        }
    }
}

/// The search over the differences from the lightest set.
struct Core {
    /// Items by their distance from the threshold: distance, item, and whether it is in the lightest set.
    order: Vec<(i128, Item, bool, usize)>,
    multiplier: Multiplier,
    budget: i64,
    /// What the lightest set weighs, less the budget.
    base: i128,
    best: Best,
    /// Places in the order where the set differs.
    flips: Vec<usize>,
    lightest: Vec<usize>,
    /// By place in the order: the next one with another item, or on the other side.
    next_other: Vec<usize>,
    nodes_left: u64,
}

impl Core {
    fn new(
        items: &[Item],
        lightest: &[usize],
        multiplier: Multiplier,
        budget: i64,
        best: Best,
        nodes_left: u64,
    ) -> Core {
        let mut is_in = vec![false; items.len()];
        lightest.iter().for_each(|at| is_in[*at] = true);
        let weight = |at: usize| multiplier.weight(items[at]);
        let base = lightest.iter().map(|at| weight(*at)).sum::<i128>() - multiplier.cost * i128::from(budget);
        let mut core = Core {
            order: Vec::new(),
            multiplier,
            budget,
            base,
            best,
            flips: Vec::new(),
            lightest: lightest.to_vec(),
            next_other: Vec::new(),
            nodes_left,
        };
        let gap = core.gap();
        let far = |at: usize| ((weight(at) - multiplier.threshold).abs(), items[at], is_in[at], at);
        core.order.extend((0..items.len()).map(far).filter(|(far, ..)| *far <= gap));
        core.order.sort_unstable();
        core.next_other = (1..=core.order.len()).collect();
        for at in (1..core.order.len()).rev() {
            let ((_, item, is_in, _), (_, before, was_in, _)) = (core.order[at], core.order[at - 1]);
            if (item, is_in) == (before, was_in) {
                core.next_other[at - 1] = core.next_other[at];
            }
        }
        core
    }

    /// What a set may weigh more than the lightest one and still be better than the best.
    fn gap(&self) -> i128 {
        self.multiplier.length * i128::from(self.best.below - 1) - self.base
    }

    /// Looks at the sets that differ in `flips`, and in items from `from` on: `spent` is what the flips weigh, `more` how many items the
    /// set has beyond N, `sums` what it measures.
    fn search(&mut self, from: usize, spent: i128, more: i64, sums: Item) {
        if more == 0 && sums.cost <= self.budget && sums.length < self.best.below {
            let flipped = |at: &usize| self.flips.iter().any(|flip| self.order[*flip].3 == *at);
            let mut set: Vec<usize> = self.lightest.iter().copied().filter(|at| !flipped(at)).collect();
            set.extend(
                self.flips.iter().map(|flip| &self.order[*flip]).filter(|(_, _, is_in, _)| !is_in).map(|flip| flip.3),
            );
            self.best = Best { below: sums.length, set: Some(set) };
        }
        if self.flips.len() == FLIPS_MAX {
            self.nodes_left = 0;
        }
        let added = (self.flips.len().cast_signed() as i64 + more) / 2;
        let mut next = from;
        while next < self.order.len() {
            let at = next;
            let (far, item, is_in, _) = self.order[at];
            if spent + far > self.gap() || self.nodes_left == 0 {
                return;
            }
            self.nodes_left -= 1;
            // Of equal items the first ones are flipped.
            next = self.next_other[at];
            let sign = if is_in { -1 } else { 1 };
            let to_balance = i128::from((more + sign).abs());
            let is_full = !is_in && added == self.lightest.len().cast_signed() as i64;
            if is_full || spent + far * (1 + to_balance) > self.gap() {
                continue;
            }
            self.flips.push(at);
            let sums = Item { length: sums.length + sign * item.length, cost: sums.cost + sign * item.cost };
            self.search(at + 1, spent + far, more + sign, sums);
            self.flips.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least time of any N within the budget.
    fn slowly(items: &[Item], pick: usize, budget: i64) -> Option<i64> {
        let sets = (0_u32..1 << items.len()).filter(|set| set.count_ones() as usize == pick);
        let of = |set: u32| sums(items, &(0..items.len()).filter(|at| set >> at & 1 == 1).collect::<Vec<_>>());
        sets.map(of).filter(|sums| sums.cost <= budget).map(|sums| sums.length).min()
    }

    #[test]
    fn many_hosts_of_two_kinds_take_few_nodes() {
        let of_kind = |length, cost| std::iter::repeat_n(Item { length, cost }, 5_000);
        let items: Vec<Item> = of_kind(50, 100).chain(of_kind(100, 60)).collect();
        let outcome = least_together(&items, 10, 810, i64::MAX, 1_000_000);
        assert_eq!((outcome.found.map(|set| sums(&items, &set).length), outcome.bound), (Some(750), 750));
        assert!(outcome.nodes < 10_000, "{} nodes", outcome.nodes);
    }

    #[test]
    fn a_bound_far_below_nothing_is_no_large_one() {
        let multiplier = Multiplier { length: 1, cost: 1 << 39, threshold: 0 };
        assert_eq!(multiplier.bound(1, -(1 << 100), 1 << 47), i64::MIN);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn the_least_time_is_that_of_all_sets(
            raw in prop::collection::vec((1_i64..60, 0_i64..60), 1..13), pick in 1_usize..6, spare in 0_i64..120,
            below in prop_oneof![Just(i64::MAX), 20_i64..200], nodes in prop_oneof![Just(1_u64), Just(1 << 20)],
        ) {
            let items: Vec<Item> = raw.into_iter().map(|(length, cost)| Item { length, cost }).collect();
            prop_assume!(items.len() >= pick);
            let budget = sums(&items, &lightest(&items, pick, 0, 1)).cost + spare;
            let least = slowly(&items, pick, budget).unwrap();
            let Outcome { found, bound, multiplier, .. } = least_together(&items, pick, budget, below, nodes);
            prop_assert!(bound <= least);
            if let Some(set) = &found {
                let sums = sums(&items, set);
                prop_assert!(sums.cost <= budget && sums.length < below && sums.length >= least);
                let distinct: std::collections::BTreeSet<_> = set.iter().collect();
                prop_assert_eq!(distinct.len(), pick);
            }
            if nodes > 1 {
                prop_assert_eq!(found.map(|set| sums(&items, &set).length), Some(least).filter(|least| *least < below));
            }
            if let Some(multiplier) = multiplier {
                let gathered = items.iter().map(|item| multiplier.below(*item)).sum();
                prop_assert!(multiplier.bound(pick, gathered, budget) <= least);
            }
        }
    }
}
