//! The figures of the tables, from the planned cases.
//!
//! Invariant: every figure counts cases that both sides of a comparison have answered.

use std::collections::BTreeMap;

use broker::plan::Allocation;
use serde::Serialize;

use super::measure::Case;

/// What one N came to.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    /// N.
    pub hosts: usize,
    /// Requests.
    pub cases: usize,
    /// Requests that got a plan.
    pub solved: usize,
    /// Requests with a proven start, when proven starts were given.
    pub solvable: Option<usize>,
    /// Plans that start later than proven possible, and solvable requests without a plan.
    pub late_or_missed: Option<usize>,
    /// Answers that carry a proof of their start or of its absence.
    pub proven: usize,
    /// Plans whose host set is proven the best at its start.
    pub optimal: usize,
    /// Mean of `efficiency / efficiency_bound` over the plans.
    pub efficiency_of_bound: f64,
    /// Phases II to V, mean.
    pub mean_us: f64,
    /// Phases II to V, median.
    pub median_us: f64,
    /// The textbook version, when it ran.
    pub textbook: Option<TextbookRow>,
}

/// The textbook version beside it.
#[derive(Debug, Serialize)]
pub struct TextbookRow {
    /// Requests that got a plan.
    pub solved: usize,
    /// Plans that start later than Kolo's, and requests that only Kolo solved.
    pub later_or_missed: usize,
    /// Its factor as a part of Kolo's, mean over plans with the same start.
    pub efficiency_of_kolo: f64,
    /// Phases II to V, mean.
    pub mean_us: f64,
    /// Phases II to V, median.
    pub median_us: f64,
    /// Its mean time as a multiple of Kolo's.
    pub times_slower: f64,
}

/// Simple against collective requests, as in the source's tables 3.2 and 3.3.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Pairs of requests.
    pub cases: usize,
    /// Solved as simple and as collective requests.
    pub solved_simple: usize,
    /// See `solved_simple`.
    pub solved_collective: usize,
    /// Solved by both.
    pub solved_by_both: usize,
    /// Of these, the collective one starts earlier, and by how many hours on average.
    pub collective_earlier: usize,
    /// See `collective_earlier`.
    pub hours_earlier: f64,
    /// Of these, the simple one starts earlier.
    pub simple_earlier: usize,
    /// At the same start: the collective factor is better, and by how much on average.
    pub collective_better: usize,
    /// See `collective_better`; in parts of the simple factor.
    pub collective_gain: f64,
    /// At the same start: the simple factor is better.
    pub simple_better: usize,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// One row for every N.
pub fn rows(cases: &[Case]) -> Vec<Row> {
    let mut by_hosts: BTreeMap<usize, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_hosts.entry(case.hosts).or_default().push(case);
    }
    by_hosts.into_iter().map(|(hosts, cases)| row(hosts, &cases)).collect()
}

fn allocation(case: &Case) -> Option<&Allocation> {
    case.kolo.outcome.allocation()
}

fn row(hosts: usize, cases: &[&Case]) -> Row {
    let plans: Vec<&Allocation> = cases.iter().filter_map(|case| allocation(case)).collect();
    let judged = cases.iter().all(|case| case.exact.is_some());
    let solvable = cases.iter().filter(|case| matches!(case.exact, Some(Some(_)))).count();
    let is_late = |case: &&&Case| {
        let start = allocation(case).map(|allocation| allocation.start);
        case.exact.flatten().is_some_and(|exact| start.is_none_or(|start| start > exact))
    };
    let mean_us = mean(cases.iter().map(|case| case.kolo_us()));
    Row {
        hosts,
        cases: cases.len(),
        solved: plans.len(),
        solvable: judged.then_some(solvable),
        late_or_missed: judged.then(|| cases.iter().filter(is_late).count()),
        proven: cases.iter().filter(|case| case.kolo.outcome.start_proven()).count(),
        optimal: plans.iter().filter(|plan| plan.is_optimal_at_start()).count(),
        efficiency_of_bound: mean(
            plans.iter().map(|plan| plan.efficiency / plan.efficiency_bound.max(f64::MIN_POSITIVE)),
        ),
        mean_us,
        median_us: median(cases.iter().map(|case| case.kolo_us())),
        textbook: textbook_row(cases, mean_us),
    }
}

fn textbook_row(cases: &[&Case], kolo_mean_us: f64) -> Option<TextbookRow> {
    let both: Option<Vec<_>> = cases.iter().map(|case| Some((*case, case.textbook.as_ref()?))).collect();
    let both = both?;
    let later = both.iter().filter(|(case, textbook)| match (allocation(case), &textbook.plan) {
        (Some(kolo), Some(plan)) => plan.start > kolo.start,
        (Some(_), None) => true,
        (None, _) => false,
    });
    let at_same_start = both.iter().filter_map(|(case, textbook)| {
        let (kolo, plan) = (allocation(case)?, textbook.plan.as_ref()?);
        (kolo.start == plan.start && kolo.efficiency > 0.0).then(|| plan.efficiency / kolo.efficiency)
    });
    let mean_us = mean(both.iter().map(|(_, textbook)| textbook.us));
    Some(TextbookRow {
        solved: both.iter().filter(|(_, textbook)| textbook.plan.is_some()).count(),
        later_or_missed: later.count(),
        efficiency_of_kolo: mean(at_same_start),
        mean_us,
        median_us: median(both.iter().map(|(_, textbook)| textbook.us)),
        times_slower: mean_us / kolo_mean_us.max(f64::MIN_POSITIVE),
    })
}

/// Compares the same requests in both kinds, line by line.
pub fn compare(collective: &[Case], simple: &[Case]) -> Comparison {
    /// Smaller relative differences of factors are rounding.
    const SAME: f64 = 1e-9;
    let pairs: Vec<_> = collective.iter().zip(simple).map(|(c, s)| (allocation(c), allocation(s))).collect();
    let both: Vec<(&Allocation, &Allocation)> = pairs.iter().filter_map(|(c, s)| Some(((*c)?, (*s)?))).collect();
    let earlier: Vec<f64> =
        both.iter().filter(|(c, s)| c.start < s.start).map(|(c, s)| s.start.since(c.start).0 as f64 / 3600.0).collect();
    let gains: Vec<f64> = both
        .iter()
        .filter(|(c, s)| c.start == s.start && s.efficiency > 0.0)
        .map(|(c, s)| c.efficiency / s.efficiency - 1.0)
        .collect();
    Comparison {
        cases: pairs.len(),
        solved_simple: pairs.iter().filter(|(_, s)| s.is_some()).count(),
        solved_collective: pairs.iter().filter(|(c, _)| c.is_some()).count(),
        solved_by_both: both.len(),
        collective_earlier: earlier.len(),
        hours_earlier: mean(earlier.iter().copied()),
        simple_earlier: both.iter().filter(|(c, s)| s.start < c.start).count(),
        collective_better: gains.iter().filter(|gain| **gain > SAME).count(),
        collective_gain: mean(gains.iter().copied().filter(|gain| *gain > SAME)),
        simple_better: gains.iter().filter(|gain| **gain < -SAME).count(),
    }
}
