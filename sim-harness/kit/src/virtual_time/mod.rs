//! Virtual time, and a queue of events in it.
//!
//! Invariant: nothing here reads a clock; the same calls give the same order of events everywhere.

mod moment;
mod queue;

pub use self::{
    moment::{Moment, SECOND_US},
    queue::EventQueue,
};
