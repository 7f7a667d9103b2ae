//! Output of seats on the user's standard output and error.
//!
//! Invariant: with several seats only whole lines are printed, each with its seat before it, and on a terminal a seat can print nothing that
//! looks like another's line or drives the terminal; with one, bytes go through as they come. At most [`LINE_BYTES_MAX`] of an unfinished
//! line are kept, then they are printed as a line. A remark does not wait for whoever reads the output.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::AsFd as _,
    sync::Mutex,
};

use kolo_runtime::lock::locked;
use kolo_seat::frame::Output;
use kolo_text::safe::coloured_line;

/// Longest line that is kept until it is whole.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Where output goes.
pub struct Printer {
    is_labelled: bool,
    /// Whether standard output and standard error are terminals.
    are_terminals: [bool; 2],
    is_silent: bool,
    /// What ends a remark; a terminal of which all keys go elsewhere does not go back to the left by itself.
    line_end: &'static str,
    state: Mutex<State>,
    remarks: Mutex<Box<dyn Write + Send>>,
    /// Why something could not be written, when it is not that its reader has gone.
    failure: Mutex<Option<io::Error>>,
}

/// Looks at the first line of the output.
pub type FirstLine = Box<dyn FnOnce(&[u8]) -> io::Result<()> + Send>;
/// Longest first line.
const FIRST_LINE_BYTES_MAX: usize = 2048;

struct State {
    /// Who looks at the first line, and what there is of it.
    first: Option<(FirstLine, Vec<u8>)>,
    out: Box<dyn Write + Send>,
    error: Box<dyn Write + Send>,
    /// Unfinished lines.
    lines: BTreeMap<(u32, Output), Vec<u8>>,
}

impl Printer {
    /// Prints to standard output and error: not through the library's lock, which the thread of the command holds.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn new(is_labelled: bool, line_end: &'static str) -> io::Result<Printer> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let error = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let remarks = Mutex::new(Box::new(error.try_clone()?) as _);
        let are_terminals = [out.is_terminal(), error.is_terminal()];
        let printer = Printer::to(is_labelled, Box::new(out), Box::new(error));
        Ok(Printer { line_end, remarks, are_terminals, ..printer })
    }

    /// The same, once `look` was given the first line of the output; nothing is printed before.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn after_first_line(look: FirstLine) -> io::Result<Printer> {
        let printer = Printer::new(false, "\n")?;
        locked(&printer.state).first = Some((look, Vec::new()));
        Ok(printer)
    }

    /// Prints nothing but remarks: whoever leaves a run reads its output later.
    pub fn silent() -> Printer {
        let remarks = Mutex::new(Box::new(io::stderr()) as _);
        Printer { is_silent: true, remarks, ..Printer::to(false, Box::new(io::sink()), Box::new(io::sink())) }
    }

    fn to(is_labelled: bool, out: Box<dyn Write + Send>, error: Box<dyn Write + Send>) -> Printer {
        Printer {
            is_labelled,
            are_terminals: [false; 2],
            is_silent: false,
            line_end: "\n",
            state: Mutex::new(State { first: None, out, error, lines: BTreeMap::new() }),
            remarks: Mutex::new(Box::new(io::sink())),
            failure: Mutex::default(),
        }
    }

    /// Prints a piece of an output of the seat of this rank. It waits for whoever reads it.
    ///
    /// # Errors
    /// When nobody reads it any more.
    pub fn print(&self, rank: u32, output: Output, data: &[u8]) -> io::Result<()> {
        if self.is_silent {
            return Ok(());
        }
        self.noting(self.print_piece(rank, output, data))
    }

    /// Why something could not be written, although somebody wants to have it; once.
    pub fn take_failure(&self) -> Option<io::Error> {
        locked(&self.failure).take()
    }

    /// Notes why something could not be written: the result of a command that nobody could have is no success.
    fn noting(&self, result: io::Result<()>) -> io::Result<()> {
        result.map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::BrokenPipe {
                locked(&self.failure).get_or_insert(error);
            }
            kind.into()
        })
    }

    fn print_piece(&self, rank: u32, output: Output, data: &[u8]) -> io::Result<()> {
        let mut state = locked(&self.state);
        let State { first, out, error, lines } = &mut *state;
        let mut held = Vec::new();
        if output == Output::Stdout
            && let Some((look, mut line)) = first.take()
        {
            line.extend_from_slice(data);
            match line.iter().position(|byte| *byte == b'\n') {
                Some(end) => look(&line[..=end])?,
                None if line.len() > FIRST_LINE_BYTES_MAX => {
                    return Err(io::Error::other("the first line is too long"));
                }
                None => {
                    *first = Some((look, line));
                    return Ok(());
                }
            }
            held = line;
        }
        let data = if held.is_empty() { data } else { &held[..] };
        let sink = if output == Output::Stdout { out } else { error };
        if !self.is_labelled {
            sink.write_all(data)?;
            return sink.flush();
        }
        let line = lines.entry((rank, output)).or_default();
        let mut printed = Vec::new();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") || line.len() >= LINE_BYTES_MAX {
                label(&mut printed, rank, line, self.is_terminal(output));
                line.clear();
            }
        }
        if printed.is_empty() {
            return Ok(());
        }
        sink.write_all(&printed)?;
        sink.flush()
    }

    /// Prints what a seat has left of unfinished lines.
    ///
    /// # Errors
    /// When nobody reads it any more.
    pub fn finish(&self, rank: u32) -> io::Result<()> {
        self.noting(self.print_rest(rank))
    }

    fn print_rest(&self, rank: u32) -> io::Result<()> {
        let mut state = locked(&self.state);
        let State { out, error, lines, .. } = &mut *state;
        for output in [Output::Stdout, Output::Stderr] {
            let Some(line) = lines.remove(&(rank, output)).filter(|line| !line.is_empty()) else { continue };
            let mut printed = Vec::new();
            label(&mut printed, rank, &line, self.is_terminal(output));
            let sink = if output == Output::Stdout { &mut *out } else { &mut *error };
            sink.write_all(&printed)?;
            sink.flush()?;
        }
        Ok(())
    }

    fn is_terminal(&self, output: Output) -> bool {
        self.are_terminals[usize::from(output == Output::Stderr)]
    }

    /// Says something about a run, beside its output.
    pub fn remark(&self, text: &str) {
        // In one piece, since others write to the same place; nothing is left to be done when even this cannot be written.
        let line = format!("kolo: {}{}", kolo_text::safe::safe(text), self.line_end);
        let _ = locked(&self.remarks).write_all(line.as_bytes());
    }
}

