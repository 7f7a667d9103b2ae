//! Fuzz targets of what people, programs and disks give the node: files, texts, bodies and queries of the local API, and
//! the ledger's own files.
//!
//! The binary has no feature for them: tests compile them, and the fuzzing workspace compiles this crate's modules as a
//! library of its own. Invariant: a target panics exactly when the node has a fault; what is merely wrong is refused,
//! and the target returns. Nothing is read but what the target itself has written.

mod api;
mod config;
mod journal;
mod texts;
mod trust;

pub use fuzz_support::Target;

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    api::API,
    config::CONFIG,
    config::REQUEST_FILE,
    journal::ENTRIES,
    journal::JOURNAL,
    texts::TIMES,
    trust::GRID_FILES,
    trust::TOKEN,
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn corpus() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus"))
    }

    fn replay(name: &str) {
        let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
        let replayed = fuzz_support::replay(target, corpus()).expect("a corpus");
        assert!(replayed.files > 0 && replayed.mutations > 0, "{replayed:?}");
    }

    macro_rules! replayed {
        ($($test:ident: $name:literal,)*) => {
            $(#[test]
            fn $test() {
                replay($name);
            })*

            #[test]
            fn every_target_is_replayed() {
                assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), [$($name),*]);
            }
        };
    }

    replayed! {
        bodies_and_queries: "api",
        configurations: "config",
        request_files: "request-file",
        entries: "entries",
        journals: "journal",
        times: "times",
        grid_files: "grid-files",
        tokens: "token",
    }

    #[test]
    #[ignore = "writes the seeds into tests/corpus; run by scripts/fuzz seeds"]
    fn write_seeds() {
        for target in TARGETS {
            fuzz_support::write_seeds(target, corpus()).expect("a corpus that can be written");
        }
    }
}
