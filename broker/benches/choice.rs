//! What the choice of a batch costs: one of ten alternatives of each request, under a budget that half of them can be paid with.
//!
//! The named baseline is plain dynamic programming over the budget: the least value for every cost, request by request. `cargo bench -p
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
}

fn batch(kind: Kind, requests: usize, seed: u64) -> (Vec<Vec<Item>>, u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut item = || {
        let cost = random.random_range(1..COST_MAX);
        let value = match kind {
            Kind::Uncorrelated => random.random_range(1..COST_MAX),
            Kind::Weakly => 2 * COST_MAX - cost + random.random_range(0..COST_MAX / 10),
            Kind::Strongly => 2 * COST_MAX - cost,
        };
        Item::new(value, cost.unsigned_abs(), random.random_range(0..100 * COST_MAX))
    };
    let items: Vec<Vec<Item>> = (0..requests).map(|_| (0..10).map(|_| item()).collect()).collect();
    let cheapest = items.iter().filter_map(|items| items.iter().map(|item| item.cost).min()).sum::<i64>();
    let best = items.iter().filter_map(|items| items.iter().min_by_key(|item| (item.value, item.cost)));
    let dearest = best.map(|item| item.cost).sum::<i64>();
    (items, i64::midpoint(cheapest, dearest).unsigned_abs())
}

/// The least value of one alternative of each request within the budget.
fn plain(items: &[Vec<Item>], budget: u64) -> i64 {
    const NEVER: i64 = i64::MAX / 2;
    let mut least = vec![0; budget as usize + 1];
    for items in items {
        let mut next = vec![NEVER; least.len()];
        for item in items {
            let cost = item.cost as usize;
            for (to, from) in next.iter_mut().skip(cost).zip(&least) {
                *to = (*to).min(from + item.value);
            }
        }
        least = next;
    }
    least.into_iter().min().unwrap_or(NEVER)
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
    for kind in [Kind::Uncorrelated, Kind::Weakly, Kind::Strongly] {
        for requests in [20, 100, 1_000] {
            let (mut ours, mut theirs, mut optimal) = (Vec::new(), Vec::new(), 0);
            for seed in 0..SEEDS {
                let (items, budget) = batch(kind, requests, seed);
                let question = Question { items: &items, budget: Some(budget), floor: 0, work: WORK_MAX };
                let (choice, time): (Choice, f64) = timed(|| choose(&question, Aim::Sum));
                ours.push(time);
                let (value, time) = timed(|| plain(&items, budget));
                theirs.push(time);
                optimal += usize::from(choice.worth.value == value);
                assert!(choice.bound.is_some_and(|bound| bound <= value) && choice.worth.value >= value);
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
