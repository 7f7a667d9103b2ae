//! Limits of a ledger. Each bounds memory, or the capacity that a stranger can block.

use crate::time::{Millis, Span};

/// Limits of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLimits {
    /// Most holds at a time. At the bound further ones are refused.
    pub max_holds: usize,
    /// Most holds of one entry point at a time, so that one peer cannot take all of `max_holds`.
    pub max_holds_per_entry_point: usize,
    /// Longest hold; a longer one that is asked for is shortened.
    pub hold_max: Millis,
    /// No promise ends later than this from now.
    pub farthest_future: Span,
    /// A window may start this long before the site's present: messages take time, and clocks differ.
    pub start_tolerance: Span,
    /// How long the site waits for an outcome after a confirm before it asks other nodes, and between two rounds of questions.
    pub outcome_wait: Millis,
    /// How long an attempt that has ended is remembered. Must exceed any delay of a message and `hold_max`.
    pub tombstone_life: Millis,
    /// Most ended attempts remembered.
    pub max_tombstones: usize,
    /// How long before its start a floating seat is bound to its host.
    pub bound_before: Span,
    /// In this time one lapse of a node or a network is forgiven.
    pub lapse_forgiven_in: Millis,
}

impl Default for LedgerLimits {
    fn default() -> Self {
        LedgerLimits {
            max_holds: 10_000,
            max_holds_per_entry_point: 1_000,
            hold_max: Millis(60_000),
            farthest_future: Span(366 * 86_400),
            start_tolerance: Span(60),
            outcome_wait: Millis(15_000),
            tombstone_life: Millis(180_000),
            max_tombstones: 100_000,
            bound_before: Span(0),
            lapse_forgiven_in: Millis(60_000),
        }
    }
}
