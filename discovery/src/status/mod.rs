//! What a node finds out about its own clock and address, for people; nothing is decided by it.

mod apart;
mod offsets;
mod seen_as;

pub use self::offsets::ClockOffset;
pub(crate) use self::{apart::Apart, offsets::Offsets, seen_as::SeenAs};
