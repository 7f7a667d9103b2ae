//! The log of the hook's runs: what was run, how it ended, and what it said.
//!
//! Invariant: the file and the one before it have each at most [`LOG_BYTES_MAX`], or one run; what a hook says can
//! neither drive a terminal nor look like a line of the log's own.

use std::{
    io,
    path::{Path, PathBuf},
};

use broker::time::Time;
use jiff::tz::TimeZone;
use kolo_runtime::bounded_log;
use kolo_text::{safe::safe, time::format_time};

/// Size at which the file is put away as `NAME.1`, in the place of the one that was.
const LOG_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub struct HookLog(PathBuf);

impl HookLog {
    /// The log in this file, which need not be there.
    pub fn new(path: PathBuf) -> HookLog {
        HookLog(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds one run: when it ended, what it was, and what the hook said.
    ///
    /// # Errors
    /// What the disk says; the log may then have a part of it.
    pub fn add(&self, at: Time, what: &str, said: &str) -> io::Result<()> {
        let mut text = format!("{} {}\n", format_time(at, &TimeZone::UTC), safe(what));
        for line in said.lines() {
            text.push_str(&format!("  | {}\n", safe(line)));
        }
        let mut before = self.0.clone().into_os_string();
        before.push(".1");
        bounded_log::append(&self.0, Path::new(&before), &text, LOG_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_log_is_bounded_and_shows_what_was_said_as_text() {
        let directory = tempfile::tempdir().unwrap();
        let log = HookLog::new(directory.path().join("activation.log"));
        log.add(Time(0), "start of a\u{1b}[31m: done", "red \u{1b}[31m\n1970-01-01 forged\n").unwrap();
        let text = fs::read_to_string(log.path()).unwrap();
        assert_eq!(
            text,
            "1970-01-01 00:00:00+00:00 start of a\\u{1b}[31m: done\n  | red \\u{1b}[31m\n  | 1970-01-01 forged\n"
        );
        let said = "x".repeat(100_000);
        for _ in 0..30 {
            log.add(Time(0), "much", &said).unwrap();
        }
        let sizes = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        let sizes: Vec<u64> = sizes.collect();
        assert!(sizes.len() == 2 && sizes.iter().all(|size| *size < LOG_BYTES_MAX + 200_000), "{sizes:?}");
    }
}
