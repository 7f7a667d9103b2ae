//! The receipts of sites; see [`crate::receipt`].
//!
//! Invariant: what a site confirms, or hands to a new coordinator, counts only with its receipt for just that. So a reservation is not
//! reported before the record on disk has a receipt for every seat.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Negotiation, RequestRecord, State, releases::BookingKey};
use crate::{
    ids::SiteId,
    plan::{Place, Plan, Seat},
    protocol::{Grant, SiteAnswer},
    receipt::{KeyOfSite, Receipt},
    trust::SignedText,
};

/// The receipt of a site, as the coordinator keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptReceipt {
    /// The number of the attempt at this coordinator.
    pub attempt: u32,
    /// The site.
    pub site: SiteId,
    /// The site's signed [`Receipt`].
    pub receipt: Arc<SignedText>,
}

/// What receipts are checked against, beside the request.
#[derive(Debug, Clone)]
pub(super) struct ReceiptCheck {
    grid: String,
    key_of: KeyOfSite,
}

impl Negotiation {
    /// From now on takes nothing for confirmed without the receipt of its site, in this grid, signed with the key that belongs to the
    /// site's name.
    pub fn check_receipts(&mut self, grid: String, key_of: KeyOfSite) {
        self.receipts = Some(ReceiptCheck { grid, key_of });
    }

    /// Keeps the receipt that comes with an answer. An answer without it, or with another than it should have, is none.
    pub(super) fn with_receipt(
        &mut self,
        site: &SiteId,
        attempt: u32,
        answer: Result<SiteAnswer, String>,
    ) -> Result<SiteAnswer, String> {
        let Some(check) = &self.receipts else { return answer };
        let reservation = self.record.reservation.as_ref();
        let grants = |plan: &Plan, wanted: &dyn Fn(&Seat) -> bool| -> Vec<Grant> {
            // A receipt names what was promised, wherever and whenever it is now.
            let wait = reservation.map(|reservation| reservation.wait_of(attempt)).unwrap_or_default();
            let promised = |seat: &Seat| {
                let grant = Grant::from(seat);
                let (place, window) = (Place::Host(grant.place.promised().clone()), grant.window.earlier(wait));
                Grant { place, window, ..grant }
            };
            plan.seats.iter().filter(|seat| seat.site == *site && wanted(seat)).map(promised).collect()
        };
        let (receipt, expected, is_whole) = match (&self.state, &answer, reservation) {
            (State::Confirming { plan, .. }, Ok(SiteAnswer::Confirmed { receipt, .. }), _) => {
                (receipt, grants(plan, &|_| true), true)
            }
            (State::Reserved { .. }, Ok(SiteAnswer::Booked { seats, receipt, .. }), Some(reservation))
                if !seats.is_empty() && self.record.taken_over.contains_key(&attempt) =>
            {
                // What the site had lost before, this node has never heard of.
                let numbers = reservation.numbers_at(attempt, site);
                let is_kept = |seat: &Seat| numbers.contains(&seat.number) && seats.contains(&seat.number);
                (receipt, grants(&reservation.plan, &is_kept), false)
            }
            _ => return answer,
        };
        let receipt = receipt.clone().ok_or_else(|| "it gives no receipt".to_owned())?;
        let said = Receipt::open(&receipt, check.key_of).map_err(|error| error.to_string())?;
        let named = said.grants();
        let user = self.record.authorization.as_ref().map(|of| of.request.author);
        let name = self.attempt_id(attempt);
        let of_user = user.map(|user| Receipt::of((&check.grid, site), &name, user, &named, said.confirmed));
        let has_all = if is_whole { expected == named } else { expected.iter().all(|one| named.contains(one)) };
        if of_user != Some(said) || !has_all {
            return Err("its receipt is for something else than it was asked for".to_owned());
        }
        self.record.keep_receipt(KeptReceipt { attempt, site: site.clone(), receipt });
        answer
    }
}

impl RequestRecord {
    fn keep_receipt(&mut self, kept: KeptReceipt) {
        self.receipts.retain(|one| (one.attempt, &one.site) != (kept.attempt, &kept.site));
        self.receipts.push(kept);
    }

    /// Drops the receipt of a booking that was given back and has cost nothing.
    pub(super) fn drop_receipt(&mut self, (attempt, site): &BookingKey) {
        self.receipts.retain(|one| (one.attempt, &one.site) != (*attempt, site));
    }

    /// Drops the receipts of an attempt that was not completed.
    pub(super) fn drop_receipts(&mut self, attempt: u32) {
        self.receipts.retain(|one| one.attempt != attempt);
    }
}
