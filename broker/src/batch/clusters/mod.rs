//! Gangs over clusters with limited uplinks, on schedules: the pure problem behind `oas`, `mesd`, `pas`, `cbs` and `jpr`.
//!
//! Source: the thesis on parallel jobs over several clusters, chapters 2 and 3. Hosts that are alike form a group, a host runs one seat
//! at a time, and a gang is placed by how many hosts of each group it takes (its mode). Invariant: at no time do the placed gangs need
//! more hosts of a group, or more of an uplink, than are free.

mod blend;
mod bounds;
mod exact;
mod local;
mod memo;
mod mesd;
mod modes;
#[cfg(all(test, feature = "oracles"))]
mod oracle;
mod package;
mod problem;
mod reduced;
mod room;
mod search;
#[cfg(test)]
mod tests;

pub(super) use self::{
    mesd::mesd,
    package::{Taste, packages},
    reduced::Reduced,
    search::{Work, shortest},
};
