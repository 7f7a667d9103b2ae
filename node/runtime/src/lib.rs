//! What all parts of a running node share: clocks, figures, news of changes, and the limits of the process.
//!
//! Invariant: nothing here knows of sites, requests or the API.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

pub mod audit;
pub mod audit_chain;
pub mod bounded_log;
pub mod changes;
pub mod clock;
pub mod divided;
pub mod https;
pub mod listeners;
pub mod lock;
pub mod metrics;
pub mod open_files;
pub mod own_socket;
pub mod process_group;
pub mod rare;
pub mod span;
pub mod syslog;
