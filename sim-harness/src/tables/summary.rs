//! The figures of the tables, from the planned cases.
//!
//! Invariant: every figure counts cases that both sides of a comparison have answered.

use std::collections::BTreeMap;

use broker::plan::Plan;
use serde::Serialize;

use super::measure::{Answer, Case, Run};
use crate::stats::{Spread, mean, median, spread};

/// Smaller relative differences of factors are rounding.
const SAME: f64 = 1e-9;
/// Seconds in an hour.
const HOUR_S: f64 = 3600.0;

/// Which of the answers to a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Kolo's core.
    Kolo,
    /// The source's pseudo-code.
    Textbook,
    /// A policy, by its place among those named.
    Policy(usize),
}

impl Version {
    /// What it answered to a case, if it was asked.
    pub fn run(self, case: &Case) -> Option<Run> {
        match self {
            Version::Kolo => Some(case.kolo),
            Version::Textbook => case.textbook,
            Version::Policy(at) => case.policies.get(at).copied(),
        }
    }

    fn answer(self, case: &Case) -> Option<Answer> {
        self.run(case)?.answer
    }
}

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
    /// Phases II to V one by one, mean.
    pub phases_us: [f64; 4],
    /// The textbook version, when it ran.
    pub textbook: Option<BesideRow>,
    /// The policies named, in their order.
    pub policies: Vec<BesideRow>,
}

/// Another version beside Kolo's core.
#[derive(Debug, Serialize)]
pub struct BesideRow {
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
    /// Phases II to V one by one, mean; zeros when the version does not tell.
    pub phases_us: [f64; 4],
    /// Its mean time as a multiple of Kolo's.
    pub times_slower: f64,
}

/// Simple against collective requests, as in the source's table 3.2.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// N; `None` for all.
    pub hosts: Option<usize>,
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
    /// Both start at the same time.
    pub same_start: usize,
    /// At the same start: the collective factor is better, and by how much on average.
    pub collective_better: usize,
    /// See `collective_better`; in parts of the simple factor.
    pub collective_gain: f64,
    /// At the same start: the simple factor is better.
    pub simple_better: usize,
}

/// One version against exhaustive search, as in a column of the source's table 3.3.
#[derive(Debug, Serialize)]
pub struct Optimality {
    /// Cases searched.
    pub cases: usize,
    /// Cases that exhaustive search solves.
    pub solvable: usize,
    /// Of these, the version solved.
    pub solved: usize,
    /// Of these, it starts later.
    pub late: usize,
    /// By so many hours, mean.
    pub delay_hours: f64,
    /// Its factor as a part of the best one, where it starts at the same time; each case, ascending.
    pub factor_shares: Vec<f64>,
    /// Their mean.
    pub factor_share: f64,
    /// How many of them are above 0.99.
    pub above_99: usize,
}

/// The cases of each N.
pub fn by_hosts(cases: &[Case]) -> BTreeMap<usize, Vec<&Case>> {
    let mut by_hosts: BTreeMap<usize, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_hosts.entry(case.hosts).or_default().push(case);
    }
    by_hosts
}

/// One row for every N.
pub fn rows(cases: &[Case], policies: usize) -> Vec<Row> {
    by_hosts(cases).into_iter().map(|(hosts, cases)| row(hosts, &cases, policies)).collect()
}

fn plan(case: &Case) -> Option<&Plan> {
    case.line.outcome.plan()
}

fn row(hosts: usize, cases: &[&Case], policies: usize) -> Row {
    let plans: Vec<&Plan> = cases.iter().filter_map(|case| plan(case)).collect();
    let judged = cases.iter().all(|case| case.exact.is_some());
    let solvable = cases.iter().filter(|case| matches!(case.exact, Some(Some(_)))).count();
    let is_late = |case: &&&Case| {
        let start = case.kolo.answer.map(|answer| answer.start);
        case.exact.flatten().is_some_and(|exact| start.is_none_or(|start| start > exact))
    };
    let runs: Vec<Run> = cases.iter().map(|case| case.kolo).collect();
    Row {
        hosts,
        cases: cases.len(),
        solved: plans.len(),
        solvable: judged.then_some(solvable),
        late_or_missed: judged.then(|| cases.iter().filter(is_late).count()),
        proven: cases.iter().filter(|case| case.line.outcome.start_proven()).count(),
        optimal: plans.iter().filter(|plan| plan.is_optimal_at_start()).count(),
        efficiency_of_bound: mean(
            plans.iter().map(|plan| plan.efficiency / plan.efficiency_bound.max(f64::MIN_POSITIVE)),
        ),
        mean_us: mean(runs.iter().map(|run| run.us)),
        median_us: median(runs.iter().map(|run| run.us)),
        phases_us: phases(&runs),
        textbook: beside(cases, Version::Textbook),
        policies: (0..policies).filter_map(|at| beside(cases, Version::Policy(at))).collect(),
    }
}

fn phases(runs: &[Run]) -> [f64; 4] {
    std::array::from_fn(|phase| mean(runs.iter().map(|run| run.phases_us[phase])))
}

