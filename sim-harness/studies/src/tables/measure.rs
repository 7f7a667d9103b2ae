//! Plans every request with every version in the same run: Kolo's phases, the textbook's, and the policies named.
//!
//! Invariant: all see the same hosts and schedules, and all are timed over phases II to V, inputs included.

use std::{collections::BTreeMap, path::Path, time::Instant};

use anyhow::Context;
use broker::{
    ids::RequestId,
    offline::{LineError, OfflinePlanner, PlanLine},
    phases::{Candidate, Job, PhaseStopwatch, Settings, find},
    request::Request,
    time::Time,
};
use serde::Deserialize;
use sim_kit::{error::BadUsage, progress::Progress};

use super::{
    exhaustive,
    workload::{Question, Workload, read},
};
use crate::placement::{
    self, Asked, ChoiceError, MakeStrategy,
    textbook::{self, TextbookLimits, TextbookPlan},
};

/// N of the requests that are compared with exhaustive search (table 3.3).
pub(super) const EXHAUSTIVE_HOSTS: usize = 5;

/// A solution: a start, and the efficiency factor (3.2) there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Answer {
    pub(super) start: Time,
    pub(super) factor: f64,
}

impl From<TextbookPlan> for Answer {
    fn from(plan: TextbookPlan) -> Answer {
        Answer { start: plan.start, factor: plan.efficiency }
    }
}

/// The answer of one version to one request, if it found one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    pub(super) answer: Option<Answer>,
    /// Time of phases II to V together, in microseconds.
    pub(super) us: f64,
    /// Time of each of them; zero where a version does not measure it.
    pub(super) phases_us: [f64; 4],
}

/// One request, planned by all versions.
pub(super) struct Case {
    /// N.
    pub(super) hosts: usize,
    /// Kolo's answer as it is written to files.
    pub(super) line: PlanLine,
    /// One run for each version; the first is Kolo's.
    pub(super) runs: Vec<Run>,
    /// The proven earliest start, when it is known: `Some(None)` means that there is none.
    pub(super) exact: Option<Option<Time>>,
    /// The answer of exhaustive search to the collective request among this request's hosts, where it was made.
    pub(super) best: Option<Option<Answer>>,
}

/// A planner that is measured beside Kolo's core.
#[derive(Clone, Copy)]
pub(super) enum Version {
    Textbook,
    Policy(MakeStrategy),
}

/// How requests are planned and measured.
pub(super) struct Method {
    pub(super) settings: Settings,
    pub(super) seed: u64,
    /// How often every request is planned; the least time counts.
    pub(super) repeats: u32,
    /// The versions beside Kolo's core, by name.
    pub(super) others: Vec<(String, Version)>,
}

#[derive(Deserialize)]
struct ExactLine {
    id: RequestId,
    start: Option<Time>,
}

/// Proven starts by request.
pub(super) type Proven = BTreeMap<RequestId, Option<Time>>;

/// Reads proven starts.
///
/// # Errors
/// Bad usage with file and line.
pub(super) fn read_exact(path: Option<&Path>) -> anyhow::Result<Proven> {
    let Some(path) = path else { return Ok(Proven::new()) };
    let text = read(path)?;
    let lines = text.lines().zip(1..).map(|(line, number)| {
        let line: ExactLine = serde_json::from_str(line)
            .with_context(|| BadUsage::new(format_args!("{}: line {number}", path.display())))?;
        Ok((line.id, line.start))
    });
    lines.collect()
}

