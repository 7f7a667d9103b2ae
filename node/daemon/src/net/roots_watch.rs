//! Roots of the grid that the gate has learnt from credentials which others show: they go to the disk, and to other sites.
//!
//! The gate is asked where nothing may wait for a disk. Invariant: what it has learnt is written down within [`LOOK_EVERY`] and the time of
//! a write, or, where the disk refuses it, at the first look at which it does not; a node that ends before learns it again from the next
//! credential under that root.

use std::{sync::Arc, time::Duration};

use discovery::Discovery;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::warn;

use super::membership::Membership;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps and tells what is learnt until it is aborted.
pub async fn run(membership: Arc<Membership>, discovery: Discovery) {
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let own = Arc::clone(&membership);
        match spawn_blocking(move || own.keep_roots()).await {
            Ok(true) => discovery.membership_changed(),
            Ok(false) => {}
            Err(error) => warn!(%error, "roots of the grid were not written down"),
        }
    }
}
