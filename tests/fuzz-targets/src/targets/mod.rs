//! The targets, each against the public interface of a crate.
//!
//! Sequences of operations on schedules, views, plans, ledgers and negotiations have their models in property tests beside
//! the code and in the simulator. Invariant: a target panics exactly when the code has a fault; input that is merely wrong
//! is refused, and the target returns. A target depends on its bytes only, and reads nothing but what it has written.

mod api;
mod chain;
mod config;
mod direct;
mod directory;
mod documents;
mod envelope;
mod fixed;
mod gate;
mod golden;
mod journal;
mod names;
mod run;
mod statement;
mod texts;
mod trust;

use crate::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    // The core's: texts and documents of people, and everything that is signed.
    documents::AMOUNT,
    chain::CHAIN,
    gate::GATE,
    documents::REQUEST,
    documents::SNAPSHOT,
    statement::STATEMENT,
    // What other nodes send.
    direct::ANSWER,
    direct::ASK,
    envelope::ENVELOPE,
    names::NAMES,
    run::RUN,
    // What people, programs and disks give a node.
    api::API,
    trust::CALL,
    config::CONFIG,
    journal::ENTRIES,
    trust::GRID_FILES,
    texts::IMPORTS,
    journal::JOURNAL,
    config::REQUEST_FILE,
    trust::SHOWN,
    texts::TIMES,
    trust::TOKEN,
];
