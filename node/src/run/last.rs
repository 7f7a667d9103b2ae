//! What a seat remembers of its runs: the highest number, in a file of its own, longer than the runs themselves.
//!
//! Invariant: a number that was seen is seen again for as long as an opening with it may be shown.

use std::path::Path;

use broker::time::{Span, Time};
use serde::{Deserialize, Serialize};

use super::{
    directory::{DirectoryError, read_json, write_json},
    order::RunNumber,
};

/// How long a seat remembers its highest number at least; longer than an opening may be shown again.
const REMEMBERED_FOR: Span = Span(300);
/// How long after the window of a run its user may still fetch files that were to be kept.
pub const FILES_KEPT_FOR: Span = Span(600);
const FILE: &str = "last";
const FILE_BYTES_MAX: u64 = 256;

/// The newest run of a seat.
#[derive(Debug, Serialize, Deserialize)]
pub struct Last {
    pub run: RunNumber,
    deadline: Time,
}

/// Whether nothing of a run whose window ends at `deadline` is kept any more.
pub fn is_past(deadline: Time, now: Time) -> bool {
    deadline + FILES_KEPT_FOR < now
}

impl Last {
    /// One that begins now.
    pub fn new(run: RunNumber, deadline: Time, now: Time) -> Last {
        Last { run, deadline: deadline.max(now + REMEMBERED_FOR) }
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
