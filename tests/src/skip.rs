//! Tests that use a tool of the machine skip themselves by name where it is missing.
//!
//! Invariant: a skipped test is always reported, on standard error and in the file that `KOLO_SKIPPED` names; `scripts/check`
//! lists that file at its end.

use std::{env, fs, io::Write};

/// Those of `tools` that no directory of `PATH` has.
#[must_use]
pub fn missing<'a>(tools: &[&'a str]) -> Vec<&'a str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &str| env::split_paths(&path).any(|directory| directory.join(tool).is_file());
    tools.iter().copied().filter(|tool| !is_there(tool)).collect()
}

/// Reports that the running test is skipped, by its name, and why.
///
/// # Panics
/// When `KOLO_SKIPPED` names a file that cannot be written.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}", thread.name().unwrap_or("a test"));
    eprintln!("SKIPPED: {line}");
    if let Some(list) = env::var_os("KOLO_SKIPPED") {
        let file = fs::File::options().create(true).append(true).open(list);
        file.and_then(|mut file| writeln!(file, "{line}")).expect("the list of skipped tests can be written");
    }
}