/// A version beside Kolo; `None` when it was not asked.
fn beside(cases: &[&Case], version: Version) -> Option<BesideRow> {
    let runs = cases.iter().map(|case| version.run(case)).collect::<Option<Vec<Run>>>()?;
    let kolo_us = mean(cases.iter().map(|case| case.kolo.us));
    let pairs = || cases.iter().zip(&runs).map(|(case, run)| (case.kolo.answer, run.answer));
    let later = pairs().filter(|pair| match pair {
        (Some(kolo), Some(other)) => other.start > kolo.start,
        (Some(_), None) => true,
        (None, _) => false,
    });
    let at_same_start = pairs().filter_map(|(kolo, other)| {
        let (kolo, other) = (kolo?, other?);
        (kolo.start == other.start && kolo.factor > 0.0).then(|| other.factor / kolo.factor)
    });
    let mean_us = mean(runs.iter().map(|run| run.us));
    Some(BesideRow {
        solved: runs.iter().filter(|run| run.answer.is_some()).count(),
        later_or_missed: later.count(),
        efficiency_of_kolo: mean(at_same_start),
        mean_us,
        median_us: median(runs.iter().map(|run| run.us)),
        phases_us: phases(&runs),
        times_slower: mean_us / kolo_us.max(f64::MIN_POSITIVE),
    })
}

/// What phases II to V took in the cases for `hosts` hosts.
pub fn times(cases: &[Case], hosts: usize, version: Version) -> Option<Spread> {
    let cases = cases.iter().filter(|case| case.hosts == hosts);
    let us = cases.map(|case| Some(version.run(case)?.us)).collect::<Option<Vec<f64>>>()?;
    (!us.is_empty()).then(|| spread(&us))
}

/// Compares the same requests in both kinds, line by line: those for `hosts` hosts, or all.
pub fn compare(collective: &[Case], simple: &[Case], hosts: Option<usize>, version: Version) -> Comparison {
    let pairs: Vec<_> = collective
        .iter()
        .zip(simple)
        .filter(|(case, _)| hosts.is_none_or(|hosts| case.hosts == hosts))
        .map(|(c, s)| (version.answer(c), version.answer(s)))
        .collect();
    let both: Vec<(Answer, Answer)> = pairs.iter().filter_map(|(c, s)| Some(((*c)?, (*s)?))).collect();
    let earlier = both.iter().filter(|(c, s)| c.start < s.start).map(hours_earlier);
    let gains: Vec<f64> = both
        .iter()
        .filter(|(c, s)| c.start == s.start && s.factor > 0.0)
        .map(|(c, s)| c.factor / s.factor - 1.0)
        .collect();
    Comparison {
        hosts,
        cases: pairs.len(),
        solved_simple: pairs.iter().filter(|(_, s)| s.is_some()).count(),
        solved_collective: pairs.iter().filter(|(c, _)| c.is_some()).count(),
        solved_by_both: both.len(),
        collective_earlier: earlier.clone().count(),
        hours_earlier: mean(earlier),
        simple_earlier: both.iter().filter(|(c, s)| s.start < c.start).count(),
        same_start: both.iter().filter(|(c, s)| s.start == c.start).count(),
        collective_better: gains.iter().filter(|gain| **gain > SAME).count(),
        collective_gain: mean(gains.iter().copied().filter(|gain| *gain > SAME)),
        simple_better: gains.iter().filter(|gain| **gain < -SAME).count(),
    }
}

/// By how many hours the collective request starts earlier, for each pair that both solve, ascending.
pub fn start_gains(collective: &[Case], simple: &[Case], version: Version) -> Vec<f64> {
    let both = collective.iter().zip(simple).filter_map(|(c, s)| Some((version.answer(c)?, version.answer(s)?)));
    let mut gains: Vec<f64> = both.map(|pair| hours_earlier(&pair)).collect();
    gains.sort_by(f64::total_cmp);
    gains
}

fn hours_earlier((collective, simple): &(Answer, Answer)) -> f64 {
    (simple.start.0 - collective.start.0) as f64 / HOUR_S
}

/// A version against exhaustive search; `None` when no case was searched or the version not asked.
pub fn optimality(cases: &[Case], version: Version) -> Option<Optimality> {
    let searched = cases.iter().filter_map(|case| Some((case.best?, version.run(case)?.answer)));
    let searched: Vec<(Option<Answer>, Option<Answer>)> = searched.collect();
    let both: Vec<(Answer, Answer)> = searched.iter().filter_map(|(best, found)| Some(((*best)?, (*found)?))).collect();
    let late: Vec<f64> =
        both.iter().map(|(best, found)| hours_earlier(&(*best, *found))).filter(|hours| *hours > 0.0).collect();
    let at_best_start = both.iter().filter(|(best, found)| best.start == found.start && best.factor > 0.0);
    let mut factor_shares: Vec<f64> = at_best_start.map(|(best, found)| found.factor / best.factor).collect();
    factor_shares.sort_by(f64::total_cmp);
    (!searched.is_empty()).then(|| Optimality {
        cases: searched.len(),
        solvable: searched.iter().filter(|(best, _)| best.is_some()).count(),
        solved: both.len(),
        late: late.len(),
        delay_hours: mean(late.into_iter()),
        factor_share: mean(factor_shares.iter().copied()),
        above_99: factor_shares.iter().filter(|share| **share > 0.99).count(),
        factor_shares,
    })
}
