//! What is on disk of a batch that is reserved as a whole or not at all.
//!
//! Invariant: it is written with its requests, in one write, and forgotten when all of them are reserved, or all have ended; what is
//! reserved of them is theirs from then on.

use broker::ids::RequestId;
use serde::{Deserialize, Serialize};

/// Which requests are tied together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TiedRecord {
    /// Its name: that of the first request.
    pub id: RequestId,
    /// All of them.
    pub requests: Vec<RequestId>,
}
