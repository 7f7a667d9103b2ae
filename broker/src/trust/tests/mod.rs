//! Signatures, chains, successors of roots, revocations and the gate, by example and against slow, obvious oracles.

mod chains;
mod gate;
mod revocations;
mod statements;
mod successors;
