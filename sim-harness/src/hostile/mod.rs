//! A peer that breaks every rule it can, for tests and for measuring what it costs honest nodes.
//!
//! It speaks the grid's protocols over real libp2p, but checks nothing of what it sends. When its targets have banned it,
//! it comes back under a fresh identity. Invariant: what it keeps is bounded (requests under way, connections held), so
//! that a measurement shows the memory of the victims, not of the attacker.

mod connections;
mod persona;
mod plan;
mod raw;
#[cfg(test)]
mod tests;
mod transport;
mod words;

use std::convert::Infallible;

pub use self::plan::{Attack, AttackPlan, Deeds, Tally};

/// Attacks at full speed until dropped. It must run on a tokio runtime with timers and network, best in a process of its
/// own.
///
/// # Errors
/// When no identity or no protocols can be had; victims that cannot be reached are dialled again for ever.
pub async fn run(plan: &AttackPlan, tally: &Tally) -> anyhow::Result<Infallible> {
    let connections = async {
        if plan.has(Attack::Connections) { connections::flood(plan, tally).await } else { std::future::pending().await }
    };
    let persona = async |plan: Option<AttackPlan>| match plan {
        Some(plan) => Box::pin(persona::one_after_the_other(&plan, tally)).await,
        None => std::future::pending().await,
    };
    let others = plan.only(|attack| !Attack::PATIENT.contains(&attack) && attack != Attack::Connections);
    let [hoard, block] = Attack::PATIENT.map(|patient| plan.only(|attack| attack == patient));
    // Nodes take few connections of an address that floods them.
    let [others, hoard, block] = [(others, 1), (hoard, 2), (block, 3)].map(|(plan, number)| Some(plan?.beside(number)));
    tokio::select! {
        outcome = persona(others) => outcome,
        outcome = persona(hoard) => outcome,
        outcome = persona(block) => outcome,
        outcome = connections => outcome,
    }
}
