//! Plans every request in all versions in the same run: with Kolo's phases, the textbook's, and the policies named.
//!
//! Invariant: all see the same hosts and schedules, and all are timed over phases II to V, inputs included.

use std::{collections::BTreeMap, path::Path, time::Instant};

use broker::{
    ids::RequestId,
    offline::{LineError, OfflinePlanner, PlanLine},
    phases::{Candidate, PhaseStopwatch, Settings, find},
    request::Request,
    time::Time,
};
use serde::Deserialize;

use super::{
    error::TablesError,
    exhaustive,
    workload::{Question, Workload, read},
};
use crate::{
    placement::{
        self, Asked, MakePlacement,
        textbook::{self, TextbookLimits},
    },
    progress::Progress,
};

/// N of the requests that are compared with exhaustive search (table 3.3).
pub const EXHAUSTIVE_HOSTS: usize = 5;

/// A solution: a start, and the efficiency factor (3.2) there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The start.
    pub start: Time,
    /// The factor.
    pub factor: f64,
}

/// What one version answered to one request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Run {
    /// The answer, if there is one.
    pub answer: Option<Answer>,
    /// What phases II to V took together.
    pub us: f64,
    /// What each of them took; zero where a version does not tell.
    pub phases_us: [f64; 4],
}

/// One request, planned in all versions.
pub struct Case {
    /// N.
    pub hosts: usize,
    /// Kolo's answer, as it is written down.
    pub line: PlanLine,
    /// Kolo's answer.
    pub kolo: Run,
    /// The textbook's answer, unless it was left out.
    pub textbook: Option<Run>,
    /// The answers of the policies named, in their order.
    pub policies: Vec<Run>,
    /// The proven earliest start, when it is known: `Some(None)` means that there is none.
    pub exact: Option<Option<Time>>,
    /// What exhaustive search finds for the collective request among this request's hosts, where it was made.
    pub best: Option<Option<Answer>>,
}

#[derive(Deserialize)]
struct ExactLine {
    id: RequestId,
    start: Option<Time>,
}

/// Proven starts by request.
pub type Proven = BTreeMap<RequestId, Option<Time>>;

/// Reads proven starts.
///
/// # Errors
/// [`TablesError`] names the file and the line.
pub fn read_exact(path: Option<&Path>) -> Result<Proven, TablesError> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    let mut starts = BTreeMap::new();
    for (index, line) in read(path)?.lines().enumerate() {
        let line: ExactLine = serde_json::from_str(line).map_err(|error| TablesError::Line {
            path: path.to_owned(),
            line: index + 1,
            message: error.to_string(),
        })?;
        starts.insert(line.id, line.start);
    }
    Ok(starts)
}

/// How requests are planned and measured.
#[derive(Debug, Clone)]
pub struct Method {
    /// The planner's settings.
    pub settings: Settings,
    /// Seed of all random choices.
    pub seed: u64,
    /// How often every request is planned; the least time counts.
    pub repeats: u32,
    /// Whether the textbook version runs as well.
    pub with_textbook: bool,
    /// Other policies by name.
    pub policies: Vec<(String, MakePlacement)>,
}

/// Plans every request of one kind. `collective` holds the same requests as collective ones, line by line: what
/// exhaustive search looks for. `path` is the file of the requests, for errors.
///
/// # Errors
/// [`TablesError`] names the file and the line, or the policy that gave a wrong answer.
pub fn measure(
    workload: &Workload,
    questions: &[Question],
    path: &Path,
    exact: &Proven,
    method: &Method,
    progress: &Progress,
) -> Result<Vec<Case>, TablesError> {
    let mut planner = OfflinePlanner::new(workload.grid.clone(), method.settings, method.seed, false)?;
    let pool = placement::pool(&workload.grid);
    let mut cases = Vec::with_capacity(questions.len());
    for (question, collective) in questions.iter().zip(&workload.collective) {
        let (line, kolo) = run_kolo(&mut planner, question, method.repeats)
            .map_err(|source| TablesError::Request { path: path.to_owned(), source })?;
        let exact = exact.get(&line.id).copied();
        let hosts = question.hosts;
        let mut case = Case { hosts, line, kolo, textbook: None, policies: Vec::new(), exact, best: None };
        let candidates = question.request.as_ref().map_or(Vec::new(), |request| candidates(request, &pool));
        let asked = question.request.as_ref().and_then(|request| ask(request, &candidates, method));
        // Fewer candidates than hosts: no version has anything to do.
        case.textbook =
            method.with_textbook.then(|| asked.map_or(Run::default(), |asked| run_textbook(&asked, method)));
        for (name, make) in &method.policies {
            let run = asked.map_or(Ok(Run::default()), |asked| run_policy(&asked, *make, method.repeats));
            let wrong = |source| TablesError::Policy { policy: name.clone(), id: case.line.id.to_string(), source };
            case.policies.push(run.map_err(wrong)?);
        }
        if hosts == EXHAUSTIVE_HOSTS {
            let sought = collective.request.as_ref().and_then(|request| ask(request, &candidates, method));
            case.best = sought.map_or(Some(None), |sought| exhaustive::search(&sought));
        }
        cases.push(case);
        progress.advance(1);
    }
    Ok(cases)
}