/// Adds a line of a seat with its label. On a terminal what returns to the beginning of a line begins another one.
fn label(printed: &mut Vec<u8>, rank: u32, line: &[u8], is_terminal: bool) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if !is_terminal {
        printed.extend_from_slice(format!("[{rank}] ").as_bytes());
        printed.extend_from_slice(line);
        return printed.push(b'\n');
    }
    for part in line.strip_suffix(b"\r").unwrap_or(line).split(|byte| *byte == b'\r') {
        printed.extend_from_slice(format!("[{rank}] {}\n", coloured_line(part)).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            locked(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes nothing, for this reason.
    struct Full(io::ErrorKind);

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_could_not_be_written_is_noted_and_a_reader_that_goes_is_not() {
        let printer = |kind, is_labelled| Printer::to(is_labelled, Box::new(Full(kind)), Box::new(io::sink()));
        for is_labelled in [false, true] {
            let full = printer(io::ErrorKind::StorageFull, is_labelled);
            // A part of a line is printed with the end.
            let printed = full.print(0, Output::Stdout, b"a").and_then(|()| full.finish(0));
            assert_eq!(printed.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(full.take_failure().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
            let gone = printer(io::ErrorKind::BrokenPipe, is_labelled);
            assert!(gone.print(0, Output::Stdout, b"a").and_then(|()| gone.finish(0)).is_err());
            assert!(gone.take_failure().is_none());
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(locked(&self.0).clone()).unwrap()
        }
    }

    #[test]
    fn lines_of_several_seats_are_whole_and_labelled() {
        let (out, error) = (Sink::default(), Sink::default());
        let printer = Printer::to(true, Box::new(out.clone()), Box::new(error.clone()));
        printer.print(0, Output::Stdout, b"a").unwrap();
        printer.print(1, Output::Stdout, b"x\ny\nz").unwrap();
        printer.print(0, Output::Stderr, b"no\n").unwrap();
        printer.print(0, Output::Stdout, b"b\n").unwrap();
        assert_eq!((out.text().as_str(), error.text().as_str()), ("[1] x\n[1] y\n[0] ab\n", "[0] no\n"));
        printer.finish(0).unwrap();
        printer.finish(1).unwrap();
        assert_eq!(out.text(), "[1] x\n[1] y\n[0] ab\n[1] z\n");
        printer.print(2, Output::Stdout, &vec![b'q'; LINE_BYTES_MAX + 1]).unwrap();
        assert_eq!(out.text().len(), 25 + LINE_BYTES_MAX + 6, "a line without an end is printed in pieces");
    }

    #[test]
    fn on_a_terminal_a_seat_prints_no_line_of_another_and_drives_nothing() {
        let (out, error) = (Sink::default(), Sink::default());
        let printer = Printer::to(true, Box::new(out.clone()), Box::new(error.clone()));
        let printer = Printer { are_terminals: [true, false], ..printer };
        printer.print(1, Output::Stdout, b"x\r[0] forged\x1b[2J\r\n\x1b[32mgreen\n").unwrap();
        printer.print(1, Output::Stderr, b"raw\r\n").unwrap();
        assert_eq!(out.text(), "[1] x\n[1] [0] forged\\u{1b}[2J\n[1] \u{1b}[32mgreen\u{1b}[0m\n");
        assert_eq!(error.text(), "[1] raw\r\n", "a file gets every byte");
    }

    #[test]
    fn the_first_line_is_looked_at_before_anything_is_printed() {
        let (out, seen) = (Sink::default(), Sink::default());
        let printer = Printer::to(false, Box::new(out.clone()), Box::new(io::sink()));
        let mut look = seen.clone();
        let look: FirstLine = Box::new(move |line| look.write_all(line));
        locked(&printer.state).first = Some((look, Vec::new()));
        printer.print(0, Output::Stdout, b"key ").unwrap();
        printer.print(0, Output::Stderr, b"no line of it\n").unwrap();
        assert_eq!((out.text().as_str(), seen.text().as_str()), ("", ""));
        printer.print(0, Output::Stdout, b"1\nSSH").unwrap();
        printer.print(0, Output::Stdout, b"-2.0\n").unwrap();
        assert_eq!((out.text().as_str(), seen.text().as_str()), ("key 1\nSSH-2.0\n", "key 1\n"));
    }

    #[test]
    fn one_seat_is_printed_as_it_comes() {
        let out = Sink::default();
        let printer = Printer::to(false, Box::new(out.clone()), Box::new(io::sink()));
        printer.print(0, Output::Stdout, b"a\nb").unwrap();
        printer.finish(0).unwrap();
        assert_eq!(out.text(), "a\nb");
    }
}
