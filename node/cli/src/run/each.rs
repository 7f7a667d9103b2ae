//! `kolo run --each`: the lines of a file as commands, over the seats of a run.
//!
//! Each seat gets the next line when the one before has ended. Invariants: a line is given to one seat, once; one whose end is not told has an
//! unknown end, and is not given to another seat; nothing is given once the run is to stop.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex},
};

use kolo_runtime::lock::locked;
use kolo_seat::frame::{DATA_BYTES_MAX, Output};
use kolo_text::words::counted;
use tokio::sync::mpsc;

use super::{
    input::Chunk,
    job::{code, code_of, words},
    marks::{self, Marks, Piece},
    printer::Printer,
    seat::News,
};

/// Pieces of a line that wait to be sent to its seat; a line has at most two.
const QUEUE: usize = 4;
/// Most lines that are named each for itself at the end.
const NAMED_MAX: usize = 20;

/// A line that is a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number in its file, from 1 on.
    pub number: u32,
    /// The command.
    pub text: String,
}

/// How a line has ended that did not end with code 0.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    Code(u8),
    /// Its seat was ended first, for this reason; so its own end is not known.
    Seat {
        code: u8,
        why: String,
    },
}

/// All lines of a run, and the seats that run them.
pub struct Each {
    word: String,
    stops: bool,
    state: Mutex<State>,
}

struct State {
    count: usize,
    waiting: VecDeque<Line>,
    seats: BTreeMap<u32, Seat>,
    succeeded: usize,
    failures: BTreeMap<u32, Failure>,
}

struct Seat {
    /// Gone when it is to get no more lines.
    to: Option<mpsc::Sender<Chunk>>,
    /// The line that it was given last.
    line: Option<u32>,
    outputs: BTreeMap<Output, Marks>,
    /// The outputs that have told the end of the line.
    told: BTreeMap<Output, u8>,
    /// Whether the line has ended.
    is_free: bool,
}

impl Each {
    /// Runs `lines`; `word` is one that no output holds. With `stops` the first that fails ends all.
    pub fn of(lines: Vec<Line>, word: String, stops: bool) -> Each {
        let (count, waiting) = (lines.len(), lines.into());
        let state = State { count, waiting, seats: BTreeMap::new(), succeeded: 0, failures: BTreeMap::new() };
        Each { word, stops, state: Mutex::new(state) }
    }

    /// What a seat runs.
    pub fn command(&self) -> Vec<String> {
        marks::command(&self.word, self.stops)
    }

    /// The input of so many seats, each with its first line in it.
    pub fn inputs(&self, seats: usize) -> Vec<mpsc::Receiver<Chunk>> {
        let mut state = locked(&self.state);
        let input = |rank| {
            let (to, input) = mpsc::channel(QUEUE);
            let outputs = [Output::Stdout, Output::Stderr].map(|output| (output, Marks::of(&self.word))).into();
            let seat = Seat { to: Some(to), line: None, outputs, told: BTreeMap::new(), is_free: true };
            state.seats.insert(rank, seat);
            state.give(rank);
            input
        };
        (0..).take(seats).map(input).collect()
    }

    /// Prints what a seat has said, each line of it with the number of the command before it, and gives the seat the next command when one has
    /// ended.
    ///
    /// # Errors
    /// When nobody reads it any more.
    pub fn take(&self, printer: &Printer, rank: u32, output: Output, data: &[u8]) -> io::Result<()> {
        let mut state = locked(&self.state);
        let Some(seat) = state.seats.get_mut(&rank) else { return Ok(()) };
        let Some(mut marks) = seat.outputs.remove(&output) else { return Ok(()) };
        let mut printed = Ok(());
        marks.split(data, |piece| {
            let result = match piece {
                Piece::Said(bytes) => printer.print(state.label(rank), output, bytes),
                Piece::Ended { number, code } => state.heard(printer, (rank, output), number, code, self.stops),
            };
            printed = std::mem::replace(&mut printed, Ok(())).and(result);
        });
        if let Some(seat) = state.seats.get_mut(&rank) {
            seat.outputs.insert(output, marks);
        }
        printed
    }

