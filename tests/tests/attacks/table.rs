//! What an honest user has seen of each attack, beside what was seen without any.

use std::io::{self, Write as _};

use crate::honest::{Measured, ROUNDS, STEPS};

/// One line an attack.
pub struct Table {
    alone: Measured,
    lines: Vec<String>,
    complaints: Vec<String>,
}

impl Table {
    /// A table whose attacks are compared with what was seen without any.
    pub fn beside(alone: Measured) -> Table {
        assert_eq!(alone.answered(), ROUNDS * STEPS.len(), "without attacks: {:?}", alone.wrong());
        let head =
            format!("{:36} {:>8} {:>8} {:>7} {:>7} {:>7} {:>5}", "", "answered", "slowest", "p50", "p99", "alone", "");
        Table { alone, lines: vec![head], complaints: Vec::new() }
    }

    /// Adds what is seen during an attack. What is slow is measured once more: something else may have run on the machine just then.
    pub fn judge(&mut self, attack: &str, measure: impl Fn() -> Measured) {
        let mut seen = measure();
        if seen.wrong().is_empty() && seen.is_slow_beside(&self.alone) {
            seen = measure();
        }
        self.judge_answers(attack, &seen);
        if seen.wrong().is_empty() && seen.is_slow_beside(&self.alone) {
            self.complaints.push(format!("{attack}: too slow, twice"));
        }
    }

    /// Adds what is seen during an attack, of which only the answers are judged.
    pub fn judge_answers(&mut self, attack: &str, seen: &Measured) {
        let (step, ratio) = seen.worst_beside(&self.alone);
        let [p50, p99] = [50, 99].map(|percent| seen.percentile(step, percent).as_millis());
        let alone = self.alone.percentile(step, 99).as_millis();
        let answered = format!("{} of {}", seen.answered(), ROUNDS * STEPS.len());
        let times = format!("{p50:>4} ms {p99:>4} ms {alone:>4} ms {ratio:>5.2}");
        self.lines.push(format!("{attack:36} {answered:>8} {:>8} {times}", STEPS[step]));
        self.complaints.extend(seen.wrong().iter().map(|wrong| format!("{attack}: {wrong}")));
    }

    /// Prints all lines, also of a test that passes.
    ///
    /// # Panics
    /// When an attack has cost the honest user an answer, or too much time.
    pub fn print_and_check(&self) {
        say(&self.lines.join("\n"));
        assert!(self.complaints.is_empty(), "{}", self.complaints.join("\n"));
    }
}

/// Prints a line of a test that passes, too.
pub fn say(line: &str) {
    io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