/// Plans every request of one kind: those of a file (`name`), or drawn ones. Exhaustive search takes the collective
/// request of the same line.
///
/// # Errors
/// Bad usage with file and line; or the policy that gave a wrong answer.
pub(super) fn measure(
    workload: &Workload,
    questions: &[Question],
    name: &str,
    exact: &Proven,
    method: &Method,
    progress: &Progress,
) -> anyhow::Result<Vec<Case>> {
    let mut planner = OfflinePlanner::new(workload.grid.clone(), method.settings, method.seed, false);
    let pool = placement::pool(&workload.grid);
    let mut cases = Vec::with_capacity(questions.len());
    for (question, collective) in questions.iter().zip(&workload.collective) {
        let line = plan_line(&mut planner, question, method.repeats).with_context(|| BadUsage::new(name))?;
        let candidates = question.request.as_ref().map_or(Vec::new(), |request| candidates(request, &pool));
        let [_, phases_us @ ..] = line.phases_us;
        let answer = line.outcome.plan().map(|plan| Answer { start: plan.start, factor: plan.efficiency });
        let mut runs = vec![Run { answer, us: phases_us.iter().sum(), phases_us }];
        for (name, version) in &method.others {
            let run =
                ask(question, &candidates, method).map_or(Ok(Run::default()), |asked| run(&asked, *version, method));
            runs.push(run.with_context(|| format!("policy {name}, request {}", line.id))?);
        }
        let sought = ask(collective, &candidates, method);
        let search = || sought.map_or(Some(None), |sought| exhaustive::search(&sought));
        let best = if question.hosts == EXHAUSTIVE_HOSTS { search() } else { None };
        cases.push(Case { hosts: question.hosts, exact: exact.get(&line.id).copied(), line, runs, best });
        progress.advance(1);
    }
    Ok(cases)
}

/// The hosts that a request names, of those that could satisfy it; empty when there are fewer than it needs.
pub(super) fn candidates<'p>(request: &Request, pool: &[Candidate<'p>]) -> Vec<Candidate<'p>> {
    let Ok(eligible) = find::eligible(request.demand(), pool) else { return Vec::new() };
    eligible.into_iter().map(|index| pool[index]).collect()
}

/// `None` when there are fewer candidates than hosts: no version has anything to do then.
fn ask<'a>(question: &'a Question, candidates: &'a [Candidate<'a>], method: &Method) -> Option<Asked<'a>> {
    let request = question.request.as_ref()?;
    let (earliest, latest) = request.starts(Time::ZERO, method.settings.default_reach).ok()?;
    let is_enough = candidates.len() >= request.demand().seats();
    is_enough.then_some(Asked { job: Job::of(request, (earliest, latest)), candidates })
}

/// The result of some work, and its time in microseconds.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    (work(), began.elapsed().as_secs_f64() * 1e6)
}

/// Kolo's answer, with the times of the fastest of its runs.
fn plan_line(planner: &mut OfflinePlanner, question: &Question, repeats: u32) -> Result<PlanLine, LineError> {
    let started = Instant::now();
    let mut clock = PhaseStopwatch::new(|| started.elapsed());
    let sum = |line: &PlanLine| line.phases_us.iter().sum::<f64>();
    let mut line = planner.plan_line(question.line, &question.text, &mut clock)?;
    for _ in 1..repeats {
        let again = planner.plan_line(question.line, &question.text, &mut clock)?;
        line = if sum(&again) < sum(&line) { again } else { line };
    }
    Ok(line)
}

/// The answer of another version, with the times of the fastest of its runs.
fn run(asked: &Asked<'_>, version: Version, method: &Method) -> Result<Run, ChoiceError> {
    let (Asked { job, candidates }, seed) = (*asked, method.seed);
    let started = Instant::now();
    let mut clock = PhaseStopwatch::new(|| started.elapsed());
    let mut once = || match version {
        Version::Textbook => {
            clock.reset();
            let limits = TextbookLimits::default();
            let (plan, us) = timed(|| textbook::plan(&job, candidates, limits, seed, &mut clock));
            let [_, check, start_times, select_and_swap, optimize, _] = clock.stop();
            Ok(Run { answer: plan.map(Answer::from), us, phases_us: [check, start_times, select_and_swap, optimize] })
        }
        Version::Policy(make) => {
            let mut policy = make();
            let effort = method.settings.effort;
            let (outcome, us) = timed(|| policy.plan(&job, candidates, effort, seed, &mut ()));
            let judged = outcome.plan().map(|plan| Ok(Answer { start: plan.start, factor: asked.judge(plan)? }));
            Ok(Run { answer: judged.transpose()?, us, ..Run::default() })
        }
    };
    let mut best = once()?;
    for _ in 1..method.repeats {
        let again = once()?;
        best = if again.us < best.us { again } else { best };
    }
    Ok(best)
}
