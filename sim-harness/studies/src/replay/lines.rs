//! The lines of a trace, whichever line ends it has: LF, CR LF, or CR alone, as old Macs wrote them.
//!
//! Invariant: a line is kept up to [`LINE_BYTES_MAX`] bytes and never more; numbers are those that an editor shows.

use std::io::{BufRead, ErrorKind};

use anyhow::{bail, ensure};

/// The longest line accepted; records have about a hundred bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// How files begin that are no text, and what these are.
const NO_TEXT: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "compressed (gzip): unpack it, as by gunzip"),
    (b"BZh", "compressed (bzip2): unpack it, as by bunzip2"),
    (b"\xfd7zXZ", "compressed (xz): unpack it, as by unxz"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd): unpack it, as by unzstd"),
    (b"\x1f\x9d", "compressed (compress): unpack it, as by uncompress"),
    (b"PK\x03\x04", "compressed (zip): unpack it, as by unzip"),
    (b"\xff\xfe", "UTF-16: write it as UTF-8"),
    (b"\xfe\xff", "UTF-16: write it as UTF-8"),
];
/// Editors of some systems put it before everything else.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line of text.
pub struct Line<'a> {
    /// Without its end and the blanks around it.
    pub text: &'a [u8],
    /// From 1.
    pub number: u64,
    /// Whether the file ends in it.
    pub is_cut: bool,
}

/// Reads lines one by one.
pub struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    /// The line before ended with CR: a LF that follows belongs to that end.
    is_behind_return: bool,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `reader`.
    ///
    /// # Errors
    /// When it cannot be read, or is no text.
    pub fn of(mut reader: R) -> anyhow::Result<Lines<R>> {
        let head = reader.fill_buf()?;
        if let Some((_, what)) = NO_TEXT.iter().find(|(mark, _)| head.starts_with(mark)) {
            bail!("the file is {what}");
        }
        Ok(Lines { reader, line: Vec::new(), number: 0, is_behind_return: false })
    }

    /// The next line; none behind the last.
    ///
    /// # Errors
    /// When it cannot be read, or is too long.
    pub fn next_line(&mut self) -> anyhow::Result<Option<Line<'_>>> {
        self.line.clear();
        self.number += 1;
        let is_whole = self.read_to_end_of_line()?;
        if !is_whole && self.line.is_empty() {
            return Ok(None);
        }
        let text = self.line.strip_prefix(BYTE_ORDER_MARK).filter(|_| self.number == 1).unwrap_or(&self.line);
        Ok(Some(Line { text: text.trim_ascii(), number: self.number, is_cut: !is_whole }))
    }

    /// Reads up to the end of the line; whether it has one.
    fn read_to_end_of_line(&mut self) -> anyhow::Result<bool> {
        loop {
            let bytes = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            if bytes.is_empty() {
                return Ok(false);
            }
            if std::mem::take(&mut self.is_behind_return) && bytes[0] == b'\n' {
                self.reader.consume(1);
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let count = end.unwrap_or(bytes.len());
            let (length, number) = (self.line.len() + count, self.number);
            ensure!(length <= LINE_BYTES_MAX, "line {number}: longer than {LINE_BYTES_MAX} bytes; is this a trace?");
            self.line.extend_from_slice(&bytes[..count]);
            self.is_behind_return = end.is_some_and(|end| bytes[end] == b'\r');
            self.reader.consume(count + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}
