//! A command on the seats of a reservation: its streams, its output and its one exit code.
//!
//! Each seat has a [`seat`] that talks with its keeper and comes back after a cut; [`job`] is all of them: the barrier, signals, and the
//! end. Invariant: an end that was not told is "unknown", never success.

pub mod connection;
pub mod dealt;
pub mod each;
pub mod files;
pub mod input;
pub mod job;
mod marks;
pub mod printer;
pub mod seat;
pub mod terminal;
