//! Late binding: a site promises "one of my hosts that will do" and names the host when the seat begins.
//!
//! The [`Witness`] is what makes the promise safe: it holds an assignment of all promised seats, and a new seat is promised only if the
//! assignment can be mended to hold it too. Seats are intervals that share a host one after another, so this is no matching but the list
//! colouring of an interval graph: easy for one class of like hosts, NP-complete with several (Biro, Hujter, Tuza 1992).
//!
//! Three thoughts carry the room:
//!
//! 1. **The witness assigns seats to classes, not to hosts.** Seats that have begun stand at the left edge of time and floating ones lie to
//!    the right, so any assignment that never puts more seats on a class than it has hosts can be coloured from left to right. One class is
//!    exact by count, and a seat that begins may take *any* host of its class that is free: the one that disturbs its owner least.
//! 2. **A block is what takes a host**: a seat that wants it whole, or seats on parts of one host whose windows hang together. Whatever
//!    counts hosts counts blocks.
//! 3. **A no has a proof.** The witness matches seats with classes at every second; a new seat finds an augmenting path at a second, or the
//!    search for one leaves seats that need more hosts than there are ([`Certificate`]).
//!
//! Source: "Dynamic grid resource reservation mechanism based on resource-reservation graph" (2011), whose own test of admission is
//! [`Degrees`]. Invariants: no class ever has more blocks than hosts; what is bound never moves; a seat that was promised is given up only
//! when hosts go.

mod admit;
mod answer;
mod bind;
mod class;
mod degree;
mod lose;
mod parts;
mod seat;
#[cfg(test)]
mod tests;
mod witness;

pub use self::{
    answer::{Answer, BindingError, Certificate},
    bind::{Bound, OwnWork},
    degree::Degrees,
    lose::Loss,
    seat::{Need, Seat, SeatKey},
    witness::Witness,
};
