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
        answers: "answer",
        asks: "ask",
        envelopes: "envelope",
        written_names: "names",
    }

    #[test]
    #[ignore = "writes the seeds into tests/corpus; run by scripts/fuzz seeds"]
    fn write_seeds() {
        for target in TARGETS {
            fuzz_support::write_seeds(target, corpus()).expect("a corpus that can be written");
        }
    }
}
