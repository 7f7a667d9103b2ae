//! How long an entry point waits, how many attempts it makes, and how it spaces its attempts. Every loop ends by one of these.

use crate::{phases::Settings, time::Millis};

/// Settings of a negotiation.
#[derive(Debug, Clone, PartialEq)]
pub struct NegotiationSettings {
    /// The planner's settings.
    pub planner: Settings,
    /// How long sites are asked to hold. Must leave room for the answers, the decision on disk and the confirms.
    pub hold_for: Millis,
    /// How long an answer to a hold or a confirm is waited for.
    pub answer_timeout: Millis,
    /// How long the request may take before it is given up, unless it has been decided by then.
    pub patience: Millis,
    /// Most attempts.
    pub max_attempts: u32,
    /// Shortest wait after a conflict: as long as an attempt of another request takes on a local network. The longest is twice as long, and
    /// doubles with every further conflict.
    pub backoff_min: Millis,
    /// Longest wait between attempts.
    pub backoff_max: Millis,
    /// How often a site that does not answer is asked again to release a booking.
    pub max_releases: u32,
    /// Shortest wait between two rounds of asking the sites whether a reservation is still there.
    pub check_min: Millis,
    /// Longest wait between two such rounds.
    pub check_max: Millis,
    /// After so long without an answer to such questions a site's hosts count as lost.
    pub lost_after: Millis,
}

impl Default for NegotiationSettings {
    fn default() -> Self {
        NegotiationSettings {
            planner: Settings::default(),
            hold_for: Millis(10_000),
            answer_timeout: Millis(2_000),
            patience: Millis(60_000),
            max_attempts: 32,
            backoff_min: Millis(50),
            backoff_max: Millis(1_000),
            max_releases: 60,
            check_min: Millis(60_000),
            check_max: Millis(3_600_000),
            lost_after: Millis(300_000),
        }
    }
}
