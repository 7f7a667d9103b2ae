//! The cases: a grid, and the same requests as collective and as simple ones.
//!
//! Invariant: every request names the hosts to choose from, so all versions choose among the same. A request that names
//! none gets a sample of M N of those that meet its minima and attributes: one pass of phase I, as in the source's
//! experiments.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use broker::{
    ids::RequestId,
    offline::{LineError, read_document},
    phases::{Candidate, Settings, find},
    request::{Request, RequestDocument, RequestError},
    snapshot::GridSnapshot,
};
use sim_kit::{
    error::BadUsage,
    generate::{self, Kind},
};

use super::{args::TablesArgs, source::HOSTS};
use crate::placement;

/// A grid, and requests of both kinds.
pub(super) struct Workload {
    pub(super) grid: GridSnapshot,
    pub(super) collective: Vec<Question>,
    /// The same requests, simple.
    pub(super) simple: Option<Vec<Question>>,
    /// Where the cases come from, for people.
    pub(super) origin: String,
}

/// One request.
pub(super) struct Question {
    /// Line number in its file, from 1.
    pub(super) line: usize,
    /// The line, with the hosts to choose from.
    pub(super) text: String,
    /// N.
    pub(super) hosts: usize,
    /// The request; `None` when it has fewer hosts to choose from than it asks for.
    pub(super) request: Option<Request>,
}

impl Workload {
    /// Reads or draws the cases.
    ///
    /// # Errors
    /// Bad usage with file and line.
    pub(super) fn new(args: &TablesArgs) -> anyhow::Result<Workload> {
        let (grid, mut origin) = match &args.grid {
            Some(path) => {
                let grid = GridSnapshot::read(&read(path)?).with_context(|| BadUsage::new(path.display()))?;
                (grid, format!("grid {}", path.display()))
            }
            None => {
                let grid = generate::grid(args.seed, args.hosts as usize);
                (grid, format!("generated grid of {} hosts, seed {}", args.hosts, args.seed))
            }
        };
        let pool = placement::pool(&grid);
        let (collective, simple) = match &args.collective {
            None => {
                origin += &format!(", {} requests of each kind drawn for each N", args.cases);
                (draw(args, Kind::Collective, &grid, &pool)?, Some(draw(args, Kind::Simple, &grid, &pool)?))
            }
            Some(path) => {
                origin += &format!(", requests {}", path.display());
                let collective = questions(path, &pool, args.seed)?;
                let simple = match &args.simple {
                    Some(path) => {
                        let simple = questions(path, &pool, args.seed)?;
                        check_pairs(&collective, &simple)
                            .map_err(|error| anyhow!(BadUsage::new(format_args!("{}: {error}", path.display()))))?;
                        Some(simple)
                    }
                    None => None,
                };
                (collective, simple)
            }
        };
        Ok(Workload { grid, collective, simple, origin })
    }
}

/// Reads the whole of `path`.
///
/// # Errors
/// Bad usage when that is not possible.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| BadUsage::new(path.display()))
}

fn draw(args: &TablesArgs, kind: Kind, grid: &GridSnapshot, pool: &[Candidate<'_>]) -> anyhow::Result<Vec<Question>> {
    let name = if kind == Kind::Collective { "collective" } else { "simple" };
    let mut questions = Vec::new();
    for n in HOSTS {
        // Every N has its own draws, the same for both kinds.
        let seed = args.seed.wrapping_mul(1000).wrapping_add(u64::from(n));
        let drawn = generate::requests(seed, n, args.cases as usize, kind, grid);
        for request in drawn.with_context(|| BadUsage::new("requests for this grid"))? {
            let line = questions.len() + 1;
            let mut document = RequestDocument::from(request);
            document.id = RequestId::new(&format!("{name}-n{n:02}-{line:04}")).ok();
            let question = question(line, document, pool, args.seed);
            questions.push(question.with_context(|| BadUsage::new("requests for this grid"))?);
        }
    }
    Ok(questions)
}

fn questions(path: &Path, pool: &[Candidate<'_>], seed: u64) -> anyhow::Result<Vec<Question>> {
    let text = read(path)?;
    let lines = (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty());
    let questions: Result<Vec<Question>, LineError> =
        lines.map(|(line, text)| question(line, read_document(line, text)?, pool, seed)).collect();
    let questions = questions.with_context(|| BadUsage::new(path.display()))?;
    ensure!(!questions.is_empty(), BadUsage::new(format_args!("{}: expected at least one request", path.display())));
    Ok(questions)
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
        let chosen = sample(asked, pool, Settings::default().m_init, seed.wrapping_add(line as u64));
        document.candidates = Some(chosen.iter().map(|candidate| candidate.host.id.clone()).collect());
        checked = request(&document)?;
    }
    let text = serde_json::to_string(&document).expect("a request that was read or drawn can be written");
    Ok(Question { line, text, hosts: document.hosts as usize, request: checked })
}

/// One pass of phase I with this M; empty when there are fewer than N.
pub(super) fn sample<'p>(request: &Request, pool: &[Candidate<'p>], m: u32, seed: u64) -> Vec<Candidate<'p>> {
    let Ok(eligible) = find::eligible(request.demand(), pool) else { return Vec::new() };
    find::sample(request.demand(), &eligible, m, seed).into_iter().map(|index| pool[index]).collect()
}

/// Whether the simple requests are the collective ones, line for line; the error names the line.
fn check_pairs(collective: &[Question], simple: &[Question]) -> anyhow::Result<()> {
    for (one, other) in collective.iter().zip(simple) {
        let times = |question: &Question| {
            question.request.as_ref().map(|request| (request.demand().length().at_reference(), request.window()))
        };
        let (line, at) = (other.line, one.line);
        if one.hosts != other.hosts {
            bail!("line {line}: expected a request for {} hosts, as line {at} of the collective ones", one.hosts);
        }
        if times(one).zip(times(other)).is_some_and(|(one, other)| one != other) {
            bail!("line {line}: expected the duration and window of line {at} of the collective ones");
        }
    }
    let (expected, got) = (collective.len(), simple.len());
    let last = simple.last().map_or(1, |question| question.line);
    ensure!(
        expected == got,
        "line {last}: expected {expected} requests, as many as there are collective ones, got {got}"
    );
    Ok(())
}
