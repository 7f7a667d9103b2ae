//! What the choice of a batch costs: one of ten alternatives of each request, under a budget between the cheapest and the best choice, or
//! (scarce) of half of the cheapest, so that some requests are postponed.
//!
//! The named baseline is plain dynamic programming over the budget: the least value for every cost, request by request; to postpone one is the dearest. `cargo bench -p
//! broker --bench choice` prints one table of medians with the ratio of the baseline to the choice in the same run.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

mod timing;

use broker::batch::choice::{Aim, Choice, Item, Question, WORK_MAX, choose};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use timing::{is_bench, median, timed};

const COST_MAX: i64 = 1_000;
const SEEDS: u64 = 5;

/// How value and cost of an alternative hang together.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Uncorrelated,
    Weakly,
    Strongly,
    /// As strongly.
    Scarce,
}

fn batch(kind: Kind, requests: usize, seed: u64) -> (Vec<Vec<Item>>, u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut item = || {
        let cost = random.random_range(1..COST_MAX);
        let value = match kind {
            Kind::Uncorrelated => random.random_range(1..COST_MAX),
            Kind::Weakly => 2 * COST_MAX - cost + random.random_range(0..COST_MAX / 10),
            Kind::Strongly | Kind::Scarce => 2 * COST_MAX - cost,
        };
        Item::new(value, cost.unsigned_abs(), random.random_range(0..100 * COST_MAX))
    };
    let items: Vec<Vec<Item>> = (0..requests).map(|_| (0..10).map(|_| item()).collect()).collect();
    let cheapest = items.iter().filter_map(|items| items.iter().map(|item| item.cost).min()).sum::<i64>();
    let best = items.iter().filter_map(|items| items.iter().min_by_key(|item| (item.value, item.cost)));
    let dearest = best.map(|item| item.cost).sum::<i64>();
    let budget = if matches!(kind, Kind::Scarce) { cheapest / 2 } else { i64::midpoint(cheapest, dearest) };
    (items, budget.unsigned_abs())
}

/// A request that is postponed is worse than any value of all others.
const POSTPONED: i64 = 1 << 40;

/// The least value of one alternative of each request, or none, within the budget.
fn plain(items: &[Vec<Item>], budget: u64) -> i64 {
    let mut least = vec![0; budget as usize + 1];
    for items in items {
        let mut next: Vec<i64> = least.iter().map(|value| value + POSTPONED).collect();
        for item in items {
            let cost = item.cost as usize;
            for (to, from) in next.iter_mut().skip(cost).zip(&least) {
                *to = (*to).min(from + item.value);
            }
        }
        least = next;
    }
    least.into_iter().min().unwrap_or(0)
}

fn main() {
    if !is_bench() {
        return;
    }
    println!(
        "ten alternatives a request; median and worst milliseconds of {SEEDS} (baseline: plain dynamic programming over the budget)"
    );
    println!(
        "{:<13} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8}",
        "kind", "requests", "optimal", "choice", "worst", "baseline", "ratio"
    );
    for kind in [Kind::Uncorrelated, Kind::Weakly, Kind::Strongly, Kind::Scarce] {
        for requests in [20, 100, 1_000] {
            let (mut ours, mut theirs, mut optimal) = (Vec::new(), Vec::new(), 0);
            for seed in 0..SEEDS {
                let (items, budget) = batch(kind, requests, seed);
                let question = Question { items: &items, budget: Some(budget), floor: 0, work: WORK_MAX };
                let (choice, time): (Choice, f64) = timed(|| choose(&question, Aim::Sum));
                ours.push(time);
                let (value, time) = timed(|| plain(&items, budget));
                theirs.push(time);
                let worth = choice.worth.value + POSTPONED * (choice.worth.postponed as u64).cast_signed();
                optimal += usize::from(worth == value);
                let is_known = choice.bound.is_some() || matches!(kind, Kind::Scarce);
                assert!(is_known && choice.bound.is_none_or(|bound| bound <= choice.worth.value) && worth >= value);
            }
            let worst = ours.iter().copied().fold(0.0, f64::max);
            let (ours, theirs) = (median(ours), median(theirs));
            let kind = format!("{kind:?}").to_lowercase();
            println!(
                "{kind:<13} {requests:>8} {optimal:>8} {ours:>9.3} {worst:>9.3} {theirs:>9.1} {:>8.1}",
                theirs / ours
            );
        }
    }
}
