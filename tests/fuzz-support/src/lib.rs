//! What a fuzz target is, how it takes choices out of bytes, and how a test replays its corpus.
//!
//! The core's targets are here ([`core`]), against its public interface. The same functions are run by libFuzzer for as
//! long as somebody likes (`scripts/fuzz`) and, in a test on every change, on the files of `tests/corpus` and on
//! mutations of them. Invariant: everything here but the limit on time depends on the corpus alone.

pub mod core;
mod input;
mod mutate;
mod replay;

pub use self::{
    input::Input,
    mutate::{Random, mutated},
    replay::{CorpusError, Replayed, replay, write_seeds},
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
    use std::path::Path;

    use crate::{core::TARGETS, replay, write_seeds};

    fn corpus() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus"))
    }

    #[test]
    fn the_targets_of_the_core_hold_on_their_corpus() {
        std::thread::scope(|scope| {
            for target in TARGETS {
                scope.spawn(|| {
                    let replayed = replay(target, corpus()).expect("a corpus");
                    assert!(replayed.files > 0 && replayed.mutations > 0, "{}: {replayed:?}", target.name);
                });
            }
        });
    }

    #[test]
    #[ignore = "writes the seeds into tests/corpus; run by scripts/fuzz seeds"]
    fn write_core_seeds() {
        for target in TARGETS {
            write_seeds(target, corpus()).expect("a corpus that can be written");
        }
    }
}
