//! Reads a text file line by line, with line numbers and bounds, without holding it in memory.
//!
//! Invariant: no line longer than [`LINE_BYTES_MAX`] is ever kept; such a file is no table of jobs.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use super::error::ReplayError;

/// The longest line accepted; records have about a hundred bytes.
pub const LINE_BYTES_MAX: u64 = 64 * 1024;

/// See the module.
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
    /// [`ReplayError::File`] when that is not possible or it is no file.
    pub fn open(path: &Path) -> Result<Lines, ReplayError> {
        let failed = |source| ReplayError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(ReplayError::Content { path: path.to_owned(), message: "a directory, expected a file".into() });
        }
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Lines { path: path.to_owned(), reader, line: Vec::new(), number: 0 })
    }

    /// The next line without its end, and whether it had one; `None` behind the last.
    ///
    /// # Errors
    /// [`ReplayError`] when reading fails or the line is too long.
    pub fn next(&mut self) -> Result<Option<(&[u8], bool)>, ReplayError> {
        self.line.clear();
        let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        let count = read.map_err(|source| ReplayError::File { path: self.path.clone(), source })? as u64;
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
    pub fn wrong(&self, message: impl Into<String>) -> ReplayError {
        ReplayError::Line { path: self.path.clone(), line: self.number, message: message.into() }
    }

    /// An error about the file.
    pub fn unusable(&self, message: impl Into<String>) -> ReplayError {
        ReplayError::Content { path: self.path.clone(), message: message.into() }
    }
}
