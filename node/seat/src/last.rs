//! What a seat remembers of its runs: the highest numbers, in a file of its own, longer than the runs themselves.
//!
//! Invariant: a number that was seen is seen again for as long as an opening with it may be shown. Runs that begin at the same moment come
//! in any order, so one may have a lower number than another; one below all that are remembered counts as seen.

use std::{collections::BTreeSet, path::Path};

use broker::time::{Span, Time};
use serde::{Deserialize, Serialize};

use super::{
    directory::{DirectoryError, read_json, write_json},
    order::RunNumber,
};

/// How long a seat remembers its highest numbers at least; longer than an opening may be shown again.
const REMEMBERED_FOR: Span = Span(300);
/// How long after the window of a run its user may still fetch files that were to be kept.
pub const FILES_KEPT_FOR: Span = Span(600);
const FILE: &str = "last";
const FILE_BYTES_MAX: u64 = 4096;
/// So many numbers are remembered.
const RUNS_MAX: usize = 64;

/// The newest runs of a seat.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Last {
    runs: BTreeSet<RunNumber>,
    deadline: Time,
}

/// Whether nothing of a run whose window ends at `deadline` is kept any more.
pub fn is_past(deadline: Time, now: Time) -> bool {
    deadline + FILES_KEPT_FOR < now
}

impl Last {
    /// Whether this number was seen, or may have been.
    pub fn has_seen(&self, run: RunNumber) -> bool {
        let is_below_all = || self.runs.len() == RUNS_MAX && self.runs.first().is_some_and(|lowest| run < *lowest);
        self.runs.contains(&run) || is_below_all()
    }

    /// One more run begins now.
    pub fn add(&mut self, run: RunNumber, deadline: Time, now: Time) {
        self.runs.insert(run);
        if self.runs.len() > RUNS_MAX {
            self.runs.pop_first();
        }
        self.deadline = self.deadline.max(deadline).max(now + REMEMBERED_FOR);
    }

    /// What the seat remembers; none before its first run.
    pub fn read(seat: &Path) -> Result<Option<Last>, DirectoryError> {
        read_json(seat.join(FILE), FILE_BYTES_MAX)
    }

    /// Lets the seat remember it; on disk when this returns.
    pub fn write(&self, seat: &Path) -> Result<(), DirectoryError> {
        write_json(seat.join(FILE), self)
    }

    /// Whether nothing of the seat is kept any more. One whose file cannot be read is left to its owner.
    pub fn is_late(seat: &Path, now: Time) -> bool {
        Last::read(seat).is_ok_and(|last| last.is_some_and(|last| is_past(last.deadline, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_any_order_and_each_counts_once() {
        let (mut last, most) = (Last::default(), RUNS_MAX as u64);
        for number in (1..=most).rev().map(|number| RunNumber(10 * number)) {
            assert!(!last.has_seen(number));
            last.add(number, Time(0), Time(0));
            assert!(last.has_seen(number));
        }
        assert!(!last.has_seen(RunNumber(15)) && !last.has_seen(RunNumber(10 * most + 1)));
        assert!(last.has_seen(RunNumber(9)), "below all that are remembered");
        last.add(RunNumber(15), Time(0), Time(0));
        assert!(last.has_seen(RunNumber(10)) && last.has_seen(RunNumber(14)) && !last.has_seen(RunNumber(16)));
        let directory = tempfile::tempdir().unwrap();
        let all: Last = Last { runs: (0..most).map(|number| RunNumber(u64::MAX - number)).collect(), ..last };
        all.write(directory.path()).unwrap();
        let read = Last::read(directory.path()).unwrap().unwrap();
        assert_eq!((read.runs, read.deadline), (all.runs, all.deadline));
    }
}
