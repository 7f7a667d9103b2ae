//! The task that owns the swarm, and the protocols of the swarm.

mod behaviour;
mod peers;
mod publisher;
mod task;

pub use self::behaviour::{PING_EVERY, SetUpError};
pub(crate) use self::{
    behaviour::{Behaviour, DHT_PARALLEL, build_swarm, gossip_config},
    task::SwarmTask,
};
