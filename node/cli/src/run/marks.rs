//! What a seat of `kolo run --each` says: the output of the lines of a file, and between it the ends of those lines.
//!
//! The shell that a seat runs starts each line as a command of its own, and writes a mark on both outputs when it has ended. Invariant: what is
//! no whole mark with the word of this run is output, and comes out as it was, however the stream is cut.

/// What every mark begins with: a byte that text does not hold.
const BEGINNING: u8 = 0x1e;
/// Longest rest of a mark: two numbers, the blanks before them, and the end of the line.
const NUMBERS_BYTES_MAX: usize = 24;

/// What a seat runs: reads a number and a line, again and again, and writes a mark when the command of the line has ended. A signal of the
/// user's ends it when the command of the line has ended.
const SCRIPT: &str = r#"trap 'exit 130' INT; trap 'exit 143' TERM; export KOLO_LINE
say() { until printf '%s\n' "$1 $KOLO_LINE $code"; do sleep 1; done; }
while read -r KOLO_LINE && IFS= read -r line; do
sh -c "$line" </dev/null; code=$?
say "$1"; say "$1" >&2
[ "$code" = 0 ] || [ "$2" != stop ] || exit "$code"
done"#;

/// The command of a seat that takes lines, whose marks hold `word`; the first line that fails ends it where it `stops`.
pub fn command(word: &str, stops: bool) -> Vec<String> {
    let mark = String::from_utf8_lossy(&beginning(word)).into_owned();
    let stops = if stops { "stop" } else { "" };
    ["sh", "-c", SCRIPT, "kolo-each", &mark, stops].map(str::to_owned).into()
}

/// What a seat that runs [`command`] reads to start a line.
pub fn given(number: u32, line: &str) -> Vec<u8> {
    format!("{number}\n{line}\n").into_bytes()
}

fn beginning(word: &str) -> Vec<u8> {
    [&[BEGINNING][..], b"kolo-line-", word.as_bytes()].concat()
}

/// A piece of what a seat says.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Output of the line that runs.
    Said(&'a [u8]),
    /// The command of this line has ended with this code, as a shell counts it.
    Ended {
        /// The number of the line.
        number: u32,
        /// The exit code.
        code: u8,
    },
}

/// One output of a seat.
#[derive(Debug)]
pub struct Marks {
    beginning: Vec<u8>,
    /// What may become a mark.
    kept: Vec<u8>,
}

/// What stands where a mark may begin.
enum Found {
    Mark { number: u32, code: u8, length: usize },
    Unfinished,
    Nothing,
}

impl Marks {
    /// Looks for marks with this word.
    pub fn of(word: &str) -> Marks {
        Marks { beginning: beginning(word), kept: Vec::new() }
    }

