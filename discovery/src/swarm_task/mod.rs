//! The task that owns the swarm, and the protocols of the swarm.

mod behaviour;
mod members;
mod peers;
mod publisher;
mod task;

pub use self::behaviour::{DHT_PARALLEL, PING_EVERY, SetUpError, gossip_config};
#[cfg(test)]
pub(crate) use self::{behaviour::BehaviourEvent, task::Purpose};
pub(crate) use self::{
    behaviour::{Behaviour, build_swarm},
    task::{StreamsAsked, SwarmTask},
};
