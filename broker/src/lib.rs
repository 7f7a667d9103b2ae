//! The pure core of Kolo: no async, no sockets, no clock, no ambient randomness, no environment.
//!
//! Time and randomness come in as arguments; the same inputs and the same seed give the same outputs, byte for byte.
//! The node (`kolo`) and the simulator (`kolo-sim`) run this code unchanged.
//!
//! Reading order: [`model`] (the words), [`schedule`] (occupancy over time), then [`phases`] (the algorithm),
//! [`ledger`] (a site's promises) and [`negotiation`] (a request's life at its entry point).

pub mod batch;
pub mod binding;
pub mod document;
pub mod features;
pub mod ledger;
pub mod model;
pub mod negotiation;
mod objective;
pub mod offline;
pub mod phases;
pub mod protocol;
pub mod quality;
pub mod receipt;
pub mod schedule;
pub mod snapshot;
pub mod strategy;
pub mod trust;
pub mod uplinks;
pub mod view;

pub use model::{
    amount, classes, cost, demand, host, ids, needs, offered, plan, reason, request, resources, scale, shapes, tariff,
    time, traffic, variant, wall_clock,
};
pub use phases::availability;