    /// Takes what comes next, and gives its pieces to `take` in order.
    pub fn split(&mut self, data: &[u8], mut take: impl FnMut(Piece<'_>)) {
        let mut all = std::mem::take(&mut self.kept);
        all.extend_from_slice(data);
        // Output that was not given away yet, and where to look for a mark next.
        let (mut from, mut look) = (0, 0);
        while let Some(at) = all[look..].iter().position(|byte| *byte == BEGINNING) {
            let at = look + at;
            look = at + 1;
            let found = self.find(&all[at..]);
            if !matches!(found, Found::Nothing) {
                said(&all[from..at], &mut take);
                from = at;
            }
            match found {
                Found::Mark { number, code, length } => {
                    take(Piece::Ended { number, code });
                    (from, look) = (at + length, at + length);
                }
                Found::Unfinished => {
                    self.kept = all.split_off(at);
                    return;
                }
                Found::Nothing => {}
            }
        }
        said(&all[from..], &mut take);
    }

    /// There is no more: what has not become a mark is output.
    pub fn finish(&mut self, mut take: impl FnMut(Piece<'_>)) {
        said(&std::mem::take(&mut self.kept), &mut take);
    }

    fn find(&self, bytes: &[u8]) -> Found {
        let Some(numbers) = bytes.strip_prefix(&self.beginning[..]) else {
            return if self.beginning.starts_with(bytes) { Found::Unfinished } else { Found::Nothing };
        };
        let Some(end) = numbers.iter().take(NUMBERS_BYTES_MAX).position(|byte| *byte == b'\n') else {
            return if numbers.len() < NUMBERS_BYTES_MAX { Found::Unfinished } else { Found::Nothing };
        };
        let read = |text: &[u8]| {
            let (number, code) = std::str::from_utf8(text).ok()?.strip_prefix(' ')?.split_once(' ')?;
            Some((number.parse().ok()?, code.parse().ok()?))
        };
        let length = self.beginning.len() + end + 1;
        read(&numbers[..end]).map_or(Found::Nothing, |(number, code)| Found::Mark { number, code, length })
    }
}

fn said(bytes: &[u8], take: &mut impl FnMut(Piece<'_>)) {
    if !bytes.is_empty() {
        take(Piece::Said(bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Whole {
        Said(Vec<u8>),
        Ended(u32, u8),
    }

    /// The pieces of bytes that come in pieces of this size; output that follows output is one.
    fn pieces(bytes: &[u8], size: usize) -> Vec<Whole> {
        let (mut marks, mut all) = (Marks::of("w"), Vec::new());
        let mut take = |piece: Piece<'_>| match (piece, all.last_mut()) {
            (Piece::Said(bytes), Some(Whole::Said(before))) => before.extend_from_slice(bytes),
            (Piece::Said(bytes), _) => all.push(Whole::Said(bytes.to_vec())),
            (Piece::Ended { number, code }, _) => all.push(Whole::Ended(number, code)),
        };
        bytes.chunks(size).for_each(|chunk| marks.split(chunk, &mut take));
        marks.finish(&mut take);
        all
    }

    fn part() -> impl Strategy<Value = Whole> {
        // Output that looks much like marks.
        let beginning = prop::sample::select(vec![
            "\u{1e}",
            "\u{1e}kolo-line-",
            "\u{1e}kolo-line-w 1",
            "\u{1e}kolo-line-w 1 300\n",
            "a",
            "\n",
        ]);
        prop_oneof![
            beginning.prop_map(|text| Whole::Said(text.as_bytes().to_vec())),
            (any::<u32>(), any::<u8>()).prop_map(|(number, code)| Whole::Ended(number, code)),
        ]
    }

    proptest! {
        #[test]
        fn output_and_ends_come_out_as_they_went_in_however_the_stream_is_cut(
            parts in prop::collection::vec(part(), 0..12), size in 1..40_usize,
        ) {
            let mut bytes = Vec::new();
            let mut expected: Vec<Whole> = Vec::new();
            for part in parts {
                match &part {
                    Whole::Said(said) => bytes.extend_from_slice(said),
                    Whole::Ended(number, code) => {
                        bytes.extend_from_slice(format!("\u{1e}kolo-line-w {number} {code}\n").as_bytes());
                    }
                }
                match (part, expected.last_mut()) {
                    (Whole::Said(said), Some(Whole::Said(before))) => before.extend_from_slice(&said),
                    (part, _) => expected.push(part),
                }
            }
            prop_assert_eq!(pieces(&bytes, size), expected);
        }
    }

    fn run(stops: bool, lines: &[&str]) -> (Vec<Whole>, Option<i32>) {
        let command = command("w", stops);
        let mut shell = Command::new(&command[0]);
        shell.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let all: Vec<u8> = (1..).zip(lines).flat_map(|(number, line)| given(number, line)).collect();
        child.stdin.take().unwrap().write_all(&all).unwrap();
        let ended = child.wait_with_output().unwrap();
        let ends = |bytes: &[u8]| -> Vec<Whole> {
            pieces(bytes, 7).into_iter().filter(|piece| matches!(piece, Whole::Ended(..))).collect()
        };
        assert_eq!(ends(&ended.stdout), ends(&ended.stderr), "both outputs tell the same");
        (pieces(&ended.stdout, 7), ended.status.code())
    }

    #[test]
    fn a_shell_starts_each_line_once_and_tells_how_it_ended() {
        let lines = [
            "echo 'a  b'; cat",
            "  printf '%s' \"$KOLO_LINE\" ",
            "exit 3",
            "kill -9 $$",
            "printf '%s\\n' 'x\\ty' Á \\\\ | cat; cd /",
            "if",
            "line=x; exec /no/such/program",
            "trap",
        ];
        let (told, code) = run(false, &lines);
        let said = |text: &str| Whole::Said(text.as_bytes().to_vec());
        let ended = Whole::Ended;
        let expected = [
            (said("a  b\n"), 1, 0),
            (said("2"), 2, 0),
            (said(""), 3, 3),
            (said(""), 4, 137),
            (Whole::Said("x\\ty\nÁ\n\\\n".as_bytes().to_vec()), 5, 0),
            (said(""), 6, 2),
            (said(""), 7, 127),
            (said(""), 8, 0),
        ];
        let is_empty = |piece: &Whole| matches!(piece, Whole::Said(bytes) if bytes.is_empty());
        let expected = expected.into_iter().flat_map(|(said, number, code)| [said, ended(number, code)]);
        assert_eq!(told, expected.filter(|piece| !is_empty(piece)).collect::<Vec<_>>());
        assert_eq!(code, Some(0));
    }

    #[test]
    fn the_first_line_that_fails_ends_it_where_that_is_wanted() {
        assert_eq!(run(true, &["true", "exit 4", "echo no"]), (vec![Whole::Ended(1, 0), Whole::Ended(2, 4)], Some(4)));
    }
}
