//! The pure core of Kolo: no async, no sockets, no clock, no ambient randomness, no environment.
//!
//! Time and randomness come in as arguments; the same inputs and the same seed give the same outputs, byte for byte.
//! The node (`kolo`) and the simulator (`kolo-sim`) run this code unchanged.
//!
//! Reading order: [`time`], [`amount`], [`resources`], [`host`], [`request`], [`schedule`], [`plan`], then [`phases`]
//! (the algorithm), [`ledger`] (a site's promises) [`negotiation`] (a request's life at its entry point) and [`availability`] (what could be had when).

pub mod amount;
pub mod availability;
pub mod canary;
pub mod document;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod host;
pub mod ids;
pub mod ledger;
pub mod negotiation;
pub mod offline;
pub mod phases;
pub mod plan;
pub mod protocol;
pub mod request;
pub mod resources;
pub mod schedule;
pub mod snapshot;
pub mod time;
pub mod trust;
pub mod view;
