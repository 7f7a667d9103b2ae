//! What is printed on standard output, and how it counts.
//!
//! Invariant: a reader who goes away early (`kolo-study ... | head`) has what it wanted; that is no error.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people.
    Table,
    /// One JSON object as the last line.
    Json,
}

impl OutputForm {
    /// Prints a result in this form: as `text`, or `document` as a line of JSON.
    ///
    /// # Errors
    /// As [`print`].
    pub fn print(self, text: impl FnOnce() -> String, document: &impl Serialize) -> io::Result<()> {
        match self {
            OutputForm::Table => print(&text()),
            OutputForm::Json => print(&(serde_json::to_string(document)? + "\n")),
        }
    }
}

/// `1 job`, `2 jobs`.
pub fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("{count} {what}") } else { format!("{count} {what}s") }
}

/// Prints a text.
///
/// # Errors
/// When standard output cannot be written, unless its reader has gone away.
pub fn print(text: &str) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails always, in the same way.
    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "job")), ["0 jobs", "1 job", "2 jobs"]);
    }

    #[test]
    fn a_reader_that_goes_away_is_no_error_but_a_full_disk_is() {
        assert!(print_to(&mut Failing(io::ErrorKind::BrokenPipe), "x").is_ok());
        assert!(print_to(&mut Failing(io::ErrorKind::StorageFull), "x").is_err());
    }
}
