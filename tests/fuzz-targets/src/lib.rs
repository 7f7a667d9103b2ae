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
    replay::{Replayed, replay, write_golden},
    targets::TARGETS,
};

/// One fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its directory in `tests/corpus`.
    pub name: &'static str,
    /// Does with the bytes whatever the target is about. Panics exactly when it has found a fault.
    pub run: fn(&[u8]),
    /// Inputs in today's encoding, beside those that are kept in files.
    pub golden: fn() -> Vec<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

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
        runs: "run",
        bodies_and_queries: "api",
        signed_calls: "call",
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

    #[test]
    fn golden_inputs_are_those_of_today() {
        let made = tempfile::tempdir().unwrap();
        for target in TARGETS {
            write_golden(target, made.path()).unwrap();
            let golden_in = |corpus: &Path| -> BTreeMap<OsString, Vec<u8>> {
                let files = fs::read_dir(corpus.join(target.name)).unwrap().map(Result::unwrap);
                let golden = files.filter(|file| file.file_name().to_string_lossy().starts_with("golden-"));
                golden.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect()
            };
            let is_same = golden_in(corpus()) == golden_in(made.path());
            assert!(is_same, "{}: run scripts/fuzz golden", target.name);
        }
    }

    #[test]
    #[ignore = "writes into tests/corpus; run by scripts/fuzz golden"]
    fn write_all_golden_inputs() {
        for target in TARGETS {
            write_golden(target, corpus()).expect("a corpus that can be written");
        }
    }
}
