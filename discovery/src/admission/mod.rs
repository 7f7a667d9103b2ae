//! Whom this node talks to, and how much: who is let in, limits on connections, budgets by peer, points and bans for bad behaviour.

mod conduct;
mod gate;
mod gated;
mod prefix;
mod proof;
mod rate;

pub(crate) use self::{
    conduct::{Ban, BanTerms, Conduct, Offence},
    gate::ConnectionGate,
    gated::Gated,
    prefix::{network_of, network_on_way},
    proof::{Proof, ProofEvent},
};
pub use self::{
    prefix::prefix_of,
    rate::{Buckets, Rate, TokenBucket},
};
