//! The receipts of bookings; see [`crate::receipt`].
//!
//! Invariant: a receipt says what was written to disk. It leaves after the write, as every answer does.

use std::sync::Arc;

use ed25519_dalek::SigningKey;

use super::{Booking, Books, Ledger};
use crate::{
    protocol::{AttemptId, Grant},
    receipt::Receipt,
    time::Time,
    trust::{PublicKey, SignedText},
};

/// A receipt for so many seats is never too long, however unlike they are.
pub(super) const SEATS_THAT_FIT: usize = 32;

impl<B: Books> Ledger<B> {
    /// Signs receipts with the key of the site's node from now on. Without one no coordinator that checks them books here.
    pub fn sign_receipts(&mut self, key: Arc<SigningKey>) {
        self.key = Some(key);
    }

    /// Whether a receipt for these seats can be signed: a site that could give none would seem silent when it has confirmed.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_receipt(&self, attempt: &AttemptId, user: PublicKey, grants: &[Grant]) -> Result<(), String> {
        if self.key.is_none() || grants.len() <= SEATS_THAT_FIT {
            return Ok(());
        }
        let grid = self.gate.lock().trust().grid().to_owned();
        let receipt = Receipt::of((&grid, &self.site), attempt, user, grants, Time::MAX);
        SignedText::text_of(&receipt).map(drop).map_err(|_| {
            let seats = grants.len();
            format!("a receipt for {seats} seats that are so unlike is too long: ask for fewer at one site, or for equal ones")
        })
    }

    /// The receipt for a user's booking that is confirmed, as it was then.
    #[must_use]
    pub fn receipt_for(&self, booking: &Booking) -> Option<Arc<SignedText>> {
        let (key, user, confirmed) = (self.key.as_ref()?, booking.user_key?, booking.confirmed?);
        let grid = self.gate.lock().trust().grid().to_owned();
        let mut grants = [booking.grants.as_slice(), &booking.lost].concat();
        grants.iter_mut().for_each(|grant| grant.window = grant.window.earlier(booking.wait));
        let receipt = Receipt::of((&grid, &self.site), &booking.attempt, user, &grants, confirmed);
        // What is too long to sign is not held.
        SignedText::sign(&receipt, key).ok().map(Arc::new)
    }
}
