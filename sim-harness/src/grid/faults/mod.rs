//! What happens to a grid under load: nodes that end and come back, new sites, cuts, and hostile peers.

pub mod attack;
pub mod attacker;
pub mod churn;
pub mod partition;
