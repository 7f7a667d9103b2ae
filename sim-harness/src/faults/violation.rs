//! An invariant that did not hold.
//!
//! Invariant: a run ends with its first violation.

use broker::ids::RequestId;

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which, in short.
    pub invariant: &'static str,
    /// The request concerned, if it is about one.
    pub request: Option<RequestId>,
    /// What was seen.
    pub what: String,
}
