//! The figures of the tables, from the planned cases.
//!
//! Versions are numbered as the runs of a case: Kolo's core is 0. Invariant: every figure counts cases that both sides of a
//! comparison have answered.

use std::collections::BTreeMap;

use broker::plan::Plan;
use serde::Serialize;
use sim_kit::stats::{Spread, mean, median, spread};

use super::measure::{Answer, Case, Run};

/// Smaller relative differences of factors are rounding.
const SAME: f64 = 1e-9;
/// Seconds in an hour.
const HOUR_S: f64 = 3600.0;

/// The figures of one N.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row {
    /// N.
    pub(super) hosts: usize,
    /// Number of requests.
    pub(super) cases: usize,
    /// Requests that got a plan.
    pub(super) solved: usize,
    /// Requests with a proven start, when proven starts were given.
    pub(super) solvable: Option<usize>,
    /// Plans that start later than proven possible, and solvable requests without a plan.
    pub(super) late_or_missed: Option<usize>,
    /// Answers that carry a proof of their start or of its absence.
    pub(super) proven: usize,
    /// Plans whose host set is proven the best at its start.
    pub(super) optimal: usize,
    /// Mean of `efficiency / efficiency_bound` over the plans.
    pub(super) efficiency_of_bound: f64,
    /// Phases II to V, mean.
    pub(super) mean_us: f64,
    /// Phases II to V, median.
    pub(super) median_us: f64,
    /// Phases II to V one by one, mean.
    pub(super) phases_us: [f64; 4],
    /// The textbook version, when it ran.
    pub(super) textbook: Option<BesideRow>,
    /// The policies named, in their order.
    pub(super) policies: Vec<BesideRow>,
}

impl Row {
    /// The versions beside Kolo's core, in their order.
    pub(super) fn others(&self) -> impl Iterator<Item = &BesideRow> {
        self.textbook.iter().chain(&self.policies)
    }
}

/// Another version beside Kolo's core.
#[derive(Debug, Serialize)]
pub(super) struct BesideRow {
    /// Requests that got a plan.
    pub(super) solved: usize,
    /// Plans that start later than Kolo's, and requests that only Kolo solved.
    pub(super) later_or_missed: usize,
    /// Its factor as a part of Kolo's, mean over plans with the same start.
    pub(super) efficiency_of_kolo: f64,
    /// Phases II to V, mean.
    pub(super) mean_us: f64,
    /// Phases II to V, median.
    pub(super) median_us: f64,
    /// Phases II to V one by one, mean; zeros when the version does not measure them.
    pub(super) phases_us: [f64; 4],
    /// Its mean time as a multiple of Kolo's.
    pub(super) times_slower: f64,
}

/// Simple against collective requests, as in the source's table 3.2.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    /// N; `None` for all.
    pub(super) hosts: Option<usize>,
    /// Pairs of requests.
    pub(super) cases: usize,
    pub(super) solved_simple: usize,
    pub(super) solved_collective: usize,
    pub(super) solved_by_both: usize,
    /// Pairs solved by both in which the collective request starts earlier.
    pub(super) collective_earlier: usize,
    /// By so many hours, mean.
    pub(super) hours_earlier: f64,
    pub(super) simple_earlier: usize,
    pub(super) same_start: usize,
    /// Pairs with the same start in which the collective request has the better factor.
    pub(super) collective_better: usize,
    /// By so much, in parts of the simple factor, mean.
    pub(super) collective_gain: f64,
    pub(super) simple_better: usize,
}

/// One version against exhaustive search, as in a column of the source's table 3.3.
#[derive(Debug, Serialize)]
pub(super) struct Optimality {
    /// Cases searched.
    pub(super) cases: usize,
    /// Cases that exhaustive search solves.
    pub(super) solvable: usize,
    /// Of these, the version solved.
    pub(super) solved: usize,
    /// Of these, it starts later.
    pub(super) late: usize,
    /// By so many hours, mean.
    pub(super) delay_hours: f64,
    /// Its factor as a part of the best one, where it starts at the same time; each case, ascending.
    pub(super) factor_shares: Vec<f64>,
    /// Their mean.
    pub(super) factor_share: f64,
    /// How many of them are above 0.99.
    pub(super) above_99: usize,
}

