//! Requests that this node is about to coordinate.
//!
//! Invariant: a request is in here once at most, and from before anybody is asked about it until it is on disk and among
//! the requests that it coordinates, or will not be.

use std::{collections::BTreeSet, sync::Mutex};

use broker::ids::RequestId;
use kolo_runtime::lock::locked;

/// See the module's documentation; at most as many as there are calls of the local API.
#[derive(Debug, Default)]
pub struct Arrivals(Mutex<BTreeSet<RequestId>>);

impl Arrivals {
    /// Keeps a second request of the same name out until what is returned is dropped; none when there is one already.
    pub fn announce(&self, id: &RequestId) -> Option<Arrival<'_>> {
        locked(&self.0).insert(id.clone()).then(|| Arrival { arrivals: self, id: id.clone() })
    }

    /// Whether a request of this name is about to be coordinated.
    pub fn contains(&self, id: &RequestId) -> bool {
        locked(&self.0).contains(id)
    }
}

/// That a request is about to be coordinated.
#[derive(Debug)]
pub struct Arrival<'a> {
    arrivals: &'a Arrivals,
    id: RequestId,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        locked(&self.arrivals.0).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_once_at_a_time() {
        let (arrivals, id) = (Arrivals::default(), RequestId::new("r").unwrap());
        let first = arrivals.announce(&id).unwrap();
        assert!(arrivals.announce(&id).is_none() && arrivals.contains(&id));
        drop(first);
        assert!(!arrivals.contains(&id));
        assert!(arrivals.announce(&id).is_some());
    }
}
