//! Plans every request of a file twice in the same run: with Kolo's phases and with the textbook's.
//!
//! Invariant: both see the same hosts and schedules, and both are timed over phases II to V, inputs included.

use std::{collections::BTreeMap, fs, path::Path, time::Instant};

use broker::{
    ids::RequestId,
    offline::{LineError, OfflinePlanner, PlanLine},
    phases::{
        Candidate, PhaseStopwatch, Settings, find,
        textbook::{self, TextbookLimits, TextbookPlan},
    },
    request::{Request, RequestDocument},
    snapshot::GridSnapshot,
    time::Time,
};
use serde::Deserialize;

use super::TablesError;

/// One request, planned both ways.
pub struct Case {
    /// N.
    pub hosts: usize,
    /// Kolo's answer.
    pub kolo: PlanLine,
    /// The textbook's answer; the outer `None` when it was left out.
    pub textbook: Option<Textbook>,
    /// The proven earliest start, when it is known: `Some(None)` means that there is none.
    pub exact: Option<Option<Time>>,
}

/// The textbook's answer to one request.
pub struct Textbook {
    /// Its plan, if it found one.
    pub plan: Option<TextbookPlan>,
    /// What phases II to V took.
    pub us: f64,
}

impl Case {
    /// What Kolo's phases II to V took.
    pub fn kolo_us(&self) -> f64 {
        self.kolo.phases_us[1..].iter().sum()
    }
}

#[derive(Deserialize)]
struct ExactLine {
    id: RequestId,
    start: Option<Time>,
}

/// Reads the whole of `path`.
pub fn read(path: &Path) -> Result<String, TablesError> {
    fs::read_to_string(path).map_err(|source| TablesError::File { path: path.to_owned(), source })
}

/// Proven starts by request.
pub fn read_exact(path: Option<&Path>) -> Result<BTreeMap<RequestId, Option<Time>>, TablesError> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    let mut starts = BTreeMap::new();
    for (index, line) in read(path)?.lines().enumerate() {
        let line: ExactLine = serde_json::from_str(line).map_err(|error| TablesError::Exact {
            path: path.to_owned(),
            line: index + 1,
            message: error.to_string(),
        })?;
        starts.insert(line.id, line.start);
    }
    Ok(starts)
}

/// How requests are planned and measured.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// The planner's settings.
    pub settings: Settings,
    /// Seed of all random choices.
    pub seed: u64,
    /// How often every request is planned; the least time counts.
    pub repeats: u32,
    /// Whether the textbook version runs as well.
    pub with_textbook: bool,
}

/// Plans every request of `requests`.
pub fn measure(
    snapshot: &GridSnapshot,
    requests: &Path,
    exact: &BTreeMap<RequestId, Option<Time>>,
    method: Method,
) -> Result<Vec<Case>, TablesError> {
    let mut planner = OfflinePlanner::new(snapshot.clone(), method.settings, method.seed, false)?;
    let mut cases = Vec::new();
    for (index, text) in read(requests)?.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let kolo = run_kolo(&mut planner, index + 1, text, method.repeats)
            .map_err(|source| TablesError::Request { path: requests.to_owned(), source })?;
        let document: RequestDocument = serde_json::from_str(text).map_err(|error| TablesError::Exact {
            path: requests.to_owned(),
            line: index + 1,
            message: error.to_string(),
        })?;
        let hosts = document.hosts as usize;
        let textbook = method.with_textbook.then(|| match Request::try_from(document) {
            Ok(request) => run_textbook(snapshot, &request, method),
            // Fewer candidates than hosts: neither version has anything to do.
            Err(_) => Textbook { plan: None, us: 0.0 },
        });
        let exact = exact.get(&kolo.id).copied();
        cases.push(Case { hosts, kolo, textbook, exact });
    }
    Ok(cases)
}

fn run_kolo(planner: &mut OfflinePlanner, line: usize, text: &str, repeats: u32) -> Result<PlanLine, LineError> {
    let started = Instant::now();
    let mut clock = PhaseStopwatch::new(|| started.elapsed());
    let mut best = planner.plan_line(line, text, &mut clock)?;
    for _ in 1..repeats {
        let again = planner.plan_line(line, text, &mut clock)?;
        if again.phases_us.iter().sum::<f64>() < best.phases_us.iter().sum() {
            best = again;
        }
    }
    Ok(best)
}

fn run_textbook(snapshot: &GridSnapshot, request: &Request, method: Method) -> Textbook {
    let pool: Vec<Candidate<'_>> = snapshot
        .hosts
        .iter()
        .map(|host| Candidate { site: &host.site, host: &host.host, schedule: &host.schedule })
        .collect();
    let Ok(eligible) = find::eligible(request, &pool) else { return Textbook { plan: None, us: 0.0 } };
    let candidates: Vec<Candidate<'_>> = eligible.into_iter().map(|index| pool[index]).collect();
    let Ok((earliest, latest)) = request.starts(Time::ZERO, method.settings.default_reach) else {
        return Textbook { plan: None, us: 0.0 };
    };
    let mut us = f64::INFINITY;
    let mut plan = None;
    for _ in 0..method.repeats {
        let began = Instant::now();
        plan = textbook::plan(request, earliest, latest, &candidates, TextbookLimits::default(), method.seed);
        us = us.min(began.elapsed().as_secs_f64() * 1e6);
    }
    Textbook { plan, us }
}