/// Tables 3.2, 3.3 and 3.4 of one version.
#[derive(Debug, Serialize)]
pub(super) struct VersionTables {
    /// Its name.
    pub(super) version: String,
    /// Table 3.2: by N, then over all.
    pub(super) table_3_2: Vec<Comparison>,
    /// By how many hours the collective request starts earlier, for each pair that both solve, ascending.
    pub(super) start_gains_hours: Vec<f64>,
    /// Table 3.3, collective.
    pub(super) table_3_3: Option<Optimality>,
    /// Table 3.3, simple.
    pub(super) table_3_3_simple: Option<Optimality>,
    /// Table 3.4: phases II to V of the collective requests for `times_of` hosts, in microseconds.
    pub(super) table_3_4_us: Option<Spread>,
}

impl VersionTables {
    /// Of the version with this number.
    pub(super) fn of(
        version: usize,
        name: &str,
        collective: &[Case],
        simple: Option<&[Case]>,
        times_of: usize,
    ) -> Self {
        let us = collective.iter().filter(|case| case.hosts == times_of).map(|case| case.runs[version].us);
        let pairs = simple.map(|simple| pairs(collective, simple, version)).unwrap_or_default();
        let mut start_gains_hours: Vec<f64> = both(&pairs).map(hours_earlier).collect();
        start_gains_hours.sort_by(f64::total_cmp);
        let numbers = by_hosts(collective).into_keys().map(Some).chain([None]);
        VersionTables {
            version: name.to_owned(),
            table_3_2: numbers.filter(|_| simple.is_some()).map(|hosts| compare(&pairs, hosts)).collect(),
            start_gains_hours,
            table_3_3: optimality(collective, version),
            table_3_3_simple: simple.and_then(|simple| optimality(simple, version)),
            table_3_4_us: us.clone().next().map(|_| spread(us)),
        }
    }
}

fn by_hosts(cases: &[Case]) -> BTreeMap<usize, Vec<&Case>> {
    let mut by_hosts: BTreeMap<usize, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_hosts.entry(case.hosts).or_default().push(case);
    }
    by_hosts
}

/// One row for every N.
pub(super) fn rows(cases: &[Case], with_textbook: bool) -> Vec<Row> {
    by_hosts(cases).into_iter().map(|(hosts, cases)| row(hosts, &cases, with_textbook)).collect()
}

fn row(hosts: usize, cases: &[&Case], with_textbook: bool) -> Row {
    let plans: Vec<&Plan> = cases.iter().filter_map(|case| case.line.outcome.plan()).collect();
    let judged = cases.iter().all(|case| case.exact.is_some());
    let is_late = |case: &&&Case| {
        let start = case.runs[0].answer.map(|answer| answer.start);
        case.exact.flatten().is_some_and(|exact| start.is_none_or(|start| start > exact))
    };
    let kolo = beside(cases, 0);
    let mut others = (1..cases[0].runs.len()).map(|version| beside(cases, version));
    Row {
        hosts,
        cases: cases.len(),
        solved: plans.len(),
        solvable: judged.then(|| cases.iter().filter(|case| matches!(case.exact, Some(Some(_)))).count()),
        late_or_missed: judged.then(|| cases.iter().filter(is_late).count()),
        proven: cases.iter().filter(|case| case.line.outcome.start_proven()).count(),
        optimal: plans.iter().filter(|plan| plan.is_optimal_at_start()).count(),
        efficiency_of_bound: mean(
            plans.iter().map(|plan| plan.efficiency / plan.efficiency_bound.max(f64::MIN_POSITIVE)),
        ),
        mean_us: kolo.mean_us,
        median_us: kolo.median_us,
        phases_us: kolo.phases_us,
        textbook: if with_textbook { others.next() } else { None },
        policies: others.collect(),
    }
}