    /// A seat is over: a line that it had is not given to another one.
    ///
    /// # Errors
    /// When nobody reads its last words.
    pub fn over(&self, printer: &Printer, rank: u32, news: &News) -> io::Result<()> {
        let mut state = locked(&self.state);
        let label = state.label(rank);
        let Some(seat) = state.seats.get_mut(&rank) else { return Ok(()) };
        seat.to = None;
        let mut printed = Ok(());
        for (output, marks) in &mut seat.outputs {
            marks.finish(|piece| {
                if let Piece::Said(bytes) = piece {
                    printed = printer.print(label, *output, bytes);
                }
            });
        }
        if !std::mem::replace(&mut seat.is_free, true)
            && let Some(number) = seat.line
        {
            let (code, why) = match news {
                News::Ended(end) => (code_of(end).max(1), format!("its seat {}", words(end))),
                News::NotReady(why) | News::Unknown(why) => (code::UNKNOWN, format!("its seat was lost: {why}")),
                News::Ready | News::Started | News::Unread | News::Printed => (code::UNKNOWN, String::new()),
            };
            state.failures.insert(number, Failure::Seat { code, why });
        }
        printed.and_then(|()| printer.finish(label))
    }

    /// Says how the lines have ended, where not all have succeeded, and the exit code of the run whose seats have ended with `code`.
    pub fn summary(&self, code: u8, say: impl Fn(&str)) -> u8 {
        let state = locked(&self.state);
        for (number, failure) in state.failures.iter().take(NAMED_MAX) {
            match failure {
                Failure::Code(code) => say(&format!("line {number}: ended with code {code}")),
                Failure::Seat { why, .. } => {
                    say(&format!("line {number}: how it ended is not known, and it is not run again: {why}"));
                }
            }
        }
        if state.failures.len() > NAMED_MAX {
            say(&format!("and {} more", counted(state.failures.len() - NAMED_MAX, "line")));
        }
        if let Some(first) = state.waiting.front() {
            let last = state.waiting.back().map_or(first.number, |last| last.number);
            let lines = counted(state.waiting.len(), "line");
            say(&format!("{lines} not run: those from line {} to line {last}", first.number));
        }
        let unknown = state.failures.values().filter(|failure| matches!(failure, Failure::Seat { .. })).count();
        if state.succeeded < state.count {
            let failed = state.failures.len() - unknown;
            let all = counted(state.count, "line");
            say(&format!(
                "of {all} {} ended with code 0, {failed} with another one, {unknown} in an unknown way; {} not run",
                state.succeeded,
                state.waiting.len()
            ));
        }
        let codes = state.failures.values().map(|failure| match failure {
            Failure::Code(code) | Failure::Seat { code, .. } => *code,
        });
        let largest = codes.chain([code]).max().unwrap_or(code);
        // Nothing has failed, and yet not all was run.
        if largest == 0 && !state.waiting.is_empty() { code::NOT_STARTED } else { largest }
    }
}

impl State {
    /// What stands before the output of a seat: the line that it was given last.
    fn label(&self, rank: u32) -> u32 {
        self.seats.get(&rank).and_then(|seat| seat.line).unwrap_or_default()
    }

    /// An output of a seat tells the end of a line; it has ended when both do.
    fn heard(
        &mut self,
        printer: &Printer,
        (rank, output): (u32, Output),
        number: u32,
        code: u8,
        stops: bool,
    ) -> io::Result<()> {
        let Some(seat) = self.seats.get_mut(&rank) else { return Ok(()) };
        if seat.is_free || seat.line != Some(number) {
            return Ok(());
        }
        seat.told.insert(output, code);
        if seat.told.len() < 2 {
            return Ok(());
        }
        seat.told.clear();
        seat.is_free = true;
        if code == 0 {
            self.succeeded += 1;
        } else {
            self.failures.insert(number, Failure::Code(code));
            if stops {
                self.seats.values_mut().for_each(|seat| seat.to = None);
            }
        }
        let printed = printer.finish(number);
        self.give(rank);
        printed
    }

