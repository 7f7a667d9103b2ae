//! Holds that were never confirmed: who makes many of them holds for a shorter time, then not at all, until they are forgiven.
//!
//! An attempt that fails releases its holds within seconds, and a coordinator that crashes now and then loses a few; both cost nothing.
//! Invariant: at most [`PARTIES_MAX`] parties are remembered, none of them with less than one lapse, nor with more than [`LAPSES_MAX`].

use super::{Booking, BookingState, expiring::Expiring, shares::Party};
use crate::{
    ids::{Network, SiteId},
    time::Millis,
    trust::{Denial, Rule},
};

/// A hold that was released later than this was as much in the way as one that lapsed.
const RELEASED_LATE: Millis = Millis(5_000);
/// The longest lease is halved with every so many lapses.
const HALVED_EVERY: u64 = 8;
/// With so many lapses a node holds nothing more.
const REFUSED_FROM: u64 = 4 * HALVED_EVERY;
/// More lapses than this are not counted: whoever has stopped is not refused for longer than a few minutes.
const LAPSES_MAX: u64 = REFUSED_FROM + 4;
/// What is halved for a party with lapses.
const LEASE_MAX: Millis = Millis(60_000);
/// Most parties remembered. At the bound the one that would be forgiven first makes room.
const PARTIES_MAX: usize = 4_096;

/// A crash, or a cut of the network, loses all holds of a node at once: of what lapses within this time no more is counted than
/// halves the lease once.
const BURST: Millis = Millis(1_000);

/// The lapses of each party.
#[derive(Debug)]
pub(super) struct Lapses {
    /// In this time one lapse is forgiven.
    forgiven_in: Millis,
    /// Until all lapses of a party are forgiven; with when the last burst began, and how many were counted in it.
    parties: Expiring<Party, Millis, (Millis, u64)>,
}

impl Lapses {
    /// Nobody has let a hold lapse yet.
    pub(super) fn new(forgiven_in: Millis) -> Lapses {
        Lapses { forgiven_in: Millis(forgiven_in.0.max(1)), parties: Expiring::new(PARTIES_MAX) }
    }

    /// Counts the booking that is given back if it is a hold that was in the way of others for nothing.
    pub(super) fn note_end(&mut self, now: Millis, booking: &Booking) {
        let BookingState::Held { since, deadline } = booking.state else { return };
        if now < deadline.min(since + RELEASED_LATE) {
            return;
        }
        for party in Party::nodes(&booking.attempt.entry_point, booking.network.as_ref()) {
            let (began, counted) = self.parties.get(&party).copied().unwrap_or((now, 0));
            let (began, counted) = if now - began < BURST { (began, counted) } else { (now, 0) };
            if counted < HALVED_EVERY {
                let forgiven = self.parties.until(&party).unwrap_or(now).max(now) + self.forgiven_in;
                let most = now + Millis(LAPSES_MAX * self.forgiven_in.0);
                self.parties.insert(party, forgiven.min(most), (began, counted + 1));
            }
        }
    }

    /// The longest lease that a node in `network` may have.
    ///
    /// # Errors
    /// The refusal of a node that may hold nothing for now.
    pub(super) fn lease(&self, now: Millis, node: &SiteId, network: Option<&Network>) -> Result<Millis, Denial> {
        let mut longest = Millis(u64::MAX);
        for party in Party::nodes(node, network) {
            let Some(forgiven) = self.parties.until(&party).filter(|forgiven| *forgiven > now) else { continue };
            let lapses = (forgiven - now).0.div_ceil(self.forgiven_in.0);
            // One node of a network must not keep all the others out.
            let is_node = matches!(party, Party::Node(_));
            if is_node && lapses >= REFUSED_FROM {
                let wait_s = (lapses - REFUSED_FROM + 1) * self.forgiven_in.0 / 1000;
                let detail = format!("{lapses} holds of {party} were never confirmed; try again in {wait_s} s");
                return Err(Denial::new(Rule::LapsedHolds, detail));
            }
            let halvings = lapses.min(REFUSED_FROM - 1) / HALVED_EVERY;
            if halvings > 0 {
                longest = longest.min(Millis(LEASE_MAX.0 >> halvings));
            }
        }
        Ok(longest)
    }

    /// Forgets who has been forgiven.
    pub(super) fn forget(&mut self, now: Millis) {
        while self.parties.pop_due(now).is_some() {}
    }
}
