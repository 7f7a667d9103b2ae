//! `kolo plan --grid`: plans a file of requests on a snapshot, one line of JSON a request, without any node.
//!
//! A thin caller of [`broker::offline`]: it brings the files and the clock. Invariant: lines come in the order of the
//! requests; the whole file is read and checked before the first of them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
    time::Instant,
};

use broker::{
    offline::{Asked, LineError, OfflinePlanner},
    phases::{PhaseStopwatch, Settings},
    snapshot::GridSnapshot,
};
use indicatif::{ProgressBar, ProgressStyle};
use kolo_config::parse_effort;
use kolo_text::document::{self, BYTE_ORDER_MARK, DocumentError};
use serde::Serialize;

use super::{Context, plan_batch};
use crate::{error::CliError, exit::Exit, output::shows_progress, request, request_args::PlanArgs};

/// Longest line of requests, in bytes: a request that names as many candidates as it may stays far below.
const MAX_LINE_BYTES: u64 = 32 << 20;

/// Runs the command.
///
/// # Errors
/// [`CliError::Document`] with file, line and key when the snapshot or a request is malformed.
pub fn run(context: &mut Context, args: &PlanArgs, grid: &Path, requests: &Path) -> Result<Exit, CliError> {
    let text = document::read_text(grid)?;
    let snapshot = GridSnapshot::read(&text).map_err(|error| DocumentError::about(grid, "", error))?;
    let flags = request::written(None, &args.request, &context.now)?;
    let effort = flags.get("effort").and_then(|effort| parse_effort(effort.as_str()?).ok());
    let settings = Settings { effort: effort.unwrap_or_default(), ..Settings::default() };
    let mut planner = OfflinePlanner::new(snapshot, settings, args.seed.unwrap_or(0), args.commit);
    let batch = args.batch.policy.as_deref().map(|policy| plan_batch::asked(&args.batch, policy)).transpose()?;
    let input: Box<dyn Read> = if requests == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let source = File::open(requests);
        Box::new(source.map_err(|source| DocumentError::Read { file: requests.to_owned(), source })?)
    };
    let mut output = BufWriter::new(context.output.sink());
    let input = BufReader::new(input);
    let result = match batch {
        Some(batch) => batch.plan(&planner, requests, input, &mut output),
        None => {
            let progress = progress_line();
            let planned = plan_lines(&mut planner, requests, input, &mut output, &progress);
            progress.finish_and_clear();
            planned
        }
    };
    let flushed = output.flush().map_err(CliError::output);
    result.and(flushed)?;
    Ok(Exit::Done)
}

fn plan_lines(
    planner: &mut OfflinePlanner,
    requests: &Path,
    input: impl BufRead,
    output: &mut impl Write,
    progress: &ProgressBar,
) -> Result<(), CliError> {
    let started = Instant::now();
    let mut clock = PhaseStopwatch::new(|| started.elapsed());
    for asked in read(planner, requests, input)? {
        write_line(output, &planner.plan_asked(&asked, &mut clock))?;
        progress.inc(1);
    }
    Ok(())
}

/// The requests of a file, each with an id of its own.
pub(super) fn read(planner: &OfflinePlanner, file: &Path, input: impl BufRead) -> Result<Vec<Asked>, CliError> {
    let (mut all, mut lines) = (Vec::new(), BTreeMap::new());
    each_line(file, input, |number, line| {
        let asked = planner.read_line(number, line).map_err(|error| wrong_line(file, error))?;
        if let Some(other) = lines.insert(asked.id.clone(), number) {
            return Err(at_line(file, number, "id", format!("{} is the id of line {other} as well", asked.id)));
        }
        all.push(asked);
        Ok(())
    })?;
    Ok(all)
}

/// Hands over every line that is not blank, without its end and a byte order mark before all, with its number.
pub(super) fn each_line(
    requests: &Path,
    mut input: impl BufRead,
    mut take: impl FnMut(usize, &str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let failed = |source| DocumentError::Read { file: requests.to_owned(), source };
        let bytes = input.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).map_err(failed)?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 == MAX_LINE_BYTES {
            return Err(at_line(requests, number, "", format!("longer than {} MiB", MAX_LINE_BYTES >> 20)));
        }
        let text = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(&line);
        if !text.trim().is_empty() {
            take(number, text.trim_end_matches(['\n', '\r']))?;
        }
    }
    Ok(())
}

/// Writes one line of the answer.
pub(super) fn write_line(output: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value).map_err(|error| CliError::output(error.into()))?;
    writeln!(output, "{text}").map_err(CliError::output)
}

