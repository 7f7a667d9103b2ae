//! Draws that do not depend on the order in which they are made.
//!
//! Invariant: the same names give the same generator.

use std::time::Duration;

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

/// The generator that belongs to these names, for instance a seed, a purpose and a pair of nodes.
pub fn chance<const N: usize>(names: [u64; N]) -> SplitMix64 {
    let state = names.into_iter().fold(0, |state, name| SplitMix64::seed_from_u64(state ^ name).next_u64());
    SplitMix64::seed_from_u64(state)
}

/// One number of it.
pub fn drawn<const N: usize>(names: [u64; N]) -> u64 {
    chance(names).next_u64()
}

/// Names an ordered pair of nodes.
pub fn pair(from: usize, to: usize) -> u64 {
    ((from as u64) << 32) | to as u64
}

/// The part of `length` that belongs to a drawn number.
pub fn within(length: Duration, drawn: u64) -> Duration {
    Duration::from_micros(drawn % (length.as_micros() as u64 + 1))
}
