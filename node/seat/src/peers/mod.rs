//! Seats of one run that reach each other, with no port open at any site.
//!
//! The user's order names all seats of the run and the ports that they may reach ([`order`]). At each site the node listens on loopback
//! addresses that stand for the other seats, and carries each connection over a stream of the grid to the site of the seat that it is for,
//! and there to that seat's own address ([`forward`]).

pub mod forward;
mod local;
pub mod order;
