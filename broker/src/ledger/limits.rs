//! What a site is willing to promise at most. Every value is a bound on memory or on what a stranger can block.

use crate::time::{Millis, Span};

/// Limits of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLimits {
    /// Most holds at a time. At the bound further ones are refused.
    pub max_holds: usize,
    /// Most holds of one entry point at a time, so that one peer cannot take all of `max_holds`.
    pub max_holds_per_entry_point: usize,
    /// Longest hold, whatever is asked for.
    pub hold_max: Millis,
    /// No promise ends later than this from now.
    pub farthest_future: Span,
    /// A window may start this long before the site's present: messages take time, and clocks differ.
    pub start_tolerance: Span,
    /// How long after a confirm the outcome is waited for before others are asked, and between two rounds of asking.
    pub outcome_wait: Millis,
    /// How long an attempt that is over is remembered. Must exceed any delay of a message and `hold_max`.
    pub tombstone_life: Millis,
    /// Most attempts remembered as over.
    pub max_tombstones: usize,
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
        }
    }
}
