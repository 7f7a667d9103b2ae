//! The requests of a batch as they are in files, one JSON object a line.
//!
//! Invariant: what is read was checked as the node checks it; labels are of one request each, whatever file they are from.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use broker::{
    ids::RequestId,
    offline::{LineError, read_document},
    phases::Settings,
    request::{Request, RequestDocument},
    time::Time,
};
use kolo_api::batch::REQUESTS_MAX;
use kolo_text::document::DocumentError;

use super::plan_offline::{at_line, each_line, wrong_line};
use crate::error::CliError;

/// One request of a file.
pub(super) struct Line {
    /// Its label, or `line-K`.
    pub name: String,
    pub request: Request,
    /// As it is written down.
    pub document: RequestDocument,
}

/// The requests that were read so far, at `now`.
pub(super) struct Reading {
    now: Time,
    labels: BTreeMap<RequestId, (PathBuf, usize)>,
    lines: Vec<Line>,
}

impl Reading {
    /// Nothing so far.
    pub fn at(now: Time) -> Reading {
        Reading { now, labels: BTreeMap::new(), lines: Vec::new() }
    }

    /// How many were read.
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// Reads what the user has named; `-` is standard input.
    ///
    /// # Errors
    /// [`CliError`] with file, line and key.
    pub fn read(&mut self, file: &Path) -> Result<(), CliError> {
        if file == Path::new("-") {
            return self.add(file, io::stdin().lock(), &mut None);
        }
        self.add(file, open(file)?, &mut None)
    }

    /// Reads what an earlier batch has postponed, if there is anything; the names of those whose window has passed, which are left out.
    ///
    /// # Errors
    /// As [`Reading::read`].
    pub fn read_postponed(&mut self, file: &Path) -> Result<Vec<String>, CliError> {
        let mut passed = Some(Vec::new());
        if file.exists() {
            self.add(file, open(file)?, &mut passed)?;
        }
        Ok(passed.unwrap_or_default())
    }

    /// All that was read.
    ///
    /// # Errors
    /// [`CliError`] when it is nothing.
    pub fn done(self, file: &Path) -> Result<Vec<Line>, CliError> {
        if self.lines.is_empty() {
            return Err(DocumentError::about(file, "", "a batch has at least one request; there is none").into());
        }
        Ok(self.lines)
    }

    /// Those whose window has passed go to `passed`, or are errors.
    fn add(&mut self, file: &Path, input: impl Read, passed: &mut Option<Vec<String>>) -> Result<(), CliError> {
        each_line(file, BufReader::new(input), |number, text| {
            if self.lines.len() == REQUESTS_MAX {
                return Err(at_line(file, number, "", format!("a batch has at most {REQUESTS_MAX} requests")));
            }
            let document = read_document(number, text).map_err(|error| wrong_line(file, error))?;
            if document.extends.is_some() {
                return Err(at_line(file, number, "extends", "not in a batch".to_owned()));
            }
            let wrong = |error| wrong_line(file, LineError::Request { line: number, error });
            let request = Request::try_from(document.clone()).map_err(wrong)?;
            let name = request.id().map_or_else(|| format!("line-{number}"), ToString::to_string);
            match (request.starts(self.now, Settings::default().default_reach), passed.as_mut()) {
                (Ok(_), _) => {}
                // A checked request has no other fault in its window.
                (Err(_), Some(passed)) => {
                    passed.push(name);
                    return Ok(());
                }
                (Err(error), None) => return Err(wrong(error)),
            }
            if let Some(label) = request.id()
                && let Some((other, line)) = self.labels.insert(label.clone(), (file.to_owned(), number))
            {
                let known = if other == file { format!("line {line}") } else { format!("{}:{line}", other.display()) };
                return Err(at_line(file, number, "id", format!("{label} is the id of {known} as well")));
            }
            self.lines.push(Line { name, request, document });
            Ok(())
        })
    }
}

fn open(file: &Path) -> Result<File, DocumentError> {
    File::open(file).map_err(|source| DocumentError::Read { file: file.to_owned(), source })
}