/// What is wrong with a line, and where.
pub(super) fn wrong_line(requests: &Path, error: LineError) -> CliError {
    match error {
        LineError::Malformed { line, path, message } => {
            // What is no JSON at all has no key.
            let key = if matches!(path.as_str(), "." | "?") { "" } else { path.as_str() };
            at_line(requests, line, key, message)
        }
        // The text begins with the key.
        LineError::Request { line, error } => at_line(requests, line, "", error.to_string()),
        LineError::UnknownCandidate { line, host } => {
            at_line(requests, line, "candidates", format!("{host} is not a host of the grid"))
        }
    }
}

/// A complaint about a line.
pub(super) fn at_line(file: &Path, line: usize, key: &str, message: String) -> CliError {
    CliError::Document(DocumentError::Content { file: file.to_owned(), line: Some(line), key: key.to_owned(), message })
}

fn progress_line() -> ProgressBar {
    if !shows_progress() {
        return ProgressBar::hidden();
    }
    let line = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} requests planned {elapsed}") {
        line.set_style(style);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = r#"{"format":"kolo-grid/1","hosts":[
        {"id":"h1","site":"s1","resources":{"cpu":4000},"attributes":{},"occupancy":{"cpu":[[0,4000],[600,0]]}},
        {"id":"h2","site":"s2","resources":{"cpu":2000},"attributes":{},"occupancy":{}}]}"#;

    fn lines(requests: &str, commit: bool) -> (Vec<serde_json::Value>, Result<(), String>) {
        let snapshot = GridSnapshot::read(GRID).unwrap();
        let mut planner = OfflinePlanner::new(snapshot, Settings::default(), 1, commit);
        let mut printed = Vec::new();
        let file = Path::new("r.jsonl");
        let result = plan_lines(&mut planner, file, requests.as_bytes(), &mut printed, &ProgressBar::hidden());
        let printed = String::from_utf8(printed).unwrap();
        let values = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (values, result.map_err(|error| format!("{} {error}", error.exit().code())))
    }

    #[test]
    fn every_request_gets_a_line_in_its_order() {
        let (lines, result) = lines(
            "{\"id\":\"a\",\"hosts\":2,\"duration\":60,\"total\":{\"cpu\":5000}}\n\n\
             {\"id\":\"b\",\"hosts\":2,\"duration\":60,\"total\":{\"cpu\":9000}}\n",
            false,
        );
        assert_eq!(result, Ok(()));
        assert_eq!((lines[0]["id"].as_str(), lines[0]["outcome"].as_str()), (Some("a"), Some("allocated")));
        assert_eq!(lines[0]["start"], 600);
        assert!(lines[0]["phases_us"]["find"].as_f64().is_some_and(|us| us > 0.0), "{}", lines[0]);
        assert_eq!((lines[1]["id"].as_str(), lines[1]["outcome"].as_str()), (Some("b"), Some("rejected")));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_request() {
        let request = "{\"hosts\":1,\"duration\":60}\r\n";
        assert_eq!(lines(&format!("\u{feff}{request}{request}"), false).1, Ok(()));
        // In the middle it is none.
        assert!(lines(&format!("{request}\u{feff}{{\"id\":"), false).1.is_err());
    }

    #[test]
    fn commits_are_seen_by_later_requests() {
        let request = "{\"hosts\":1,\"duration\":60,\"per_host\":{\"cpu\":2000},\"candidates\":[\"h2\"]}\n";
        let (dry, _) = lines(&request.repeat(2), false);
        assert_eq!((&dry[0]["start"], &dry[1]["start"]), (&0.into(), &0.into()));
        let (committed, _) = lines(&request.repeat(2), true);
        assert_eq!((&committed[0]["start"], &committed[1]["start"]), (&0.into(), &60.into()));
    }

    #[test]
    fn a_malformed_line_is_said_with_its_place_before_any_answer() {
        let good = "{\"id\":\"g\",\"hosts\":1,\"duration\":60}\n";
        for (bad, expected) in [
            ("{\"hosts\":1,\"duration\":60,\"totals\":{}}", "64 r.jsonl:2: totals: unknown field"),
            ("{\"hosts\":\"x\",\"duration\":60}", "64 r.jsonl:2: hosts: invalid type"),
            ("{\"hosts\":1,\"duration\":60,\"candidates\":[\"h9\"]}", "64 r.jsonl:2: candidates: h9 is not a host"),
            ("{\"hosts\":1", "64 r.jsonl:2: EOF while parsing an object at line 1 column 10"),
            ("nonsense", "64 r.jsonl:2: "),
            ("{\"id\":\"g\",\"hosts\":1,\"duration\":60}", "64 r.jsonl:2: id: g is the id of line 1 as well"),
        ] {
            let (printed, result) = lines(&format!("{good}{bad}\n{}", good.replace("g\"", "h\"")), false);
            assert!(printed.is_empty(), "{bad}");
            let error = result.unwrap_err();
            assert!(error.starts_with(expected), "{bad}: {error}");
        }
    }
}
