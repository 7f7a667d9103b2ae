//! The parameter study (section 3.4.3): what `M_init`, `L1` and `L2` do to answers and times, of the textbook and of
//! Kolo's core.
//!
//! Every request is planned several times, each time with another seed. For `M_init` phase I draws its hosts anew from the
//! whole grid, in one pass (`M_max = M_init`); for `L1` and `L2` the hosts stay the same, so that only the search differs.
//! Invariant: for one parameter all values see the same seeds.

use std::collections::BTreeMap;

use broker::{
    phases::{Candidate, Job, Limits, Settings, plan_within},
    request::{Request, RequestDocument},
    time::Time,
};
use serde::Serialize;
use sim_kit::{
    progress::Progress,
    stats::{mean, spread},
};

use super::{
    args::TablesArgs,
    measure::{Answer, Run, candidates, timed},
    workload::{Workload, sample},
};
use crate::placement::{
    self,
    textbook::{self, TextbookLimits},
};

/// The source's values of `M_init`.
const M_VALUES: [u32; 4] = [2, 3, 4, 6];
/// Values of `L1` from the source's range.
const L1_VALUES: [u32; 10] = [2, 3, 5, 7, 10, 15, 20, 30, 50, 70];
/// Values of `L2` from the source's range; at 0 phase V does nothing.
const L2_VALUES: [u32; 11] = [0, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70];
/// N that the source chose its parameters for.
const STUDY_HOSTS: usize = 15;

/// The whole study.
#[derive(Debug, Serialize)]
pub(super) struct Study {
    /// N of its requests.
    pub(super) hosts: usize,
    /// Number of requests.
    pub(super) cases: usize,
    /// Runs of each request for each value.
    pub(super) runs: u32,
    pub(super) m_init: Vec<Point>,
    pub(super) l1: Vec<Point>,
    pub(super) l2: Vec<Point>,
}

/// One value of one parameter.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) value: u32,
    pub(super) textbook: Figures,
    pub(super) kolo: Figures,
}

/// The figures of one version with one value.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Figures {
    /// Requests solved in a run, mean over the runs.
    pub(super) solved: f64,
    /// Time of phases II to V for a solved request, mean.
    pub(super) solved_us: f64,
    /// The same for one that was not solved.
    pub(super) unsolved_us: f64,
    /// Requests whose start, or whether there is one, differs between runs.
    pub(super) start_varies: usize,
    /// Hours by which a start is later than the earliest found for the request with any value in any run by any version,
    /// mean.
    pub(super) late_hours: f64,
    /// The factor as a part of the best one found for the request at that start with any value in any run by any version,
    /// mean.
    pub(super) factor_share: f64,
    /// Standard deviation of the factor between runs at the same start, as a part of its mean: mean over the requests.
    pub(super) factor_sd_mean: f64,
    /// The same, largest.
    pub(super) factor_sd_max: f64,
}

/// Runs of one version with one value: by request, then by seed.
type Runs = Vec<Vec<Run>>;

/// The parameters of one run.
#[derive(Clone, Copy)]
struct Values {
    m: Option<u32>,
    l1: u32,
    l2: u32,
}

/// Runs the study on the requests with the N nearest to the source's.
pub(super) fn study(args: &TablesArgs, workload: &Workload, settings: Settings) -> Study {
    let all = &workload.collective;
    let hosts = all.iter().map(|question| question.hosts).min_by_key(|hosts| hosts.abs_diff(STUDY_HOSTS));
    let chosen = all.iter().filter(|question| Some(question.hosts) == hosts);
    let requests: Vec<&Request> = chosen.filter_map(|question| question.request.as_ref()).collect();
    let pool = placement::pool(&workload.grid);
    let runs_max = (M_VALUES.len() + L1_VALUES.len() + L2_VALUES.len()) * requests.len() * args.study_runs as usize;
    let progress = Progress::new("runs of the parameter study", runs_max as u64);
    let points = |values: &[u32], with: fn(u32) -> Values| {
        let runs = values.iter().map(|value| {
            let each = requests.iter().map(|request| {
                progress.advance(u64::from(args.study_runs));
                runs(request, &pool, settings, with(*value), args)
            });
            each.unzip()
        });
        points(values, &runs.collect::<Vec<(Runs, Runs)>>())
    };
    let study = Study {
        hosts: requests.first().map_or(STUDY_HOSTS, |request| request.demand().seats()),
        cases: requests.len(),
        runs: args.study_runs,
        m_init: points(&M_VALUES, |m| Values { m: Some(m), l1: 7, l2: 10 }),
        l1: points(&L1_VALUES, |l1| Values { m: None, l1, l2: 10 }),
        l2: points(&L2_VALUES, |l2| Values { m: None, l1: 7, l2 }),
    };
    progress.end();
    study
}

