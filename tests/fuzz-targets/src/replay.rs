//! The corpus on disk: one directory a target, one file an input.
//!
//! Files named `golden-*` are made anew by [`write_golden`]; the others were written by hand or found by libFuzzer and are kept.
//! Invariant: an input that makes a target panic is printed and written to a file before the test ends.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rand::SeedableRng as _;
use rand_xoshiro::SplitMix64;

use crate::{Target, mutate::mutated};

/// Mutations tried of each target, unless time runs out first.
const MUTATIONS: u64 = 20_000;
/// Time for the mutations of one target.
const TIME_MAX: Duration = Duration::from_secs(2);
const GOLDEN_PREFIX: &str = "golden-";

/// Number of inputs that a replay ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Files.
    pub files: usize,
    /// Mutations of them.
    pub mutations: u64,
}

/// Runs `target` on every file of its directory in `corpus`, then on mutations of them.
///
/// # Errors
/// When the directory cannot be read, or has no file.
///
/// # Panics
/// When the target has found a fault.
pub fn replay(target: &Target, corpus: &Path) -> Result<Replayed> {
    let dir = corpus.join(target.name);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.sort();
    ensure!(!paths.is_empty(), "{}: no input", dir.display());
    let mut inputs = Vec::with_capacity(paths.len());
    for path in &paths {
        let input = fs::read(path).with_context(|| path.display().to_string())?;
        run(target, &input, &path.display().to_string());
        inputs.push(input);
    }
    let seed = target.name.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = SplitMix64::seed_from_u64(seed);
    let started = Instant::now();
    let mut mutations = 0;
    while mutations < MUTATIONS && started.elapsed() < TIME_MAX {
        run(target, &mutated(&inputs, &mut random), &format!("mutation {mutations}"));
        mutations += 1;
    }
    Ok(Replayed { files: paths.len(), mutations })
}

fn run(target: &Target, input: &[u8], name: &str) {
    let _report = ReportOnPanic { target: target.name, input, name };
    (target.run)(input);
}

/// Prints and keeps the input during which a target panics.
struct ReportOnPanic<'a> {
    target: &'a str,
    input: &'a [u8],
    name: &'a str,
}

impl Drop for ReportOnPanic<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let path = std::env::temp_dir().join(format!("fuzz-{}-{}", self.target, std::process::id()));
        let kept = fs::write(&path, self.input).is_ok();
        let place = if kept { path.display().to_string() } else { "nowhere".to_owned() };
        eprintln!("{}: {} has found a fault ({} bytes, kept in {place})", self.target, self.name, self.input.len());
        eprintln!("{}", self.input.escape_ascii());
    }
}

/// Writes the golden inputs of `target` into its directory in `corpus`; earlier ones go, other files stay. The number written.
///
/// # Errors
/// When a file cannot be written or removed.
pub fn write_golden(target: &Target, corpus: &Path) -> Result<usize> {
    let dir = corpus.join(target.name);
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    for entry in fs::read_dir(&dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(GOLDEN_PREFIX) {
            fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    let inputs = (target.golden)();
    for (number, bytes) in inputs.iter().enumerate() {
        let path = dir.join(format!("{GOLDEN_PREFIX}{number:02}"));
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    Ok(inputs.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(run: fn(&[u8])) -> Target {
        Target { name: "probe", run, golden: || vec![b"one".to_vec(), b"two".to_vec()] }
    }

    #[test]
    fn golden_inputs_are_made_anew_and_regressions_stay() {
        let corpus = tempfile::tempdir().unwrap();
        let dir = corpus.path().join("probe");
        fs::create_dir(&dir).unwrap();
        for name in ["golden-yesterday", "regression"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        let target = target(|_| ());
        assert_eq!(write_golden(&target, corpus.path()).unwrap(), 2);
        let mut names: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["golden-00", "golden-01", "regression"]);
        assert_eq!(replay(&target, corpus.path()).unwrap(), Replayed { files: 3, mutations: MUTATIONS });
    }

    #[test]
    fn a_corpus_without_files_is_an_error() {
        let corpus = tempfile::tempdir().unwrap();
        assert!(replay(&target(|_| ()), corpus.path()).is_err());
        fs::create_dir(corpus.path().join("probe")).unwrap();
        assert!(replay(&target(|_| ()), corpus.path()).unwrap_err().to_string().contains("no input"));
    }

    #[test]
    #[should_panic = "found"]
    fn a_fault_that_only_a_mutation_shows_is_found() {
        let corpus = tempfile::tempdir().unwrap();
        let target = target(|bytes| assert!(!bytes.contains(&0xff), "found"));
        write_golden(&target, corpus.path()).unwrap();
        let _ = replay(&target, corpus.path());
    }
}
