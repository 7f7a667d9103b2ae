//! What the programs of the harness share, `kolo-sim` for the product and `kolo-study` for the documents' experiments: virtual time,
//! generated workloads, statistics, reports, progress, and how a command ends.
//!
//! Invariant: nothing here knows a node, a network or a policy.

pub mod duration;
pub mod error;
pub mod generate;
pub mod print;
pub mod program;
pub mod progress;
pub mod report;
pub mod stats;
pub mod usage;
pub mod virtual_time;
