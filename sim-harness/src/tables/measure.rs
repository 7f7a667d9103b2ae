//! Plans every request of a file twice in the same run: with Kolo's phases and with the textbook's.
//!
//! Invariant: both see the same hosts and schedules, and both are timed over phases II to V, inputs included.

use std::{collections::BTreeMap, fs, path::Path, time::Instant};

use broker::{
    ids::RequestId,
    offline::{OfflinePlanner, PlanLine},
    phases::{
        Candidate, Settings, find,
        textbook::{self, TextbookLimits, TextbookPlan},
    },
    request::Request,
    snapshot::GridSnapshot,
    time::{Span, Time},
};
use serde::Deserialize;

use super::{TablesError, stopwatch::PhaseClock};

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

/// Plans every request of `requests`.
pub fn measure(
    snapshot: &GridSnapshot,
    requests: &Path,
    exact: &BTreeMap<RequestId, Option<Time>>,
    settings: Settings,
    seed: u64,
    with_textbook: bool,
) -> Result<Vec<Case>, TablesError> {
    let mut planner = OfflinePlanner::new(snapshot.clone(), settings, seed, false)?;
    let mut clock = PhaseClock::new();
    let mut cases = Vec::new();
    for (index, text) in read(requests)?.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let kolo = planner
            .plan_line(index + 1, text, &mut clock)
            .map_err(|source| TablesError::Request { path: requests.to_owned(), source })?;
        // The planner has just accepted the same text.
        let request: Request = serde_json::from_str(text).map_err(|error| TablesError::Exact {
            path: requests.to_owned(),
            line: index + 1,
            message: error.to_string(),
        })?;
        let textbook = with_textbook.then(|| run_textbook(snapshot, &request, settings.default_reach, seed));
        let exact = exact.get(&kolo.id).copied();
        cases.push(Case { hosts: request.hosts(), kolo, textbook, exact });
    }
    Ok(cases)
}

fn run_textbook(snapshot: &GridSnapshot, request: &Request, default_reach: Span, seed: u64) -> Textbook {
    let pool: Vec<Candidate<'_>> = snapshot
        .hosts
        .iter()
        .map(|host| Candidate { site: &host.site, host: &host.host, schedule: &host.schedule })
        .collect();
    let Ok(eligible) = find::eligible(request, &pool) else { return Textbook { plan: None, us: 0.0 } };
    let candidates: Vec<Candidate<'_>> = eligible.into_iter().map(|index| pool[index]).collect();
    let Ok((earliest, latest)) = request.starts(Time::ZERO, default_reach) else {
        return Textbook { plan: None, us: 0.0 };
    };
    let began = Instant::now();
    let plan = textbook::plan(request, earliest, latest, &candidates, TextbookLimits::default(), seed);
    Textbook { plan, us: began.elapsed().as_secs_f64() * 1e6 }
}
