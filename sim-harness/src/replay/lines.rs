//! Reads a text file line by line, with line numbers and bounds, without holding it in memory.
//!
//! Invariant: no line longer than [`LINE_BYTES_MAX`] is ever kept; such a file is no table of jobs.

use std::{
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};

use crate::error::BadUsage;

/// The longest line accepted; records have about a hundred bytes.
pub const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A text file that is being read.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Opens a file.
    ///
    /// # Errors
    /// Bad usage when that is not possible.
    pub fn open(path: &Path) -> anyhow::Result<Lines> {
        let file = File::open(path).with_context(|| BadUsage::new(path.display()))?;
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Lines { path: path.to_owned(), reader, line: Vec::new(), number: 0 })
    }

    /// The next line without its end, and whether it had one; `None` behind the last.
    ///
    /// # Errors
    /// Bad usage when reading fails or the line is too long.
    pub fn next(&mut self) -> anyhow::Result<Option<(&[u8], bool)>> {
        self.line.clear();
        let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        let count = read.with_context(|| BadUsage::new(self.path.display()))? as u64;
        if count == 0 {
            return Ok(None);
        }
        self.number += 1;
        if count > LINE_BYTES_MAX {
            return Err(self.wrong(format!("longer than {LINE_BYTES_MAX} bytes; is this a trace?")));
        }
        let is_whole = self.line.ends_with(b"\n");
        let text = self.line.trim_ascii();
        // Editors of some systems put a byte order mark before everything else.
        let is_marked = self.number == 1;
        let text = text.strip_prefix(b"\xEF\xBB\xBF").filter(|_| is_marked).unwrap_or(text).trim_ascii_start();
        Ok(Some((text, is_whole)))
    }

    /// Number of the line read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// An error about the line read last.
    pub fn wrong(&self, message: impl fmt::Display) -> anyhow::Error {
        anyhow!(BadUsage::new(format_args!("{}: line {}: {message}", self.path.display(), self.number)))
    }

    /// An error about the file.
    pub fn unusable(&self, message: impl fmt::Display) -> anyhow::Error {
        anyhow!(BadUsage::new(format_args!("{}: {message}", self.path.display())))
    }
}
