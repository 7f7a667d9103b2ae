//! The entry side: the requests that this node coordinates, from their arrival to the end of their reservations.
//!
//! Invariant: the ledger of this node's own site is asked as that of any other site is.

mod arrivals;
pub mod bookings;
pub mod driver;
pub mod extensions;
mod lacks;
pub mod losses;
pub mod planning;
pub mod request;
pub mod requests;
pub mod takeover;
pub mod together;
pub mod waiting;
