//! The file of `kolo run --each`: a command on each line.
//!
//! Invariant: nothing is reserved or run before the whole file was read, and every complaint names the line.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use kolo_text::document::DocumentError;

use super::plan_offline::{at_line, each_line};
use crate::{error::CliError, run::each::Line};

/// Most commands in a file.
const LINES_MAX: usize = 100_000;
/// Longest command, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of all commands together.
const BYTES_MAX: usize = 64 << 20;

/// Reads the commands in `file`, or in the standard input when it is `-`.
///
/// # Errors
/// [`CliError`] with file and line.
pub fn read(file: &Path) -> Result<Vec<Line>, CliError> {
    if file == Path::new("-") {
        return lines(file, io::stdin().lock());
    }
    lines(file, File::open(file).map_err(|source| DocumentError::Read { file: file.to_owned(), source })?)
}

fn lines(file: &Path, input: impl Read) -> Result<Vec<Line>, CliError> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    each_line(file, BufReader::new(input), |number, text| {
        let wrong = |message: String| Err(at_line(file, number, "", message));
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim_start().starts_with('#') {
            return Ok(());
        }
        bytes += text.len();
        if text.len() > LINE_BYTES_MAX {
            return wrong(format!("a command of {} bytes, at most {LINE_BYTES_MAX} are run", text.len()));
        }
        if text.contains('\0') {
            return wrong("the command holds a zero byte".to_owned());
        }
        if lines.len() == LINES_MAX || bytes > BYTES_MAX {
            let message =
                format!("at most {LINES_MAX} commands of {} MiB together are run; split the file", BYTES_MAX >> 20);
            return wrong(message);
        }
        let Ok(number) = u32::try_from(number) else { return wrong("a line too many".to_owned()) };
        lines.push(Line { number, text: text.to_owned() });
        Ok(())
    })?;
    match lines.is_empty() {
        true => Err(DocumentError::about(file, "", "there is no command in it").into()),
        false => Ok(lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u32, String)>, String> {
        let read = lines(Path::new("f"), text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(read.into_iter().map(|line| (line.number, line.text)).collect())
    }

    #[test]
    fn commands_keep_the_numbers_of_their_lines() {
        let read = read("# first\n\n./a 1  \r\n  # no\n \t\necho '#'\\").unwrap();
        assert_eq!(read, [(3, "./a 1  ".to_owned()), (6, "echo '#'\\".to_owned())]);
    }

    #[test]
    fn what_cannot_be_run_is_named_with_its_line() {
        let long = format!("true\n{}\n", "x".repeat(LINE_BYTES_MAX + 1));
        let many = "a\n".repeat(LINES_MAX + 1);
        let large = format!("{}\n", "x".repeat(LINE_BYTES_MAX)).repeat(1025);
        for (text, expected) in [
            ("# nothing\n\n", "f: there is no command in it"),
            (&long, "f:2: a command of 65537 bytes, at most 65536 are run"),
            ("true\na\0b\n", "f:2: the command holds a zero byte"),
            (&many, "f:100001: at most 100000 commands of 64 MiB together are run; split the file"),
            (&large, "f:1025: at most 100000 commands of 64 MiB together are run; split the file"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected);
        }
        assert!(read(&"x".repeat(LINE_BYTES_MAX)).is_ok());
        let no_file = super::read(Path::new("/no/such/file")).map(drop).unwrap_err().to_string();
        assert!(no_file.starts_with("/no/such/file: "), "{no_file}");
    }
}
