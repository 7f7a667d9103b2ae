//! What must hold in the end: acknowledged reservations, ledgers, nodes that still work.

pub mod aftermath;
pub mod invariants;
mod links;
