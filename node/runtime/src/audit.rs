//! Who has changed what through the API, and who has run what, one JSON object a line: `audit.jsonl` in the data directory for the operator,
//! `audit-users.jsonl` for users, by their keys or by tokens with a smaller scope.
//!
//! Invariant: at most two generations of [`FILE_BYTES_MAX`] of each; the older one is `audit.1.jsonl`, or `audit-users.1.jsonl`. However many
//! lines users cause, they push none of the operator's out. A line that cannot be written is in the log of the process, as all are, and
//! holds nothing up; the machine's syslog gets all lines where the owner wants that. Each line has the hash of the line before it in its file, over restarts and generations ([`audit_chain`]).

use std::{
    io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use blake3::Hash;
use serde::Serialize;
use tracing::{info, warn};

use super::{audit_chain, bounded_log, lock::locked, syslog::Syslog};

/// Largest file; some 20,000 lines.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;

/// The right by which something is done; lines of each right have a file of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// All rights at this node.
    Operator,
    /// A user's key, or a token with a scope.
    User,
}

impl By {
    pub const ALL: [By; 2] = [By::Operator, By::User];

    /// Names of the file for new lines, and of the file for the generation before.
    #[must_use]
    pub fn files(self) -> [&'static str; 2] {
        match self {
            By::Operator => ["audit.jsonl", "audit.1.jsonl"],
            By::User => ["audit-users.jsonl", "audit-users.1.jsonl"],
        }
    }

    /// Kind of the lines in the machine's syslog.
    fn kind(self) -> &'static str {
        match self {
            By::Operator => "audit",
            By::User => "audit-users",
        }
    }
}

/// One change, or an attempt to make one.
#[derive(Debug, Serialize)]
pub struct AuditLine<'a> {
    /// When (Unix milliseconds).
    pub at_ms: u64,
    /// `operator`, `token NAME` or `user KEY`.
    pub who: &'a str,
    /// The address that the call came from.
    pub from: &'a str,
    /// The call.
    pub what: &'a str,
    /// What it was about, when the call was understood so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    /// The status of the answer.
    pub status: u16,
}

/// A line as it is in its file.
#[derive(Serialize)]
struct Chained<'a> {
    #[serde(flatten)]
    line: &'a AuditLine<'a>,
    /// Hash of the line before it, in hexadecimal.
    before: &'a str,
}

/// The log of one data directory.
pub struct AuditLog {
    directory: PathBuf,
    /// Hash of the last line of each right; none until a line is written, and after one that could not be.
    last: Mutex<[Option<Hash>; 2]>,
    /// Gets a copy of each line, where the owner wants that.
    syslog: Option<Syslog>,
}

impl AuditLog {
    /// The log in `directory`; the file is made with the first line.
    pub fn at(directory: &Path) -> AuditLog {
        AuditLog { directory: directory.to_owned(), last: Mutex::default(), syslog: None }
    }

    /// The same log, whose lines the machine's syslog gets as well.
    #[must_use]
    pub fn with_syslog(self, syslog: Syslog) -> AuditLog {
        AuditLog { syslog: Some(syslog), ..self }
    }

    /// Lines that the machine's syslog was to have and has not taken.
    pub fn lost_by_syslog(&self) -> u64 {
        self.syslog.as_ref().map_or(0, Syslog::lost)
    }

    /// Writes a line.
    pub fn write(&self, by: By, line: &AuditLine<'_>) {
        let AuditLine { who, from, what, id, status, .. } = line;
        let written = self.append(by, line, FILE_BYTES_MAX);
        let hash = written.as_ref().ok().map(|(_, hash)| tracing::field::display(hash.to_hex()));
        info!(target: "kolo::audit", who, from, what, id, status, hash, "changed through the API");
        let text = match written {
            Ok((text, _)) => Some(text),
            Err(error) => {
                warn!(%error, "a line of the audit log is lost");
                // It has no line before it.
                serde_json::to_string(line).ok()
            }
        };
        if let (Some(syslog), Some(text)) = (&self.syslog, text) {
            syslog.send(by.kind(), line.at_ms, text.trim_end());
        }
    }

