//! What a fuzz target is, how it takes choices out of bytes, and how a test replays its corpus.
//!
//! A crate lists its targets in a table behind its feature `fuzzing`. The same functions are run by libFuzzer for as
//! long as somebody likes (`scripts/fuzz`) and, in a test on every change, on the files of `tests/corpus` and on
//! mutations of them. Invariant: everything here but the limit on time depends on the corpus alone.

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
