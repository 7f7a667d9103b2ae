//! `kolo run --each --detach`: the lines of a file dealt out over the seats before the start, since nobody stays who could hand them out.
//!
//! Each seat runs its lines one after the other, as the only command of its run: its site has them on disk before that starts, and starts it
//! once, whatever crashes when. Invariant: each line is dealt to one seat.

use kolo_seat::order::TEXT_BYTES_MAX;

use super::each::Line;

/// What a seat runs: the lines in its arguments, each behind its number. A shell that cannot hand them to itself, as on a full disk, says so;
/// how the lines would have ended is not known then.
const SCRIPT: &str = r#"trap 'exit 130' INT; trap 'exit 143' TERM; export KOLO_LINE; worst=0; stops=$1; shift
for part; do
while IFS= read -r KOLO_LINE <&3 && IFS= read -r line <&3; do
sh -c "$line" </dev/null 3<&-; code=$?
[ "$code" = 0 ] || echo "line $KOLO_LINE: exit code $code" >&2
[ "$worst" -ge "$code" ] || worst=$code
[ "$code" = 0 ] || [ "$stops" != stop ] || exit "$code"
done 3<<END || exit 125
$part
END
done
exit "$worst""#;

/// The command of the seat of this rank, one of so many: the lines that it is dealt. With `stops` the first of them that fails is its last.
pub fn command(lines: &[Line], (rank, seats): (usize, usize), stops: bool) -> Vec<String> {
    let stops = if stops { "stop" } else { "" };
    let mut words: Vec<String> = ["sh", "-c", SCRIPT, "kolo-each", stops].map(str::to_owned).into();
    let mut part = String::new();
    for Line { number, text } in lines.iter().skip(rank).step_by(seats.max(1)) {
        let next = format!("{number}\n{text}\n");
        if part.len() + next.len() > TEXT_BYTES_MAX {
            words.push(std::mem::take(&mut part));
        }
        part.push_str(&next);
    }
    words.push(part);
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn lines(texts: &[String]) -> Vec<Line> {
        (1..).zip(texts).map(|(number, text)| Line { number, text: text.clone() }).collect()
    }

    fn run(words: &[String]) -> (Option<i32>, String, String) {
        let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), out, err)
    }

    #[test]
    fn each_line_runs_on_one_seat_as_it_is_written() {
        // More than fits into one argument.
        let said = |index: usize| format!("{index} \\n $HOME `x` \"END");
        let line = |index| format!("printf '%s %s\\n' $KOLO_LINE '{}' # {}", said(index), "x".repeat(90));
        let texts: Vec<String> = (1..=3000).map(line).collect();
        let mut told: Vec<(usize, String)> = Vec::new();
        for rank in 0..2 {
            let words = command(&lines(&texts), (rank, 2), false);
            assert!(words.len() > 6 && words.iter().all(|word| word.len() <= TEXT_BYTES_MAX));
            let (code, out, err) = run(&words);
            assert_eq!((code, err.as_str()), (Some(0), ""));
            told.extend(
                out.lines()
                    .map(|line| line.split_once(' ').unwrap())
                    .map(|(number, rest)| (number.parse().unwrap(), rest.to_owned())),
            );
        }
        told.sort_unstable();
        let expected: Vec<(usize, String)> = (1..=3000).map(|index| (index, said(index))).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn the_largest_code_is_told_and_lines_that_fail_are_named() {
        let texts = ["exit 3", "cat; echo read", "exit 200", "exit 1"].map(str::to_owned);
        let (code, out, err) = run(&command(&lines(&texts), (0, 1), false));
        assert_eq!((code, out.as_str()), (Some(200), "read\n"), "{err}");
        assert_eq!(err, "line 1: exit code 3\nline 3: exit code 200\nline 4: exit code 1\n");
        let (code, out, _) = run(&command(&lines(&texts), (0, 1), true));
        assert_eq!((code, out.as_str()), (Some(3), ""));
        // A shell without room for the lines; what it says of that is its own.
        let words = command(&lines(&texts), (0, 1), false);
        let poor = ["sh", "-c", "ulimit -n 4; exec \"$@\"", "sh"].map(str::to_owned).into_iter().chain(words);
        let (code, out, err) = run(&poor.collect::<Vec<_>>());
        assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
        assert!(!err.is_empty(), "it says why");
        // More seats than lines.
        assert_eq!(run(&command(&lines(&texts), (4, 5), false)), (Some(0), String::new(), String::new()));
    }
}
