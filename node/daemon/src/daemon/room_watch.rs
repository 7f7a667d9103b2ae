//! Whether the disk leaves the node the room that its promises need.
//!
//! Invariant: while the ledger or the small files of the node lack room laid out ahead, the site promises nothing new and says so; what it
//! has promised it still writes down, in the room that it has.

use std::{sync::Arc, time::Duration};

use kolo_storage::Store;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use crate::api::upkeep::Upkeep;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Looks again and again.
pub async fn watch(upkeep: Arc<Upkeep>, store: Store) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    loop {
        every.tick().await;
        store.look_for_room();
        let (upkeep, store) = (upkeep.clone(), store.clone());
        if let Err(error) = spawn_blocking(move || look(&upkeep, &store)).await {
            warn!(%error, "the room on the disk was not looked at");
        }
    }
}

/// Lays out what is missing, and puts what is found into force. Blocks for a write to the disk.
pub fn look(upkeep: &Upkeep, store: &Store) {
    let lacks_room = !(upkeep.data_dir.keep_spare() && store.has_room());
    match upkeep.set_lacks_room(lacks_room) {
        Ok(true) if lacks_room => error!(
            data_dir = %upkeep.data_dir.path().display(),
            "the disk is full: this site promises nothing new, and what it has promised stands; make room (kolo doctor)"
        ),
        Ok(true) => info!("the disk has room again: this site makes promises again"),
        Ok(false) => {}
        Err(error) => warn!(%error, "the grid is not told whether this site makes promises"),
    }
}
