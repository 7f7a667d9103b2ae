//! Running a user's command on a seat: what is to be run, the stream between the user and the keeper of the seat, and the keepers.
//!
//! One stream of [`frame`]s leads from the command line to the [`keeper`]; nodes on the way carry its bytes and read none. What is run is a
//! [`RunOrder`], signed by the user of the reservation. A node starts [`Keepers`] and finds them again; it is needed by none of them.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

pub mod as_user;
mod bubblewrap;
pub mod carry;
pub mod cgroup;
mod closing;
pub mod confine;
pub mod confine_error;
pub mod directory;
mod disk;
pub mod files;
pub mod frame;
pub mod freeing;
pub mod home;
pub mod keeper;
pub mod keepers;
mod last;
pub mod opening;
pub mod order;
pub mod peers;
pub mod places;
pub mod podman;
mod processes;
mod removal;
mod seat_uid;
mod shared;
mod spool;
pub mod ssh;
pub mod testing;
pub mod uids;
mod unit;
pub mod used;

pub use self::{
    confine::{Confinement, Runner},
    directory::{RunState, Task},
    keepers::{Keepers, KeptRun, RunError, RunId},
    order::{RunNumber, RunOrder},
};
