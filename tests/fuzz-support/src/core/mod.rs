//! Fuzz targets of what the core reads from outside: texts of people, documents, and everything that is signed.
//!
//! Sequences of operations on schedules, views, plans, ledgers and negotiations have their models in property tests beside
//! the code and in the simulator. Invariant: a target panics exactly when the core has a fault; input that is merely wrong
//! is refused, and the target returns. A target depends on its bytes only.

mod chain;
mod documents;
mod gate;
mod signed;
mod statement;

use crate::Target;

/// All targets of the core.
pub const TARGETS: &[Target] =
    &[documents::AMOUNT, documents::REQUEST, documents::SNAPSHOT, chain::CHAIN, gate::GATE, statement::STATEMENT];
