//! What was used of what was reserved at this site: a line when a command on a seat has ended, written by its keeper, and one when a
//! reservation is over, written by the node.
//!
//! Invariant: two files of at most [`FILE_BYTES_MAX`], the older of which goes; one process writes at a time; of the same run or reservation
//! the last line counts.

use std::{collections::BTreeMap, fs, io, os::unix::fs::OpenOptionsExt as _, path::Path, thread, time::Duration};

use broker::{
    ids::{RequestId, SeatNumber},
    protocol::AttemptId,
    time::Window,
    trust::PublicKey,
};
use kolo_runtime::bounded_log;
use serde::{Deserialize, Serialize};

const FILE: &str = "used.jsonl";
const FILE_BEFORE: &str = "used.1.jsonl";
/// Held by whoever writes.
const LOCK: &str = "used.lock";
/// Nobody waits longer for another who writes: one that was stopped would hold up the site.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Largest file; some 15,000 lines.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a command has used of its seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunUse {
    pub user: PublicKey,
    pub request: RequestId,
    pub seat: SeatNumber,
    /// The number of the run.
    pub run: u64,
    /// Unix milliseconds.
    pub started_ms: u64,
    /// Unix milliseconds.
    pub ended_ms: u64,
    /// Time on processors, of all that came from the command.
    pub cpu_ms: u64,
}

/// What was reserved here, when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub attempt: AttemptId,
    /// The reservation that it is a part of; its own request where it lengthens none.
    pub request: RequestId,
    pub user: String,
    pub user_key: PublicKey,
    pub window: Window,
    pub seats: u32,
    /// Seconds of its seats together, until it was over.
    pub seat_s: u64,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Line {
    Run(RunUse),
    Reserved(Reserved),
}

/// The directory that use is written in: that in which the directory of all runs lies.
pub fn beside_runs(runs: &Path) -> Option<&Path> {
    runs.parent()
}

/// The same, by the directory of one run of a seat.
pub fn beside_run(run: &Path) -> Option<&Path> {
    run.ancestors().nth(2).and_then(beside_runs)
}

/// Adds a line to the files in `directory`.
///
/// # Errors
/// What the disk says; the line may then be lost.
pub fn add(directory: &Path, line: &Line) -> io::Result<()> {
    add_to(directory, line, FILE_BYTES_MAX)
}

