//! Whom this node talks to, and how much: limits on connections, budgets by peer, points and bans for bad behaviour.

mod conduct;
mod gate;
mod prefix;
mod rate;

pub use self::prefix::prefix_of;
pub(crate) use self::{
    conduct::{Ban, BanTerms, Conduct, Offence},
    gate::ConnectionGate,
    rate::{Buckets, Rate, TokenBucket},
};
