//! The corpus on disk: one directory a target, one file an input.
//!
//! Files named `seed-*` are made anew by [`write_seeds`]; the others were found by libFuzzer or by hand and are kept.
//! Invariant: an input that makes a target panic is printed and written to a file before the test ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Random, Target, mutated};

/// Mutations tried of each target, unless time runs out first.
const MUTATIONS: u64 = 20_000;
/// Time for the mutations of one target.
const TIME_MAX: Duration = Duration::from_secs(2);
const SEED_PREFIX: &str = "seed-";

/// A corpus that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct CorpusError {
    path: PathBuf,
    source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CorpusError {
    let path = path.to_owned();
    move |source| CorpusError { path, source }
}

/// What a replay did.
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
/// [`CorpusError`] when the directory cannot be read, or has no file.
///
/// # Panics
/// When the target has found a fault.
pub fn replay(target: &Target, corpus: &Path) -> Result<Replayed, CorpusError> {
    let dir = corpus.join(target.name);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&dir).map_err(at(&dir))? {
        paths.push(entry.map_err(at(&dir))?.path());
    }
    paths.sort();
    if paths.is_empty() {
        return Err(at(&dir)(io::Error::new(io::ErrorKind::NotFound, "no input; make seeds with scripts/fuzz seeds")));
    }
    let mut inputs = Vec::with_capacity(paths.len());
    for path in &paths {
        inputs.push(fs::read(path).map_err(at(path))?);
    }
    for (path, input) in paths.iter().zip(&inputs) {
        run(target, input, &path.display().to_string());
    }
    let seed = target.name.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Random::new(seed);
    let started = Instant::now();
    let mut mutations = 0;
    while mutations < MUTATIONS && started.elapsed() < TIME_MAX {
        let input = mutated(&inputs, &mut random);
        run(target, &input, &format!("mutation {mutations}"));
        mutations += 1;
    }
    Ok(Replayed { files: paths.len(), mutations })
}

fn run(target: &Target, input: &[u8], name: &str) {
    let _told = Told { target: target.name, input, name };
    (target.run)(input);
}

/// Says on a panic which input it was.
struct Told<'a> {
    target: &'a str,
    input: &'a [u8],
    name: &'a str,
}

impl Drop for Told<'_> {
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

/// Writes the seeds of `target` into its directory in `corpus`; earlier seeds go, other files stay. The number written.
///
/// # Errors
/// [`CorpusError`] when a file cannot be written or removed.
pub fn write_seeds(target: &Target, corpus: &Path) -> Result<usize, CorpusError> {
    let dir = corpus.join(target.name);
    fs::create_dir_all(&dir).map_err(at(&dir))?;
    for entry in fs::read_dir(&dir).map_err(at(&dir))? {
        let path = entry.map_err(at(&dir))?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SEED_PREFIX)) {
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    let seeds = (target.seeds)();
    for (name, bytes) in &seeds {
        let path = dir.join(format!("{SEED_PREFIX}{name}"));
        fs::write(&path, bytes).map_err(at(&path))?;
    }
    Ok(seeds.len())
}

/// The tests of a crate's `TARGETS`: one that replays each (`test: "target",` in their order), one that misses none, and
/// one that writes the seeds, which only `scripts/fuzz seeds` runs. Stands in a module `tests` beside the targets.
#[macro_export]
macro_rules! replay_tests {
    ($($test:ident: $name:literal,)*) => {
        fn corpus() -> &'static std::path::Path {
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus"))
        }

        $(#[test]
        fn $test() {
            let target = TARGETS.iter().find(|target| target.name == $name).expect("a target of this name");
            let replayed = $crate::replay(target, corpus()).expect("a corpus");
            assert!(replayed.files > 0 && replayed.mutations > 0, "{replayed:?}");
        })*

        #[test]
        fn every_target_is_replayed() {
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), [$($name),*]);
        }

        #[test]
        #[ignore = "writes the seeds into tests/corpus; run by scripts/fuzz seeds"]
        fn write_seeds() {
            for target in TARGETS {
                $crate::write_seeds(target, corpus()).expect("a corpus that can be written");
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(run: fn(&[u8])) -> Target {
        Target { name: "probe", run, seeds: || vec![("one", b"one".to_vec()), ("two", b"two".to_vec())] }
    }

    #[test]
    fn seeds_are_made_anew_and_regressions_stay() {
        let corpus = tempfile::tempdir().unwrap();
        let dir = corpus.path().join("probe");
        fs::create_dir(&dir).unwrap();
        for name in ["seed-of-yesterday", "regression"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        let target = target(|_| ());
        assert_eq!(write_seeds(&target, corpus.path()).unwrap(), 2);
        let mut names: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["regression", "seed-one", "seed-two"]);
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
        write_seeds(&target, corpus.path()).unwrap();
        let _ = replay(&target, corpus.path());
    }
}
