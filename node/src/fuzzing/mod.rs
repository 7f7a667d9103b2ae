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
    texts::IMPORTS,
    texts::TIMES,
    trust::GRID_FILES,
    trust::SHOWN,
    trust::TOKEN,
];

#[cfg(test)]
mod tests {
    use super::*;

    fuzz_support::replay_tests! {
        bodies_and_queries: "api",
        configurations: "config",
        request_files: "request-file",
        entries: "entries",
        journals: "journal",
        imports: "imports",
        times: "times",
        grid_files: "grid-files",
        memberships: "shown",
        tokens: "token",
    }
}
