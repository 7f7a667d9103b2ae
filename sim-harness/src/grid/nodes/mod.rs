//! The nodes: their processes, their APIs, the networks between them, and waiting until they know each other.

pub mod client;
pub mod cluster;
pub mod knowledge;
pub mod launch;
pub mod machine;
pub mod network;
pub mod place;
pub mod process;
pub mod wait;
pub mod wan;
pub mod wire;
