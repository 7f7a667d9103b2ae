//! Seats of one run that reach each other, with no port open at any site.
//!
//! The user's order names all seats of the run and the ports that they may reach ([`order`]). At each site the node listens on loopback
//! addresses that stand for the other seats, and carries each connection over a stream of the grid to the site of the seat that it is for,
//! and there to that seat's own address ([`forward`]). At both ends only what the run itself has opened is carried ([`command`]).

mod command;
pub mod forward;
mod local;
pub mod order;
mod sock_diag;

pub use self::local::has_cgroups_of_sockets;
