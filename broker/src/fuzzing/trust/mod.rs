//! What people and nodes show of themselves: signed statements, chains of credentials, revocations, and the gate that
//! goes by them.
//!
//! Keys follow from small numbers ([`testing::key`]), so that the targets can sign whatever they like; 0 is the root's.

mod chain;
mod gate;
mod statement;

pub use self::{chain::CHAIN, gate::GATE, statement::STATEMENT};
