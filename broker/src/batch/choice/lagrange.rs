//! The Lagrange bound of the choice: the budget, and how many requests are postponed, are paid for instead of kept.
//!
//! With a price `a / scale` of each unit of cost and `postponing / scale` of each postponed request, every request takes the
//! cheapest it can have by itself. The sum is a bound for every choice that keeps both limits; the price of cost is found by
//! bisection. Invariant: all in whole numbers, multiplied by `scale`, so a bound is never above the optimum by rounding.

use super::question::Item;

/// The prices of a relaxed choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices {
    pub scale: i128,
    /// Of a unit of cost.
    pub cost: i128,
    /// Of a postponed request.
    pub postponing: i128,
}

impl Prices {
    /// What an item is worth at these prices.
    pub fn of(&self, item: &Item) -> i128 {
        self.scale * i128::from(item.value) + self.cost * i128::from(item.cost)
    }
}

/// What each request takes by itself.
#[derive(Debug, Clone)]
pub(super) struct Relaxed {
    pub prices: Prices,
    /// By request: its item; none where it is postponed.
    pub picks: Vec<Option<usize>>,
    /// What each request takes is worth.
    pub least: Vec<i128>,
    /// The bound, multiplied by `scale`.
    pub bound: i128,
    /// What the picks cost.
    pub spent: i64,
}

/// How many requests must be postponed so that the others can be paid for; every request has an item.
pub(super) fn postponed_least(items: &[Vec<Item>], limit: i64) -> usize {
    let mut cheapest: Vec<i64> = items.iter().filter_map(|of_one| of_one.iter().map(|item| item.cost).min()).collect();
    cheapest.sort_unstable();
    let mut left = limit;
    let placed = cheapest.iter().take_while(|cost| {
        left -= **cost;
        left >= 0
    });
    items.len() - placed.count()
}

/// The relaxed choice with the best bound of those that keep the limits; there is one when so many are postponed.
pub(super) fn relax(items: &[Vec<Item>], limit: i64, postponed: usize) -> Relaxed {
    let most = items.iter().flatten().fold((0, 0), |most, item| (item.value.max(most.0), item.cost.max(most.1)));
    // The largest sum: price times cost times requests, below 2^120.
    let bits = |number: i64| 64 - number.leading_zeros();
    let scale = 1_i128 << (120 - bits(most.0 + 1) - bits(most.1) - bits((items.len() as u64).cast_signed())).min(32);
    let at = |cost| relax_at(items, limit, postponed, Prices { scale, cost, postponing: 0 });
    let mut kept = at(0);
    let (mut low, mut high) = (0, (i128::from(most.0) + 1) * scale);
    if kept.spent > limit {
        kept = at(high);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let tried = at(middle);
            if tried.spent <= limit {
                (high, kept) = (middle, tried);
            } else {
                low = middle;
            }
        }
    }
    kept
}

fn relax_at(items: &[Vec<Item>], limit: i64, postponed: usize, mut prices: Prices) -> Relaxed {
    let best = |of_one: &Vec<Item>| {
        let worth = |(at, item): (usize, &Item)| (prices.of(item), item.cost, item.end, at);
        of_one.iter().enumerate().map(worth).min().unwrap_or((i128::MAX, 0, 0, 0))
    };
    let found: Vec<(i128, i64, i64, usize)> = items.iter().map(best).collect();
    let mut picks: Vec<Option<usize>> = found.iter().map(|best| Some(best.3)).collect();
    if postponed > 0 {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_unstable_by_key(|at| std::cmp::Reverse((found[*at].0, found[*at].1)));
        order[..postponed].iter().for_each(|at| picks[*at] = None);
        prices.postponing = found[order[postponed - 1]].0;
    }
    let placed = || found.iter().zip(&picks).filter(|(_, pick)| pick.is_some()).map(|(best, _)| best);
    Relaxed {
        bound: placed().map(|best| best.0).sum::<i128>() - prices.cost * i128::from(limit),
        spent: placed().map(|best| best.1).sum(),
        least: found.iter().map(|best| if postponed > 0 { best.0.min(prices.postponing) } else { best.0 }).collect(),
        picks,
        prices,
    }
}
