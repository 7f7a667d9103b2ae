//! The parameter study (section 3.4.3): what `M_init`, `L1` and `L2` do to answers and times, of the textbook and of
//! Kolo's core.
//!
//! Every request is planned several times, each time with another seed. For `M_init` phase I draws its hosts anew from the
//! whole grid, in one pass (`M_max = M_init`); for `L1` and `L2` the hosts stay the same, so that only the search differs.
//! Invariant: for one parameter all values see the same seeds.

use std::{collections::BTreeMap, time::Instant};

use broker::{
    phases::{Candidate, Limits, Settings, plan_within},
    request::{Request, RequestDocument},
    time::Time,
};
use serde::Serialize;

use super::{
    measure::{Answer, candidates},
    workload::{Question, sample},
};
use crate::{
    placement::{
        Asked,
        textbook::{self, TextbookLimits},
    },
    progress::Progress,
    stats::{mean, spread},
};

/// The source's values of `M_init`.
const M_VALUES: [u32; 4] = [2, 3, 4, 6];
/// Values of `L1` from the source's range.
const L1_VALUES: [u32; 10] = [2, 3, 5, 7, 10, 15, 20, 30, 50, 70];
/// Values of `L2` from the source's range; at 0 phase V does nothing.
const L2_VALUES: [u32; 11] = [0, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70];
/// N that the source chose its parameters for.
const STUDY_HOSTS: usize = 15;

/// Steps of the study for each request and run.
pub const STEPS: usize = M_VALUES.len() + L1_VALUES.len() + L2_VALUES.len();

/// The whole study.
#[derive(Debug, Serialize)]
pub struct Study {
    /// N of its requests.
    pub hosts: usize,
    /// Requests.
    pub cases: usize,
    /// Runs of each request for each value.
    pub runs: u32,
    /// By `M_init`.
    pub m_init: Vec<Point>,
    /// By `L1`.
    pub l1: Vec<Point>,
    /// By `L2`.
    pub l2: Vec<Point>,
}

/// One value of one parameter.
#[derive(Debug, Serialize)]
pub struct Point {
    /// The value.
    pub value: u32,
    /// The textbook's figures.
    pub textbook: Figures,
    /// The core's figures.
    pub kolo: Figures,
}

/// What one version came to with one value.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Figures {
    /// Requests solved in a run, mean over the runs.
    pub solved: f64,
    /// Time of phases II to V for a solved request, mean.
    pub solved_us: f64,
    /// The same for one that was not solved.
    pub unsolved_us: f64,
    /// Requests whose start, or whether there is one, differs between runs.
    pub start_varies: usize,
    /// Hours by which a start is later than the earliest found for the request with any value in any run by any version,
    /// mean.
    pub late_hours: f64,
    /// The factor as a part of the best one found for the request at that start with any value in any run by any version,
    /// mean.
    pub factor_share: f64,
    /// Standard deviation of the factor between runs at the same start, as a part of its mean: mean over the requests.
    pub factor_sd_mean: f64,
    /// The same, largest.
    pub factor_sd_max: f64,
}

#[derive(Clone, Copy)]
struct Trial {
    answer: Option<Answer>,
    us: f64,
}

/// Trials of one version with one value: by request, then by run.
type Trials = Vec<Vec<Trial>>;

/// What a run may vary.
#[derive(Clone, Copy)]
struct Values {
    m: Option<u32>,
    l1: u32,
    l2: u32,
}

/// The requests of the study: those with the N nearest to the source's.
pub fn questions(collective: &[Question]) -> Vec<&Request> {
    let hosts = collective.iter().map(|question| question.hosts).min_by_key(|hosts| hosts.abs_diff(STUDY_HOSTS));
    let chosen = collective.iter().filter(|question| Some(question.hosts) == hosts);
    chosen.filter_map(|question| question.request.as_ref()).collect()
}

