//! Fuzz targets of everything that other nodes can send.
//!
//! Invariant: a target panics exactly when this crate has a fault; what is merely wrong is refused, and the target
//! returns. What is accepted keeps the bounds that the rest of the crate relies on.

mod direct;
mod envelope;
mod names;

pub use fuzz_support::Target;

/// All targets of this crate.
pub const TARGETS: &[Target] = &[direct::ANSWER, direct::ASK, envelope::ENVELOPE, names::NAMES];

#[cfg(test)]
mod tests {
    use super::*;

    fuzz_support::replay_tests! {
        answers: "answer",
        asks: "ask",
        envelopes: "envelope",
        written_names: "names",
    }
}
