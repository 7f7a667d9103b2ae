//! Fuzz targets of everything that the network, a file or a user of the API can send, and how a test replays their corpora.
//!
//! The same functions are run by libFuzzer for as long as somebody likes (`scripts/fuzz`) and, in a test on every change, on
//! the files of `tests/corpus` and on mutations of them. Invariant: everything here but the limit on time depends on the
//! corpus alone.

mod input;
mod mutate;
mod replay;
mod targets;

pub use self::{
    input::Input,
    replay::{Replayed, replay, write_seeds},
    targets::TARGETS,
};

/// One fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its directory in `tests/corpus`.
    pub name: &'static str,
    /// Does with the bytes whatever the target is about. Panics exactly when it has found a fault.
    pub run: fn(&[u8]),
    /// Bytes worth beginning with, in today's encoding.
    pub seeds: fn() -> Vec<Seed>,
}

/// Bytes worth beginning with, and what to call them.
pub type Seed = (&'static str, Vec<u8>);

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        ffi::OsString,
        fs,
        path::Path,
    };

    use super::*;

    fn corpus() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus"))
    }

    /// One test a target, so that they run side by side.
    macro_rules! replay_tests {
        ($($test:ident: $name:literal,)*) => {
            const REPLAYED: &[&str] = &[$($name),*];

            $(#[test]
            fn $test() {
                let target = TARGETS.iter().find(|target| target.name == $name).expect("a target of this name");
                let replayed = replay(target, corpus()).expect("a corpus");
                assert!(replayed.files > 0 && replayed.mutations > 0, "{replayed:?}");
            })*
        };
    }

    replay_tests! {
        amounts: "amount",
        chains: "chain",
        gates: "gate",
        requests: "request",
        snapshots: "snapshot",
        statements: "statement",
        answers: "answer",
        asks: "ask",
        envelopes: "envelope",
        written_names: "names",
        bodies_and_queries: "api",
        configurations: "config",
        entries: "entries",
        grid_files: "grid-files",
        imports: "imports",
        journals: "journal",
        request_files: "request-file",
        memberships: "shown",
        times: "times",
        tokens: "token",
    }

    #[test]
    fn every_target_and_every_corpus_is_replayed() {
        assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), REPLAYED);
        for entry in fs::read_dir(corpus()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(REPLAYED.contains(&name.as_str()), "{name}: a corpus without a target");
        }
    }

    /// The seeds in `corpus`, by target and name.
    fn seeds_in(corpus: &Path) -> BTreeMap<(&'static str, OsString), Vec<u8>> {
        let files = |target: &Target| fs::read_dir(corpus.join(target.name)).unwrap().map(Result::unwrap);
        let all = TARGETS.iter().flat_map(|target| files(target).map(|file| (target.name, file)));
        let seeds = all.filter(|(_, file)| file.file_name().to_string_lossy().starts_with("seed-"));
        seeds.map(|(target, file)| ((target, file.file_name()), fs::read(file.path()).unwrap())).collect()
    }

    #[test]
    fn seeds_are_those_that_the_targets_make_today() {
        let made = tempfile::tempdir().unwrap();
        for target in TARGETS {
            write_seeds(target, made.path()).unwrap();
        }
        let (kept, made) = (seeds_in(corpus()), seeds_in(made.path()));
        let is_same = |seed: &&(&str, OsString)| kept.get(*seed) == made.get(*seed);
        let stale: BTreeSet<_> = kept.keys().chain(made.keys()).filter(|seed| !is_same(seed)).collect();
        assert!(stale.is_empty(), "run scripts/fuzz seeds: {stale:?}");
    }

    #[test]
    #[ignore = "writes the seeds into tests/corpus; run by scripts/fuzz seeds"]
    fn write_all_seeds() {
        for target in TARGETS {
            write_seeds(target, corpus()).expect("a corpus that can be written");
        }
    }
}