fn add_to(directory: &Path, line: &Line, bytes_max: u64) -> io::Result<()> {
    let text = serde_json::to_string(line)? + "\n";
    let lock = fs::File::options().create(true).append(true).mode(0o600).open(directory.join(LOCK))?;
    for _ in 0..LOCK_TRIES {
        if lock.try_lock().is_ok() {
            return bounded_log::append(&directory.join(FILE), &directory.join(FILE_BEFORE), &text, bytes_max);
        }
        thread::sleep(LOCK_PAUSE);
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// All lines, the oldest first; what cannot be read is left out.
pub fn read(directory: &Path) -> Vec<Line> {
    // The older file last: what is put away between the two is read twice, and not lost.
    let [last, before] = [FILE, FILE_BEFORE].map(|file| fs::read(directory.join(file)).unwrap_or_default());
    let lines = before.split(|byte| *byte == b'\n').chain(last.split(|byte| *byte == b'\n'));
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// What was reserved and used by one user for one reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    pub user: String,
    pub request: RequestId,
    pub window: Window,
    pub seats: u32,
    /// Seconds of its seats together.
    pub reserved_s: u64,
    /// Milliseconds of its seats together in which a command ran.
    pub used_ms: u64,
    /// Milliseconds on processors.
    pub cpu_ms: u64,
    pub runs: u64,
}

/// Adds lines up by reservation; `standing` is what is not over. Runs of reservations that are no longer known are left out.
pub fn add_up(lines: Vec<Line>, standing: impl Iterator<Item = Reserved>) -> Vec<Used> {
    let mut runs = BTreeMap::new();
    let mut reserved = BTreeMap::new();
    for line in lines.into_iter().chain(standing.map(Line::Reserved)) {
        match line {
            Line::Run(run) => {
                let key = (run.user, run.request.clone(), run.seat, run.run);
                drop(runs.insert(key, run));
            }
            Line::Reserved(one) => drop(reserved.insert(one.attempt.clone(), one)),
        }
    }
    let mut sums: BTreeMap<(PublicKey, RequestId), Used> = BTreeMap::new();
    for one in reserved.into_values() {
        let sum = sums.entry((one.user_key, one.request.clone())).or_insert_with(|| Used {
            user: one.user.clone(),
            request: one.request,
            window: one.window,
            seats: 0,
            reserved_s: 0,
            used_ms: 0,
            cpu_ms: 0,
            runs: 0,
        });
        sum.window.start = sum.window.start.min(one.window.start);
        sum.window.end = sum.window.end.max(one.window.end);
        sum.seats = sum.seats.max(one.seats);
        sum.reserved_s = sum.reserved_s.saturating_add(one.seat_s);
    }
    let mut times: BTreeMap<(PublicKey, RequestId, SeatNumber), Vec<(u64, u64)>> = BTreeMap::new();
    for run in runs.into_values() {
        let Some(sum) = sums.get_mut(&(run.user, run.request.clone())) else { continue };
        sum.cpu_ms = sum.cpu_ms.saturating_add(run.cpu_ms);
        sum.runs += 1;
        times.entry((run.user, run.request, run.seat)).or_default().push((run.started_ms, run.ended_ms));
    }
    for ((user, request, _), times) in times {
        if let Some(sum) = sums.get_mut(&(user, request)) {
            sum.used_ms = sum.used_ms.saturating_add(covered(times));
        }
    }
    sums.into_values().collect()
}

/// How much time these cover together: commands on a seat may run at the same time.
fn covered(mut times: Vec<(u64, u64)>) -> u64 {
    times.sort_unstable();
    let (mut sum, mut until) = (0_u64, 0);
    for (start, end) in times {
        sum = sum.saturating_add(end.saturating_sub(start.max(until)));
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use broker::{ids::SiteId, time::Time};
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> RequestId {
        RequestId::new(text).unwrap()
    }

    fn reserved(attempt: &str, base: &str, seat_s: u64) -> Reserved {
        let entry_point = SiteId::new("e").unwrap();
        Reserved {
            attempt: AttemptId { entry_point, request: id(attempt), attempt: 1 },
            request: id(base),
            user: "ada".to_owned(),
            user_key: PublicKey::from_bytes([1; 32]),
            window: Window { start: Time(0), end: Time(100) },
            seats: 2,
            seat_s,
        }
    }

    fn run(request: &str, seat: u32, run: u64, (started_ms, ended_ms): (u64, u64)) -> Line {
        let (user, request) = (PublicKey::from_bytes([1; 32]), id(request));
        Line::Run(RunUse { user, request, seat: SeatNumber(seat), run, started_ms, ended_ms, cpu_ms: 5 })
    }

    #[test]
    fn runs_count_by_reservation_and_what_is_reserved_without_any_is_there() {
        let lines = vec![
            Line::Reserved(reserved("r", "r", 100)),
            run("r", 0, 1, (1_000, 5_000)),
            run("r", 0, 2, (3_000, 9_000)),
            run("r", 1, 1, (1_000, 2_000)),
            // The same once more, as after a crash; and one of a reservation that was forgotten.
            run("r", 1, 1, (1_000, 2_000)),
            Line::Reserved(reserved("r", "r", 120)),
            run("gone", 0, 1, (0, 1_000)),
            // What lengthens it.
            Line::Reserved(reserved("more", "r", 30)),
        ];
        let found = add_up(lines, [reserved("s", "s", 7)].into_iter());
        let sums: Vec<_> =
            found.iter().map(|one| (one.request.as_str(), one.reserved_s, one.used_ms, one.cpu_ms, one.runs)).collect();
        assert_eq!(sums, [("r", 150, 9_000, 15, 3), ("s", 7, 0, 0, 0)]);
    }

    #[test]
    fn lines_are_found_again_and_the_files_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let lines: Vec<Line> = (0..40).map(|number| run("r", 0, number, (0, 1))).collect();
        let length = serde_json::to_string(&lines[0]).unwrap().len() as u64 + 2;
        lines.iter().for_each(|line| add_to(directory.path(), line, 8 * length).unwrap());
        let found = read(directory.path());
        assert!((8..=16).contains(&found.len()) && lines.ends_with(&found), "{}", found.len());
        fs::write(directory.path().join(FILE), "{\"what\":\"nonsense\"}\nx\n").unwrap();
        let before = fs::read_to_string(directory.path().join(FILE_BEFORE)).unwrap().lines().count();
        assert_eq!(read(directory.path()).len(), before, "what is no line is left out");
    }

    proptest! {
        #[test]
        fn time_that_several_cover_counts_once(times in prop::collection::vec((0_u64..60, 0_u64..60), 0..12)) {
            let is_covered = |at: &u64| times.iter().any(|(start, end)| (*start..*end).contains(at));
            prop_assert_eq!(covered(times.clone()), (0..60).filter(is_covered).count() as u64);
        }
    }
}
