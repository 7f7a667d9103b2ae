//! Drops what ended commands have left, so that a node whose disk is full has room.
//!
//! Invariant: no node runs meanwhile; ledger, keys, and what has not ended stay as they are.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

use kolo_seat::{
    RunId,
    freeing::{Freed, Leavings},
};
use kolo_storage::{
    StoreError,
    data_dir::{FILES_DIR, LEDGER_DIR, RUNS_DIR},
    lock_to_look,
};
use kolo_text::words::counted;

use super::finding::{Finding, Level};
use crate::error::CliError;

const CHECK: &str = "free";
/// Most runs that are listed.
const LISTED_MAX: usize = 20;

/// Lists what ended commands have left in `data_dir`, and drops it when `is_sure`, or when whoever sits at the terminal says so.
///
/// # Errors
/// [`CliError`] when the terminal cannot be used.
pub(super) fn free(data_dir: &Path, is_sure: bool) -> Result<Finding, CliError> {
    let _lock = match lock_to_look(&data_dir.join(LEDGER_DIR)) {
        Ok(lock) => lock,
        Err(error) => return Ok(not_now(&error)),
    };
    let found = match Leavings::find(&data_dir.join(RUNS_DIR), &data_dir.join(FILES_DIR)) {
        Ok(found) => found,
        Err(error) => {
            let to_do =
                "see that the user who runs the node owns the data directory, and run this as that user or root";
            return Ok(Finding::problem(CHECK, error.to_string(), to_do));
        }
    };
    if found.is_empty() {
        return Ok(Finding::new(CHECK, Level::Note, "ended commands have left nothing"));
    }
    let picture = lines(&found);
    let what =
        format!("{} with files sent for them: {}", counted(found.runs.len(), "ended command"), size(found.bytes()));
    let is_sure = is_sure || ask(&what, &picture)?;
    if !is_sure {
        let to_do = "kolo doctor --free --yes drops it; nobody can fetch these outputs and files then";
        return Ok(Finding { picture, ..Finding::note(CHECK, what, to_do) });
    }
    let Freed { bytes, left } = found.free();
    let what = format!("{} were freed", size(bytes));
    Ok(if left.is_empty() {
        Finding { picture, ..Finding::good(CHECK, what) }
    } else {
        let left: Vec<_> = left.iter().take(LISTED_MAX).map(|path| path.display().to_string()).collect();
        let to_do = "run this as root, or look at what holds them";
        Finding::problem(CHECK, format!("{what}; these could not be removed: {}", left.join(", ")), to_do)
    })
}

fn not_now(error: &StoreError) -> Finding {
    let to_do = match error {
        StoreError::InUse(_) => {
            "a node runs here, which drops ends that nobody has fetched after a day, and files with their reservations; to free all of \
             it at once, stop the node (commands that run go on), run kolo doctor --free, and start it again"
        }
        _ => "see that the user who runs the node owns the data directory, and run this as that user or root",
    };
    Finding::problem(CHECK, "nothing was freed: ".to_owned() + &error.to_string(), to_do)
}

fn lines(found: &Leavings) -> Vec<String> {
    let name = |id: &RunId| format!("seat {} of {}", id.seat, id.request);
    let runs = found.runs.iter().map(|run| format!("{:>10}  run {} on {}", size(run.bytes), run.id.run, name(&run.id)));
    let files = found.files.iter().map(|sent| format!("{:>10}  files sent for {}", size(sent.bytes), sent.id.request));
    let (mut lines, count) = (files.chain(runs).collect::<Vec<_>>(), found.runs.len() + found.files.len());
    if count > LISTED_MAX {
        lines.truncate(LISTED_MAX);
        lines.push(format!("and {} more", count - LISTED_MAX));
    }
    lines
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

/// Asks on the terminal, if there is one.
fn ask(what: &str, lines: &[String]) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    let failed = |source| CliError::Io { doing: "asking whether to drop it", source };
    write!(io::stderr(), "{what}:\n{}\nDrop all of it? [y/N] ", lines.join("\n")).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use kolo_storage::{Store, StoreSettings};

    use super::*;

    #[test]
    fn nothing_is_freed_beside_a_running_node_and_nothing_where_there_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let level = || free(directory.path(), true).unwrap();
        assert_eq!(level().level, Level::Note);
        let store = Store::open(&directory.path().join(LEDGER_DIR), 1, StoreSettings::default()).unwrap();
        let finding = level();
        assert!(
            finding.level == Level::Problem && finding.to_do.unwrap().contains("stop the node"),
            "{}",
            finding.what
        );
        drop(store);
    }
}
