//! Tells whoever listens that something has changed, never what; who listens asks for it.
//!
//! Invariant: telling never waits. At most [`CLIENTS_MAX`] listen at a time, and one may be [`BEHIND_MAX`] changes behind;
//! then it loses the oldest ones and learns that it did. What the node does by itself follows requests alone, so no news of sites put it
//! behind. When the node stops, all listeners end at once.

use std::sync::Arc;

use broker::ids::{RequestId, SiteId};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};

/// Who may listen at a time.
pub const CLIENTS_MAX: usize = 32;
/// Changes that one who listens may be behind.
const BEHIND_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Change {
    /// A request of this node.
    Request {
        id: RequestId,
        /// As in the request's view.
        revision: u64,
    },
    /// What is known of a site: its schedule, or how far that can be believed; or the site came or went.
    Site { site: SiteId },
}

impl Change {
    /// What it is about, as the API names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::Request { .. } => "request",
            Change::Site { .. } => "site",
        }
    }
}

/// Tells changes to who listens; clones tell the same ones.
#[derive(Clone)]
pub struct Changes {
    sender: broadcast::Sender<Change>,
    requests: broadcast::Sender<RequestId>,
    places: Arc<Semaphore>,
    is_stopping: watch::Sender<bool>,
}

/// A place among those who listen, until it is dropped.
pub struct Listening {
    /// What is announced from now on.
    pub changes: broadcast::Receiver<Change>,
    _place: OwnedSemaphorePermit,
}

impl Default for Changes {
    fn default() -> Changes {
        let (sender, requests) = (broadcast::Sender::new(BEHIND_MAX), broadcast::Sender::new(BEHIND_MAX));
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        Changes { sender, requests, places, is_stopping: watch::Sender::new(false) }
    }
}

impl Changes {
    /// Tells a change, if anybody listens.
    pub fn tell(&self, change: Change) {
        // An error says that nobody listens.
        if let Change::Request { id, .. } = &change {
            let _ = self.requests.send(id.clone());
        }
        let _ = self.sender.send(change);
    }

    /// Lets everybody go who waits for something: the node stops.
    pub fn stop(&self) {
        self.is_stopping.send_replace(true);
    }

    /// Returns when the node stops.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_stopping = self.is_stopping.subscribe();
        async move {
            // An error says that the node is gone already.
            let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
        }
    }

    /// Whether anybody listens.
    pub fn has_listeners(&self) -> bool {
        self.places.available_permits() < CLIENTS_MAX
    }

    /// The requests that change, for what the node does by itself: takes no place, and does not count as somebody who listens.
    pub fn follow(&self) -> broadcast::Receiver<RequestId> {
        self.requests.subscribe()
    }

    /// Takes a place; none when all but `kept_free` are taken.
    pub fn listen(&self, kept_free: usize) -> Option<Listening> {
        if self.places.available_permits() <= kept_free {
            return None;
        }
        let place = self.places.clone().try_acquire_owned().ok()?;
        Some(Listening { changes: self.sender.subscribe(), _place: place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_who_is_behind_is_told() {
        let changes = Changes::default();
        let mut own = changes.follow();
        assert!(!changes.has_listeners());
        let mut listening: Vec<Listening> = (0..CLIENTS_MAX).map(|_| changes.listen(0).unwrap()).collect();
        assert!(changes.listen(0).is_none() && changes.has_listeners());
        for revision in 0..=BEHIND_MAX as u64 {
            changes.tell(Change::Request { id: RequestId::new("r").unwrap(), revision });
        }
        for _ in 0..2 * BEHIND_MAX {
            changes.tell(Change::Site { site: SiteId::new("s").unwrap() });
        }
        assert!(matches!(own.try_recv(), Err(broadcast::error::TryRecvError::Lagged(1))), "of sites it hears nothing");
        let lost = listening[0].changes.try_recv();
        assert!(
            matches!(lost, Err(broadcast::error::TryRecvError::Lagged(lost)) if lost > BEHIND_MAX as u64),
            "{lost:?}"
        );
        listening.pop();
        assert!(changes.listen(1).is_none() && changes.listen(0).is_some());
    }
}
