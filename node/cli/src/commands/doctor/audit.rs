//! The chains of the audit logs: lines follow each other as they were written.

use std::path::Path;

use kolo_runtime::{audit::By, audit_chain};

use super::finding::{Finding, Level};

const CHECK: &str = "audit";
/// Digits of a hash that people compare.
const DIGITS: usize = 16;

pub fn check(data_dir: &Path) -> Vec<Finding> {
    By::ALL.into_iter().filter_map(|by| of_right(data_dir, by)).collect()
}

fn of_right(data_dir: &Path, by: By) -> Option<Finding> {
    let [file, _] = by.files();
    let found = match audit_chain::check(data_dir, by) {
        Ok(found) => found,
        Err(error) => return Some(Finding::new(CHECK, Level::Note, format!("{file} cannot be read: {error}"))),
    };
    let last = found.last?.to_hex();
    if found.breaks.is_empty() {
        let what =
            format!("{file}: {} lines, each behind the one before it; the last is {}", found.lines, &last[..DIGITS]);
        return Some(Finding::good(CHECK, what));
    }
    let places = found.breaks.iter().map(|one| format!("{} line {}: {}", one.file, one.line, one.why));
    let what = format!("a line was changed, put in or taken out ({})", places.collect::<Vec<_>>().join("; "));
    let to_do = "compare with the log of the node, which has each line with its hash (target kolo::audit; under systemd journalctl -u \
                 kolo), and see who else may write in the data directory";
    Some(Finding::problem(CHECK, what, to_do))
}
