//! The words of Kolo as types: time, amounts, resources, names, hosts, requests and plans.
//!
//! Invariant: nothing here imports another folder of the crate, so every other one may rely on it. Each file is also
//! reached from the crate's root (`broker::time` and so on).

pub mod amount;
pub mod classes;
pub mod cost;
pub mod demand;
pub mod host;
pub mod ids;
pub mod needs;
pub mod offered;
pub mod plan;
pub mod reason;
pub mod request;
mod request_document;
mod request_error;
pub mod resources;
pub mod scale;
pub mod shapes;
pub mod tariff;
pub mod time;
pub mod traffic;
pub mod variant;
pub mod wall_clock;