/// The hosts that a request names, of those that could satisfy it; empty when there are fewer than it needs.
pub fn candidates<'p>(request: &Request, pool: &[Candidate<'p>]) -> Vec<Candidate<'p>> {
    let Ok(eligible) = find::eligible(request, pool) else { return Vec::new() };
    eligible.into_iter().map(|index| pool[index]).collect()
}

fn ask<'a>(request: &'a Request, candidates: &'a [Candidate<'a>], method: &Method) -> Option<Asked<'a>> {
    let (earliest, latest) = request.starts(Time::ZERO, method.settings.default_reach).ok()?;
    let is_enough = candidates.len() >= request.hosts();
    is_enough.then_some(Asked { request, earliest, latest, candidates, seed: method.seed })
}

fn run_kolo(planner: &mut OfflinePlanner, question: &Question, repeats: u32) -> Result<(PlanLine, Run), LineError> {
    let started = Instant::now();
    let mut clock = PhaseStopwatch::new(|| started.elapsed());
    let sum = |line: &PlanLine| line.phases_us.iter().sum::<f64>();
    let mut line = planner.plan_line(question.line, &question.text, &mut clock)?;
    for _ in 1..repeats {
        let again = planner.plan_line(question.line, &question.text, &mut clock)?;
        if sum(&again) < sum(&line) {
            line = again;
        }
    }
    let [_, phases_us @ ..] = line.phases_us;
    let answer = line.outcome.plan().map(|plan| Answer { start: plan.start, factor: plan.efficiency });
    Ok((line, Run { answer, us: phases_us.iter().sum(), phases_us }))
}

fn run_textbook(asked: &Asked<'_>, method: &Method) -> Run {
    let Asked { request, earliest, latest, candidates, seed } = *asked;
    let limits = TextbookLimits::default();
    let started = Instant::now();
    let mut clock = PhaseStopwatch::new(|| started.elapsed());
    let mut best = Run { us: f64::INFINITY, ..Run::default() };
    for _ in 0..method.repeats {
        clock.reset();
        let began = Instant::now();
        let plan = textbook::plan(request, earliest, latest, candidates, limits, seed, &mut clock);
        let us = began.elapsed().as_secs_f64() * 1e6;
        let [_, check, start_times, select_and_swap, optimize, _] = clock.stop();
        if us < best.us {
            let answer = plan.map(|plan| Answer { start: plan.start, factor: plan.efficiency });
            best = Run { answer, us, phases_us: [check, start_times, select_and_swap, optimize] };
        }
    }
    best
}

fn run_policy(asked: &Asked<'_>, make: MakePlacement, repeats: u32) -> Result<Run, placement::ChoiceError> {
    let mut best = Run { us: f64::INFINITY, ..Run::default() };
    for _ in 0..repeats {
        let mut policy = make();
        let began = Instant::now();
        let choice = policy.place(asked);
        let us = began.elapsed().as_secs_f64() * 1e6;
        if us < best.us {
            let judged = choice.map(|choice| Ok(Answer { start: choice.start, factor: asked.judge(&choice)? }));
            best = Run { answer: judged.transpose()?, us, ..Run::default() };
        }
    }
    Ok(best)
}
