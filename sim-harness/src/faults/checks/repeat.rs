//! A message that arrives again changes nothing: what stands of its attempt is afterwards what it was before.
//!
//! Invariant: looks only at messages that were granted the first time, in the same run of the site. One that was refused
//! may be granted when it comes again, and then lapses.

use broker::{
    ledger::BookingState,
    protocol::{AttemptId, Grant},
    time::Window,
};

use super::super::world::World;
use crate::engine::SiteLedger;

/// What stands of an attempt: window, grants and whether it is only held.
pub type Standing = Option<(Window, Vec<Grant>, bool)>;

/// What stands of an attempt.
pub fn standing(ledger: &SiteLedger, attempt: &AttemptId) -> Standing {
    let booking = ledger.bookings().find(|booking| booking.attempt == *attempt)?;
    Some((booking.window, booking.grants.clone(), matches!(booking.state, BookingState::Held { .. })))
}

impl World {
    /// A message has arrived again that was granted before.
    pub(in super::super) fn check_repeat(&mut self, node: usize, attempt: &AttemptId, before: &Standing) {
        let Some(running) = self.nodes[node].running() else { return };
        let after = standing(&running.machines.ledger, attempt);
        // Its hold may have lapsed at this moment.
        let has_lapsed = matches!((before, &after), (Some((_, _, true)), None));
        if *before != after && !has_lapsed {
            let what = format!("a repeated message about #{} changed {before:?} to {after:?}", attempt.attempt);
            self.violate("a message changes nothing twice", Some(&attempt.request), what);
        }
    }
}