/// All runs of one request: the textbook's and the core's.
fn runs(
    request: &Request,
    pool: &[Candidate<'_>],
    settings: Settings,
    Values { m, l1, l2 }: Values,
    args: &TablesArgs,
) -> (Vec<Run>, Vec<Run>) {
    let unnamed = Request::try_from(RequestDocument { candidates: None, ..RequestDocument::from(request.clone()) });
    let open = unnamed.as_ref().unwrap_or(request);
    let run = |number: u32| {
        let seed = args.seed.wrapping_add(u64::from(number));
        let hosts = m.map_or_else(|| candidates(request, pool), |m| sample(open, pool, m, seed));
        let Ok((earliest, latest)) = request.starts(Time::ZERO, settings.default_reach) else {
            return (Run::default(), Run::default());
        };
        let job = Job::of(request, (earliest, latest));
        let limits = TextbookLimits { l1: l1 as usize, l2: l2 as usize };
        let (plan, us) = timed(|| textbook::plan(&job, &hosts, limits, seed, &mut ()));
        let textbook = Run { answer: plan.map(Answer::from), us, ..Run::default() };
        let limits = Limits { l1, l2, ..Limits::of(settings.effort) };
        let (outcome, us) = timed(|| plan_within(&job, &hosts, &limits, seed, &mut ()));
        let answer = outcome.plan().map(|plan| Answer { start: plan.start, factor: plan.efficiency });
        (textbook, Run { answer, us, ..Run::default() })
    };
    (0..args.study_runs).map(run).unzip()
}

/// The figures of each value, judged by the best answers to each request over all of them.
fn points(values: &[u32], runs: &[(Runs, Runs)]) -> Vec<Point> {
    let cases = runs.first().map_or(0, |(first, _)| first.len());
    // By request: the best factor at each start.
    let mut best: Vec<BTreeMap<Time, f64>> = vec![BTreeMap::new(); cases];
    for (case, runs) in
        runs.iter().flat_map(|(textbook, kolo)| textbook.iter().enumerate().chain(kolo.iter().enumerate()))
    {
        for answer in runs.iter().filter_map(|run| run.answer) {
            let known = best[case].entry(answer.start).or_insert(answer.factor);
            *known = known.max(answer.factor);
        }
    }
    let point = |(value, (textbook, kolo)): (&u32, &(Runs, Runs))| Point {
        value: *value,
        textbook: figures(textbook, &best),
        kolo: figures(kolo, &best),
    };
    values.iter().zip(runs).map(point).collect()
}

fn figures(requests: &Runs, best: &[BTreeMap<Time, f64>]) -> Figures {
    let all = || requests.iter().flatten();
    let count = requests.first().map_or(1, Vec::len).max(1) as f64;
    let time = |is_solved: bool| mean(all().filter(|run| run.answer.is_some() == is_solved).map(|run| run.us));
    let start = |run: &Run| run.answer.map(|answer| answer.start);
    let varies = |runs: &&Vec<Run>| runs.iter().any(|run| start(run) != start(&runs[0]));
    let answers = || {
        requests.iter().zip(best).flat_map(|(runs, best)| runs.iter().filter_map(move |run| Some((run.answer?, best))))
    };
    let late = answers().filter_map(|(answer, best)| {
        let earliest = best.keys().next()?;
        Some((answer.start.0 - earliest.0) as f64 / 3600.0)
    });
    let shares = answers().filter_map(|(answer, best)| Some(answer.factor / best.get(&answer.start)?));
    let deviations = spread(requests.iter().filter_map(|runs| deviation(runs)));
    Figures {
        solved: all().filter(|run| run.answer.is_some()).count() as f64 / count,
        solved_us: time(true),
        unsolved_us: time(false),
        start_varies: requests.iter().filter(varies).count(),
        late_hours: mean(late),
        factor_share: mean(shares),
        factor_sd_mean: deviations.mean,
        factor_sd_max: deviations.max,
    }
}

/// How much the factor differs between the runs of one request that found its earliest start.
fn deviation(runs: &[Run]) -> Option<f64> {
    let answers = || runs.iter().filter_map(|run| run.answer);
    let earliest = answers().map(|answer| answer.start).min()?;
    let seen = spread(answers().filter(|answer| answer.start == earliest).map(|answer| answer.factor));
    (seen.mean > 0.0).then(|| seen.sd / seen.mean)
}
