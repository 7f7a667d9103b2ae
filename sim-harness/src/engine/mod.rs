//! What the simulators of this program share: virtual time with a queue of events, and a driver of the product's state
//! machines, which says what a simulator's network, disks and clocks have to do.
//!
//! Invariant: nothing here reads a clock or draws a number; the same calls give the same order of events everywhere.

mod books;
mod disk;
mod machines;
mod medium;
mod work;

pub use sim_kit::virtual_time::{EventQueue, Moment, SECOND_US};

pub use self::{
    books::{BookFault, SiteLedger},
    disk::{Actor, Disk, Write},
    machines::{Machines, Receipts, Setup},
    medium::Medium,
};