/// A version beside Kolo.
fn beside(cases: &[&Case], version: usize) -> BesideRow {
    let runs: Vec<Run> = cases.iter().map(|case| case.runs[version]).collect();
    let pairs = || cases.iter().zip(&runs).map(|(case, run)| (case.runs[0].answer, run.answer));
    let is_later = |(kolo, other): &(Option<Answer>, Option<Answer>)| {
        kolo.is_some_and(|kolo| other.is_none_or(|other| other.start > kolo.start))
    };
    let at_same_start = pairs().filter_map(|(kolo, other)| {
        let (kolo, other) = (kolo?, other?);
        (kolo.start == other.start && kolo.factor > 0.0).then(|| other.factor / kolo.factor)
    });
    let mean_us = mean(runs.iter().map(|run| run.us));
    BesideRow {
        solved: runs.iter().filter(|run| run.answer.is_some()).count(),
        later_or_missed: pairs().filter(is_later).count(),
        efficiency_of_kolo: mean(at_same_start),
        mean_us,
        median_us: median(runs.iter().map(|run| run.us)),
        phases_us: std::array::from_fn(|phase| mean(runs.iter().map(|run| run.phases_us[phase]))),
        times_slower: mean_us / mean(cases.iter().map(|case| case.runs[0].us)).max(f64::MIN_POSITIVE),
    }
}

/// N, the collective answer and the simple one to the same request.
pub(super) type Pair = (usize, Option<Answer>, Option<Answer>);

/// The answers of one version, line by line.
pub(super) fn pairs(collective: &[Case], simple: &[Case], version: usize) -> Vec<Pair> {
    let answer = |case: &Case| case.runs[version].answer;
    collective.iter().zip(simple).map(|(c, s)| (c.hosts, answer(c), answer(s))).collect()
}

fn both(pairs: &[Pair]) -> impl Iterator<Item = (Answer, Answer)> {
    pairs.iter().filter_map(|(_, c, s)| Some(((*c)?, (*s)?)))
}

fn hours_earlier((one, other): (Answer, Answer)) -> f64 {
    (other.start.0 - one.start.0) as f64 / HOUR_S
}

/// Compares the two kinds: those for `hosts` hosts, or all.
pub(super) fn compare(pairs: &[Pair], hosts: Option<usize>) -> Comparison {
    let pairs: Vec<Pair> = pairs.iter().filter(|(n, ..)| hosts.is_none_or(|hosts| *n == hosts)).copied().collect();
    let hours: Vec<f64> = both(&pairs).map(hours_earlier).collect();
    let at_same_start = both(&pairs).filter(|(c, s)| c.start == s.start && s.factor > 0.0);
    let gains: Vec<f64> = at_same_start.map(|(c, s)| c.factor / s.factor - 1.0).collect();
    let count = |values: &[f64], is_meant: fn(f64) -> bool| values.iter().filter(|value| is_meant(**value)).count();
    Comparison {
        hosts,
        cases: pairs.len(),
        solved_simple: pairs.iter().filter(|(.., s)| s.is_some()).count(),
        solved_collective: pairs.iter().filter(|(_, c, _)| c.is_some()).count(),
        solved_by_both: hours.len(),
        collective_earlier: count(&hours, |hours| hours > 0.0),
        hours_earlier: mean(hours.iter().copied().filter(|hours| *hours > 0.0)),
        simple_earlier: count(&hours, |hours| hours < 0.0),
        same_start: count(&hours, |hours| hours == 0.0),
        collective_better: count(&gains, |gain| gain > SAME),
        collective_gain: mean(gains.iter().copied().filter(|gain| *gain > SAME)),
        simple_better: count(&gains, |gain| gain < -SAME),
    }
}

/// A version against exhaustive search; `None` when no case was searched.
fn optimality(cases: &[Case], version: usize) -> Option<Optimality> {
    let searched: Vec<Pair> =
        cases.iter().filter_map(|case| Some((case.hosts, case.runs[version].answer, case.best?))).collect();
    let late = || both(&searched).map(|(found, best)| hours_earlier((best, found))).filter(|hours| *hours > 0.0);
    let at_best_start = both(&searched).filter(|(found, best)| best.start == found.start && best.factor > 0.0);
    let mut factor_shares: Vec<f64> = at_best_start.map(|(found, best)| found.factor / best.factor).collect();
    factor_shares.sort_by(f64::total_cmp);
    (!searched.is_empty()).then(|| Optimality {
        cases: searched.len(),
        solvable: searched.iter().filter(|(.., best)| best.is_some()).count(),
        solved: both(&searched).count(),
        late: late().count(),
        delay_hours: mean(late()),
        factor_share: mean(factor_shares.iter().copied()),
        above_99: factor_shares.iter().filter(|share| **share > 0.99).count(),
        factor_shares,
    })
}