    /// Gives a seat the next line; with none left it hears that there is no more.
    fn give(&mut self, rank: u32) {
        let Some(seat) = self.seats.get_mut(&rank) else { return };
        let Some(to) = &seat.to else { return };
        let Some(line) = self.waiting.pop_front() else {
            seat.to = None;
            return;
        };
        let given = marks::given(line.number, &line.text);
        let is_sent = given.chunks(DATA_BYTES_MAX).all(|chunk| to.try_send(Arc::from(chunk)).is_ok());
        // A seat that takes nothing is over; nothing or a part of the line has reached it, and a part is never run.
        if is_sent {
            (seat.line, seat.is_free) = (Some(line.number), false);
        } else {
            seat.to = None;
            self.waiting.push_front(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use kolo_seat::frame::End;

    use super::*;

    fn lines(count: u32) -> Vec<Line> {
        (1..=count).map(|number| Line { number, text: format!("echo {number}") }).collect()
    }

    fn given(input: &mut mpsc::Receiver<Chunk>) -> Option<String> {
        input.try_recv().ok().map(|chunk| String::from_utf8(chunk.to_vec()).unwrap())
    }

    fn end(each: &Each, rank: u32, number: u32, code: u8) {
        for output in [Output::Stdout, Output::Stderr] {
            let mark = format!("\u{1e}kolo-line-w {number} {code}\n");
            each.take(&Printer::silent(), rank, output, mark.as_bytes()).unwrap();
        }
    }

    fn summary(each: &Each, code: u8) -> (u8, Vec<String>) {
        let said = Mutex::new(Vec::new());
        let code = each.summary(code, |text| locked(&said).push(text.to_owned()));
        (code, said.into_inner().unwrap())
    }

    #[test]
    fn a_seat_gets_the_next_line_when_it_is_free_and_every_line_goes_to_one_seat() {
        let each = Each::of(lines(4), "w".to_owned(), false);
        let mut inputs = each.inputs(2);
        let took = inputs.iter_mut().map(|input| given(input).unwrap()).collect::<Vec<_>>();
        assert_eq!(took, ["1\necho 1\n", "2\necho 2\n"]);
        // The end counts when both outputs have told it.
        each.take(&Printer::silent(), 1, Output::Stdout, b"\x1ekolo-line-w 2 0\n").unwrap();
        assert_eq!(given(&mut inputs[1]), None);
        each.take(&Printer::silent(), 1, Output::Stderr, b"\x1ekolo-line-w 2 0\n").unwrap();
        assert_eq!(given(&mut inputs[1]).unwrap(), "3\necho 3\n");
        // One that was not given, or was told before, changes nothing.
        end(&each, 1, 2, 9);
        end(&each, 1, 4, 9);
        assert_eq!(given(&mut inputs[1]), None);
        end(&each, 1, 3, 0);
        end(&each, 1, 4, 3);
        end(&each, 0, 1, 0);
        assert_eq!(given(&mut inputs[1]).unwrap(), "4\necho 4\n");
        assert!(
            inputs.iter_mut().all(|input| matches!(input.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)))
        );
        let said = [
            "line 4: ended with code 3",
            "of 4 lines 3 ended with code 0, 1 with another one, 0 in an unknown way; 0 not run",
        ];
        assert_eq!(summary(&each, 0), (3, said.map(str::to_owned).into()));
    }

    #[test]
    fn a_line_whose_seat_is_lost_is_unknown_and_never_given_again() {
        let each = Each::of(lines(3), "w".to_owned(), false);
        let mut inputs = each.inputs(2);
        each.over(&Printer::silent(), 0, &News::Unknown("cut".to_owned())).unwrap();
        assert_eq!(given(&mut inputs[1]).unwrap(), "2\necho 2\n");
        end(&each, 1, 2, 0);
        assert_eq!(given(&mut inputs[1]).unwrap(), "3\necho 3\n");
        each.over(&Printer::silent(), 1, &News::Ended(End::WindowEnded)).unwrap();
        let (code, said) = summary(&each, 125);
        assert_eq!(code, 125);
        assert_eq!(said[0], "line 1: how it ended is not known, and it is not run again: its seat was lost: cut");
        assert!(said[1].starts_with("line 3: ") && said[1].contains("time of the reservation"), "{said:?}");
        assert_eq!(said[2], "of 3 lines 1 ended with code 0, 0 with another one, 2 in an unknown way; 0 not run");
    }

    #[test]
    fn the_first_failure_stops_all_where_that_is_wanted_and_the_rest_is_not_run() {
        let each = Each::of(lines(5), "w".to_owned(), true);
        let mut inputs = each.inputs(2);
        end(&each, 0, 1, 7);
        end(&each, 1, 2, 0);
        assert!(inputs.iter_mut().all(|input| given(input).is_some() && given(input).is_none()));
        let (code, said) = summary(&each, 7);
        assert_eq!((code, &said[1][..]), (7, "3 lines not run: those from line 3 to line 5"), "{said:?}");
        assert_eq!(
            summary(&Each::of(lines(1), "w".to_owned(), false), 0).0,
            code::NOT_STARTED,
            "not run is no success"
        );
    }
}
