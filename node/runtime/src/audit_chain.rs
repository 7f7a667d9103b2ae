//! The chain of an audit log: each line names the hash of the line before it, so that a line that is changed, put in or taken out is seen.
//!
//! Invariant: whoever may write the files may write a whole chain anew; the hash of a last line that is kept elsewhere shows that. Lines of a
//! program before there were chains are taken as they are, where they are the first ones.

use std::{fs, io, io::ErrorKind, path::Path};

use blake3::Hash;
use serde::Deserialize;

use super::audit::By;

/// Stand-in for a hash in the first line of all.
const NOTHING: Hash = Hash::from_bytes([0; 32]);
/// Most breaks that are told.
const BREAKS_MAX: usize = 8;
/// Most reads of two files, one of which is put away meanwhile.
const READS_MAX: usize = 3;

/// Result of a look at the files of one right.
#[derive(Debug, PartialEq, Eq)]
pub struct AuditChain {
    pub lines: usize,
    /// Hash of the last line.
    pub last: Option<Hash>,
    /// The first ones.
    pub breaks: Vec<AuditBreak>,
}

/// A place at which lines are not as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditBreak {
    pub file: &'static str,
    /// From 1 on.
    pub line: usize,
    pub why: &'static str,
}

#[derive(Deserialize)]
struct OfLine {
    before: Option<String>,
}

/// The hash that the next line names. What a crash has left of a line is dropped.
pub(super) fn last_hash(file: &Path, before: &Path) -> io::Result<Hash> {
    let text = read(file)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        fs::File::options().write(true).open(file)?.set_len(whole as u64)?;
    }
    let last = |text: &[u8]| lines(text).last().map(blake3::hash);
    Ok(match last(&text) {
        Some(hash) => hash,
        None => last(&read(before)?).unwrap_or(NOTHING),
    })
}

/// Looks at all lines of one right in a data directory, whether or not a node writes there.
///
/// # Errors
/// Errors of the disk; files that are not there hold no lines.
pub fn check(directory: &Path, by: By) -> io::Result<AuditChain> {
    let [file, before] = by.files().map(|name| directory.join(name));
    let mut texts = (read(&before)?, read(&file)?);
    for _ in 0..READS_MAX {
        let again = read(&before)?;
        if again == texts.0 {
            break;
        }
        texts = (again, read(&file)?);
    }
    Ok(check_texts(by, &texts.0, &texts.1))
}

fn check_texts(by: By, before: &[u8], file: &[u8]) -> AuditChain {
    let [name, name_before] = by.files();
    let of = |name, text| lines(text).enumerate().map(move |(index, line)| (name, index + 1, line));
    let mut found = AuditChain { lines: 0, last: None, breaks: Vec::new() };
    // Lines of a program before there were chains come first.
    let mut is_chained = false;
    for (file, line, text) in of(name_before, before).chain(of(name, file)) {
        let named = serde_json::from_slice::<OfLine>(text).map(|line| line.before);
        let expected = found.last.replace(blake3::hash(text));
        let names_any = matches!(named, Ok(Some(_)));
        found.lines += 1;
        let why = match (named, expected) {
            // Before there were chains a line that was cut by a crash had the next one behind it.
            (Err(_), _) => is_chained.then_some("it is no line of an audit log"),
            (Ok(None), _) => is_chained.then_some("it names no line before it"),
            (Ok(Some(named)), Some(expected)) => {
                (named != *expected.to_hex()).then_some("it does not follow the line before it")
            }
            // The lines before the older file are gone as they should be.
            (Ok(Some(named)), None) => {
                (file == name && named != *NOTHING.to_hex()).then_some("the lines before it are missing")
            }
        };
        is_chained |= names_any;
        let told = why.filter(|_| found.breaks.len() < BREAKS_MAX);
        found.breaks.extend(told.map(|why| AuditBreak { file, line, why }));
    }
    found
}

/// The lines that are whole.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::audit::*, *};

    /// The lines of a log of six.
    fn written(directory: &Path) -> Vec<String> {
        let log = AuditLog::at(directory);
        for at_ms in 0..6 {
            let line =
                AuditLine { at_ms, who: "operator", from: "127.0.0.1", what: "POST /v1/drain", id: None, status: 200 };
            log.append(By::Operator, &line, FILE_BYTES_MAX).unwrap();
        }
        let text = fs::read_to_string(directory.join(By::Operator.files()[0])).unwrap();
        text.split_inclusive('\n').map(str::to_owned).collect()
    }

    #[test]
    fn a_line_that_is_changed_put_in_or_taken_out_is_told_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let whole = written(directory.path());
        let [name, name_before] = By::Operator.files();
        let found = |before: &[String], lines: &[String]| {
            fs::write(directory.path().join(name_before), before.concat()).unwrap();
            fs::write(directory.path().join(name), lines.concat()).unwrap();
            let found = check(directory.path(), By::Operator).unwrap();
            found.breaks.iter().map(|one| (one.file, one.line)).collect::<Vec<_>>()
        };
        assert_eq!(found(&[], &whole), []);
        assert_eq!(found(&whole[..2], &whole[2..]), []);
        assert_eq!(found(&whole[1..3], &whole[3..]), [], "the oldest lines go");
        let changed = |at: usize, from: &str, to: &str| {
            let mut lines = whole.clone();
            lines[at] = lines[at].replace(from, to);
            assert_ne!(lines, whole);
            lines
        };
        assert_eq!(found(&[], &changed(2, "drain", "brain")), [(name, 4)]);
        assert_eq!(found(&whole[..2], &changed(2, "\"at_ms\":2", "\"at_ms\":9")[2..]), [(name, 2)]);
        assert_eq!(found(&[], &changed(3, "\"before\":\"", "\"before\":\"0")), [(name, 4), (name, 5)]);
        assert_eq!(found(&[], &changed(1, ",\"before\":", ",\"other\":")), [(name, 2), (name, 3)]);
        assert_eq!(found(&[], &changed(1, "{", "")), [(name, 2), (name, 3)]);
        let without = [&whole[..2], &whole[3..]].concat();
        assert_eq!(found(&[], &without), [(name, 3)]);
        assert_eq!(found(&whole[..1], &whole[2..]), [(name, 1)]);
        let twice = [&whole[..3], &whole[2..]].concat();
        assert_eq!(found(&twice[..5], &[]), [(name_before, 4)]);
        assert_eq!(found(&[], &whole[1..]), [(name, 1)], "the older file is gone");
    }

    #[test]
    fn lines_of_before_there_were_chains_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(By::Operator.files()[0]);
        let old = "{\"at_ms\":1,\"who\":\"operator\",\"status\":200}\n";
        fs::write(&file, old.repeat(2)).unwrap();
        let lines = written(directory.path());
        assert_eq!(check(directory.path(), By::Operator).unwrap().breaks, []);
        fs::write(&file, [&lines[..], &[old.to_owned()]].concat().concat()).unwrap();
        let found = check(directory.path(), By::Operator).unwrap();
        assert_eq!(found.breaks.iter().map(|one| one.line).collect::<Vec<_>>(), [9]);
        assert_eq!(found.lines, 9);
        assert_eq!(check(directory.path(), By::User).unwrap(), AuditChain { lines: 0, last: None, breaks: Vec::new() });
    }
}
