//! The cases: a grid, and the same requests as collective and as simple ones.
//!
//! Invariant: every request names the hosts to choose from, so all versions choose among the same. A request that names
//! none gets a sample of M N of those that meet its minima and attributes: one pass of phase I, as in the source's
//! experiments.

use std::path::Path;

use broker::{
    ids::RequestId,
    offline::{LineError, read_document},
    phases::{Candidate, Settings, find},
    request::{Request, RequestDocument, RequestError},
    snapshot::GridSnapshot,
};

use super::{args::TablesArgs, error::TablesError};
use crate::{
    generate::{self, Kind},
    placement,
};

/// N of the source's experiments.
pub const SOURCE_HOSTS: [u32; 6] = [2, 5, 10, 15, 30, 60];

/// See the module.
pub struct Workload {
    /// The grid.
    pub grid: GridSnapshot,
    /// The collective requests.
    pub collective: Vec<Question>,
    /// The same requests, simple.
    pub simple: Option<Vec<Question>>,
    /// Where the cases come from, for people.
    pub origin: String,
}

/// One request.
pub struct Question {
    /// Line number in its file, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// N.
    pub hosts: usize,
    /// The request; `None` when it has fewer hosts to choose from than it asks for.
    pub request: Option<Request>,
}

impl Workload {
    /// Reads or draws the cases.
    ///
    /// # Errors
    /// [`TablesError`] names the file and the line.
    pub fn new(args: &TablesArgs) -> Result<Workload, TablesError> {
        let grid = match &args.grid {
            Some(path) => {
                GridSnapshot::read(&read(path)?).map_err(|source| TablesError::Grid { path: path.clone(), source })?
            }
            None => generate::grid(args.seed, args.hosts as usize),
        };
        let mut origin = match &args.grid {
            Some(path) => format!("grid {}", path.display()),
            None => format!("generated grid of {} hosts, seed {}", args.hosts, args.seed),
        };
        let pool = placement::pool(&grid);
        let drawn = |kind: Kind| draw(args, kind, &grid, &pool);
        let (collective, simple) = match (&args.collective, &args.simple) {
            (None, _) => {
                origin += &format!(", {} requests of each kind drawn for each N", args.cases);
                (drawn(Kind::Collective)?, Some(drawn(Kind::Simple)?))
            }
            (Some(path), None) => (questions(path, &pool, args.seed)?, None),
            (Some(path), Some(simple_path)) => {
                let collective = questions(path, &pool, args.seed)?;
                let simple = questions(simple_path, &pool, args.seed)?;
                check_pairs(&collective, &simple, simple_path)?;
                (collective, Some(simple))
            }
        };
        if let Some(path) = &args.collective {
            origin += &format!(", requests {}", path.display());
        }
        Ok(Workload { grid, collective, simple, origin })
    }
}

/// Reads the whole of `path`.
pub fn read(path: &Path) -> Result<String, TablesError> {
    std::fs::read_to_string(path).map_err(|source| TablesError::File { path: path.to_owned(), source })
}

fn draw(
    args: &TablesArgs,
    kind: Kind,
    grid: &GridSnapshot,
    pool: &[Candidate<'_>],
) -> Result<Vec<Question>, TablesError> {
    let word = match kind {
        Kind::Collective => "collective",
        Kind::Simple => "simple",
    };
    let mut questions = Vec::new();
    for n in SOURCE_HOSTS {
        // Every N has its own draws, the same for both kinds.
        let seed = args.seed.wrapping_mul(1000).wrapping_add(u64::from(n));
        for request in generate::requests(seed, n, args.cases as usize, kind, grid)? {
            let line = questions.len() + 1;
            let mut document = RequestDocument::from(request);
            document.id = RequestId::new(&format!("{word}-n{n:02}-{line:04}")).ok();
            let question = question(line, document, pool, args.seed.wrapping_add(line as u64));
            questions.push(question.map_err(|source| match source {
                LineError::Request { error, .. } => TablesError::Draw(error),
                source => TablesError::Request { path: word.into(), source },
            })?);
        }
    }
    Ok(questions)
}

fn questions(path: &Path, pool: &[Candidate<'_>], seed: u64) -> Result<Vec<Question>, TablesError> {
    let text = read(path)?;
    let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
    let read_one = |(index, text): (usize, &str)| {
        let line = index + 1;
        question(line, read_document(line, text)?, pool, seed.wrapping_add(line as u64))
    };
    let questions: Vec<Question> = lines
        .map(read_one)
        .collect::<Result<_, LineError>>()
        .map_err(|source| TablesError::Request { path: path.to_owned(), source })?;
    if questions.is_empty() { Err(TablesError::NoRequests(path.to_owned())) } else { Ok(questions) }
}

fn question(
    line: usize,
    mut document: RequestDocument,
    pool: &[Candidate<'_>],
    seed: u64,
) -> Result<Question, LineError> {
    let request = |document: &RequestDocument| match Request::try_from(document.clone()) {
        Ok(request) => Ok(Some(request)),
        Err(RequestError::FewerCandidatesThanHosts { .. }) => Ok(None),
        Err(error) => Err(LineError::Request { line, error }),
    };
    let mut checked = request(&document)?;
    if let (None, Some(asked)) = (&document.candidates, &checked) {
        let chosen = sample(asked, pool, Settings::default().m_init, seed);
        document.candidates = Some(chosen.iter().map(|candidate| candidate.host.id.clone()).collect());
        checked = request(&document)?;
    }
    let text = serde_json::to_string(&document).map_err(|error| LineError::Malformed {
        line,
        path: "request".to_owned(),
        message: error.to_string(),
    })?;
    Ok(Question { line, text, hosts: document.hosts as usize, request: checked })
}

/// One pass of phase I with this M; empty when there are fewer than N.
pub fn sample<'p>(request: &Request, pool: &[Candidate<'p>], m: u32, seed: u64) -> Vec<Candidate<'p>> {
    let Ok(eligible) = find::eligible(request, pool) else { return Vec::new() };
    find::sample(request, &eligible, m, seed).into_iter().map(|index| pool[index]).collect()
}

fn check_pairs(collective: &[Question], simple: &[Question], path: &Path) -> Result<(), TablesError> {
    let wrong = |line: usize, message: String| Err(TablesError::Line { path: path.to_owned(), line, message });
    for (one, other) in collective.iter().zip(simple) {
        let times =
            |question: &Question| question.request.as_ref().map(|request| (request.duration(), request.asked_starts()));
        if one.hosts != other.hosts {
            let message =
                format!("expected a request for {} hosts, as line {} of the collective ones", one.hosts, one.line);
            return wrong(other.line, message);
        }
        if times(one).zip(times(other)).is_some_and(|(one, other)| one != other) {
            let message = format!("expected the duration and window of line {} of the collective ones", one.line);
            return wrong(other.line, message);
        }
    }
    if collective.len() == simple.len() {
        return Ok(());
    }
    let last = simple.last().map_or(1, |question| question.line);
    wrong(
        last,
        format!("expected {} requests, as many as there are collective ones, got {}", collective.len(), simple.len()),
    )
}
