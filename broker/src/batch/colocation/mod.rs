//! Co-location: jobs that complement each other share hosts, at factors at which they fill them.
//!
//! Source: chapter 4 of the thesis on co-location. The policies behind it are in `policies/colocation.rs`.

mod best;
mod forms;
mod matching;
#[cfg(test)]
mod matching_tests;
mod pairing;
mod places;
mod problem;
mod room;
#[cfg(test)]
mod tests;

pub use self::pairing::Thresholds;
pub(super) use self::{
    best::search,
    forms::{Turns, matched, partition, plain, set},
    pairing::{Roles, pairings_tried},
    problem::{Block, Job, Placed, Placement, Problem, RESOURCES_MAX, Worth},
};