/// Puts these requests into a file, in the place of what is there.
///
/// # Errors
/// [`CliError`] when that is not possible; what is there stays.
pub(super) fn write<'a>(file: &Path, requests: impl Iterator<Item = &'a RequestDocument>) -> Result<(), CliError> {
    let mut text = String::new();
    let unfinished = file.with_extension("unfinished");
    let failed = |source| CliError::Io { doing: "writing the postponed requests", source };
    for request in requests {
        text.push_str(&serde_json::to_string(request).map_err(|error| failed(error.into()))?);
        text.push('\n');
    }
    fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, file)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<String>, String> {
        let (mut reading, file) = (Reading::at(Time(1_000)), Path::new("r.jsonl"));
        let read = reading.add(file, text.as_bytes(), &mut None).and_then(|()| reading.done(file));
        let lines = read.map_err(|error| format!("{} {error}", error.exit().code()))?;
        Ok(lines.into_iter().map(|line| line.name).collect())
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_key() {
        let good = |id: &str| format!("{{\"id\":\"{id}\",\"hosts\":1,\"duration\":60}}\n");
        let plain = "{\"hosts\":1,\"duration\":60}\n";
        assert_eq!(read_text(&(good("a") + "\n" + plain)).unwrap(), ["a", "line-3"]);
        assert_eq!(read_text(&plain.repeat(1_000)).unwrap().len(), 1_000);
        for (text, expected) in [
            (String::new(), "64 r.jsonl: a batch has at least one request"),
            (plain.repeat(10_000), "64 r.jsonl:1001: a batch has at most 1000 requests"),
            (good("a") + &good("b") + &good("a"), "64 r.jsonl:3: id: a is the id of line 1 as well"),
            (plain.repeat(999) + "{\"hosts\":1,\"duration\":60,\"total\":7}", "64 r.jsonl:1000: total: invalid type"),
            (plain.repeat(999) + "{\"hosts\":1,\"duration\":0}", "64 r.jsonl:1000: duration: expected 1 to"),
            ("{\"hosts\":1,\"duration\":60,\"latest\":999}".to_owned(), "64 r.jsonl:1: latest"),
            ("{\"hosts\":1,\"duration\":60,\"extends\":\"r\"}".to_owned(), "64 r.jsonl:1: extends: not in a batch"),
            ("nonsense".to_owned(), "64 r.jsonl:1: "),
        ] {
            let error = read_text(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_was_postponed_comes_first_and_leaves_when_its_window_has_passed() {
        let directory = tempfile::tempdir().unwrap();
        let (rest, new) = (directory.path().join("rest.jsonl"), directory.path().join("new.jsonl"));
        fs::write(&new, "{\"id\":\"new\",\"hosts\":1,\"duration\":60}\n").unwrap();
        let documents =
            [r#"{"id":"old","hosts":2,"duration":60,"latest":1000}"#, r#"{"hosts":3,"duration":60,"latest":900}"#]
                .map(|text| serde_json::from_str::<RequestDocument>(text).unwrap());
        let read = |now| {
            let mut reading = Reading::at(Time(now));
            let passed = reading.read_postponed(&rest).unwrap();
            reading.read(&new).unwrap();
            let names = reading.done(&new).unwrap().into_iter().map(|line| line.name).collect::<Vec<_>>();
            (names, passed)
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(read(0), (names(&["new"]), names(&[])));
        write(&rest, documents.iter()).unwrap();
        assert_eq!(read(900), (names(&["old", "line-2", "new"]), names(&[])));
        assert_eq!(read(1_000), (names(&["old", "new"]), names(&["line-2"])));
        assert_eq!(read(1_001), (names(&["new"]), names(&["old", "line-2"])));
        let mut twice = Reading::at(Time(0));
        twice.read_postponed(&rest).unwrap();
        let error = twice.read(&rest).unwrap_err().to_string();
        assert!(error.ends_with("rest.jsonl:1: id: old is the id of line 1 as well"), "{error}");
        write(&rest, [].into_iter()).unwrap();
        assert_eq!(read(0), (names(&["new"]), names(&[])));
    }
}