    /// Adds a line to its file; its text with the end of the line, and the hash of that without.
    pub(super) fn append(&self, by: By, line: &AuditLine<'_>, bytes_max: u64) -> io::Result<(String, Hash)> {
        let mut last = locked(&self.last);
        let known = &mut last[by as usize];
        let [file, before] = by.files().map(|name| self.directory.join(name));
        let hash = match known.take() {
            Some(hash) => hash,
            None => audit_chain::last_hash(&file, &before)?,
        };
        let mut text = serde_json::to_string(&Chained { line, before: &hash.to_hex() })?;
        let hash = blake3::hash(text.as_bytes());
        text.push('\n');
        bounded_log::append(&file, &before, &text, bytes_max)?;
        *known = Some(hash);
        Ok((text, hash))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixDatagram, time::Duration};

    use super::*;

    #[test]
    fn lines_go_on_after_a_restart_and_two_generations_stay() {
        let directory = tempfile::tempdir().unwrap();
        let line = |number: u64| AuditLine {
            at_ms: number,
            who: "token ci\n",
            from: "127.0.0.1",
            what: "POST /v1/requests",
            id: None,
            status: 201,
        };
        let length =
            serde_json::to_string(&Chained { line: &line(0), before: &"0".repeat(64) }).unwrap().len() as u64 + 1;
        let log = AuditLog::at(directory.path());
        for number in 0..4 {
            log.append(By::Operator, &line(number), 3 * length).unwrap();
        }
        let log = AuditLog::at(directory.path());
        for number in 4..8 {
            log.append(By::Operator, &line(number), 3 * length).unwrap();
        }
        let read = |file: &str| {
            let text = fs::read_to_string(directory.path().join(file)).unwrap();
            let at = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["at_ms"].as_u64().unwrap();
            text.lines().map(at).collect::<Vec<u64>>()
        };
        let [file, before] = By::Operator.files();
        assert_eq!((read(before), read(file)), (vec![3, 4, 5], vec![6, 7]));
        for number in 0..9 {
            log.append(By::User, &line(number), 3 * length).unwrap();
        }
        assert_eq!((read(before), read(file)), (vec![3, 4, 5], vec![6, 7]), "users push nothing of it out");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
        for (by, lines) in [(By::Operator, 5), (By::User, 6)] {
            let found = audit_chain::check(directory.path(), by).unwrap();
            assert_eq!((found.lines, found.breaks.as_slice()), (lines, &[][..]), "over a restart and generations");
        }
    }

    #[test]
    fn the_syslog_gets_lines_as_they_are_in_their_file_and_those_that_no_file_takes() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("log");
        let listener = UnixDatagram::bind(&place).unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let heard = || {
            let mut bytes = [0; 4096];
            let count = listener.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..count].to_vec()).unwrap()
        };
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let log = AuditLog::at(&data).with_syslog(Syslog::at(vec![place.clone()]).unwrap());
        let line = AuditLine { at_ms: 1, who: "user ada", from: "", what: "run", id: Some("r-1"), status: 200 };
        for by in By::ALL {
            log.write(by, &line);
            let kept = fs::read_to_string(data.join(by.files()[0])).unwrap();
            assert!(heard().ends_with(&format!(": {} {}", by.kind(), kept.trim_end())));
        }
        fs::remove_dir_all(&data).unwrap();
        log.write(By::User, &line);
        let without_file = heard();
        assert!(without_file.contains("\"id\":\"r-1\"") && !without_file.contains("before"), "{without_file}");
        fs::remove_file(&place).unwrap();
        log.write(By::User, &line);
        assert_eq!((log.lost_by_syslog(), AuditLog::at(&data).lost_by_syslog()), (1, 0));
    }

    #[test]
    fn what_a_crash_has_cut_off_is_dropped_and_the_chain_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let line = AuditLine { at_ms: 1, who: "operator", from: "", what: "", id: None, status: 200 };
        let log = AuditLog::at(directory.path());
        log.append(By::Operator, &line, 4096).unwrap();
        let file = directory.path().join(By::Operator.files()[0]);
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, whole.clone() + &whole[..20]).unwrap();
        let (_, hash) = AuditLog::at(directory.path()).append(By::Operator, &line, 4096).unwrap();
        let found = audit_chain::check(directory.path(), By::Operator).unwrap();
        assert_eq!((found.lines, found.last, found.breaks), (2, Some(hash), Vec::new()));
    }
}
