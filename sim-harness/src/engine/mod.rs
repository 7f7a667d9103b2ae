//! What the simulators of this program share: virtual time, a queue of events in it, and a driver of the product's state
//! machines, which says what a simulator's network, disks and clocks have to do.
//!
//! Invariant: nothing here reads a clock or draws a number; the same calls give the same order of events everywhere.

mod books;
mod disk;
mod machines;
mod medium;
mod moment;
mod queue;
mod work;

pub use self::{
    books::{BookFault, SiteLedger},
    disk::{Actor, Disk, Write},
    machines::{Machines, Receipts, Setup},
    medium::Medium,
    moment::{Moment, SECOND_US},
    queue::EventQueue,
};