/// Runs the study. `pool` is the whole grid.
pub fn study(
    requests: &[&Request],
    pool: &[Candidate<'_>],
    settings: Settings,
    runs: u32,
    seed: u64,
    progress: &Progress,
) -> Study {
    let base = Values { m: None, l1: 7, l2: 10 };
    let points = |values: &[Values], named: &[u32]| {
        let trials: Vec<[Trials; 2]> = values
            .iter()
            .map(|values| {
                let each = requests.iter().map(|request| {
                    progress.advance(u64::from(runs));
                    trials(request, pool, settings, *values, (seed, runs))
                });
                let (textbook, kolo): (Trials, Trials) = each.unzip();
                [textbook, kolo]
            })
            .collect();
        points(named, &trials)
    };
    Study {
        hosts: requests.first().map_or(STUDY_HOSTS, |request| request.hosts()),
        cases: requests.len(),
        runs,
        m_init: points(&M_VALUES.map(|m| Values { m: Some(m), ..base }), &M_VALUES),
        l1: points(&L1_VALUES.map(|l1| Values { l1, ..base }), &L1_VALUES),
        l2: points(&L2_VALUES.map(|l2| Values { l2, ..base }), &L2_VALUES),
    }
}

/// All runs of one request: the textbook's and the core's.
fn trials(
    request: &Request,
    pool: &[Candidate<'_>],
    settings: Settings,
    values: Values,
    (first_seed, runs): (u64, u32),
) -> (Vec<Trial>, Vec<Trial>) {
    let unnamed = Request::try_from(RequestDocument { candidates: None, ..RequestDocument::from(request.clone()) });
    let open = unnamed.as_ref().unwrap_or(request);
    (0..u64::from(runs))
        .map(|run| {
            let seed = first_seed.wrapping_add(run);
            let hosts = match values.m {
                Some(m) => sample(open, pool, m, seed),
                None => candidates(request, pool),
            };
            let Ok((earliest, latest)) = request.starts(Time::ZERO, settings.default_reach) else {
                return (Trial { answer: None, us: 0.0 }, Trial { answer: None, us: 0.0 });
            };
            let asked = Asked { request, earliest, latest, candidates: &hosts, seed };
            (textbook_trial(&asked, values), kolo_trial(&asked, settings, values))
        })
        .unzip()
}

fn textbook_trial(asked: &Asked<'_>, values: Values) -> Trial {
    let Asked { request, earliest, latest, candidates, seed } = *asked;
    let limits = TextbookLimits { l1: values.l1 as usize, l2: values.l2 as usize };
    let began = Instant::now();
    let plan = textbook::plan(request, earliest, latest, candidates, limits, seed, &mut ());
    let us = began.elapsed().as_secs_f64() * 1e6;
    Trial { answer: plan.map(|plan| Answer { start: plan.start, factor: plan.efficiency }), us }
}

fn kolo_trial(asked: &Asked<'_>, settings: Settings, values: Values) -> Trial {
    let Asked { request, earliest, latest, candidates, seed } = *asked;
    let limits = Limits { l1: values.l1, l2: values.l2, ..Limits::of(settings.effort) };
    let began = Instant::now();
    let outcome = plan_within(request, earliest, latest, candidates, &limits, seed, &mut ());
    let us = began.elapsed().as_secs_f64() * 1e6;
    Trial { answer: outcome.plan().map(|plan| Answer { start: plan.start, factor: plan.efficiency }), us }
}

/// The figures of each value, judged by the best answers to each request over all of them.
fn points(named: &[u32], trials: &[[Trials; 2]]) -> Vec<Point> {
    let cases = trials.first().map_or(0, |[first, _]| first.len());
    // By request: the best factor at each start.
    let mut best: Vec<BTreeMap<Time, f64>> = vec![BTreeMap::new(); cases];
    for (case, runs) in trials.iter().flatten().flat_map(|trials| trials.iter().enumerate()) {
        for answer in runs.iter().filter_map(|trial| trial.answer) {
            let known = best[case].entry(answer.start).or_insert(answer.factor);
            *known = known.max(answer.factor);
        }
    }
    let point = |(value, [textbook, kolo]): (&u32, &[Trials; 2])| Point {
        value: *value,
        textbook: figures(textbook, &best),
        kolo: figures(kolo, &best),
    };
    named.iter().zip(trials).map(point).collect()
}

fn figures(trials: &Trials, best: &[BTreeMap<Time, f64>]) -> Figures {
    let all = || trials.iter().flatten();
    let runs = trials.first().map_or(1, Vec::len).max(1) as f64;
    let time = |is_solved: bool| mean(all().filter(|t| t.answer.is_some() == is_solved).map(|t| t.us));
    let start = |trial: &Trial| trial.answer.map(|answer| answer.start);
    let varies = |runs: &&Vec<Trial>| runs.iter().any(|trial| start(trial) != start(&runs[0]));
    let answers =
        || trials.iter().zip(best).flat_map(|(runs, best)| runs.iter().filter_map(move |t| Some((t.answer?, best))));
    let late = answers().filter_map(|(answer, best)| {
        let earliest = best.keys().next()?;
        Some((answer.start.0 - earliest.0) as f64 / 3600.0)
    });
    let shares = answers().filter_map(|(answer, best)| Some(answer.factor / best.get(&answer.start)?));
    let deviations: Vec<f64> = trials.iter().filter_map(|runs| deviation(runs)).collect();
    let deviations = spread(&deviations);
    Figures {
        solved: all().filter(|trial| trial.answer.is_some()).count() as f64 / runs,
        solved_us: time(true),
        unsolved_us: time(false),
        start_varies: trials.iter().filter(varies).count(),
        late_hours: mean(late),
        factor_share: mean(shares),
        factor_sd_mean: deviations.mean,
        factor_sd_max: deviations.max,
    }
}

/// How much the factor differs between the runs of one request that found its earliest start.
fn deviation(runs: &[Trial]) -> Option<f64> {
    let earliest = runs.iter().filter_map(|trial| Some(trial.answer?.start)).min()?;
    let at_earliest = runs.iter().filter_map(|trial| trial.answer).filter(|answer| answer.start == earliest);
    let seen = spread(&at_earliest.map(|answer| answer.factor).collect::<Vec<f64>>());
    (seen.mean > 0.0).then(|| seen.sd / seen.mean)
}
