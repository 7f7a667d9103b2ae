//! The receipts of bookings; see [`crate::receipt`].
//!
//! Invariant: a receipt says what was written to disk. It leaves after the write, as every answer does.

use std::sync::Arc;

use ed25519_dalek::SigningKey;

use super::{Booking, Books, Ledger};
use crate::{receipt::Receipt, trust::SignedText};

impl<B: Books> Ledger<B> {
    /// Signs receipts with the key of the site's node from now on. Without one no coordinator that checks them books here.
    pub fn sign_receipts(&mut self, key: Arc<SigningKey>) {
        self.key = Some(key);
    }

    /// The receipt for a user's booking that is confirmed, as it was then.
    pub(super) fn receipt_for(&self, booking: &Booking) -> Option<Arc<SignedText>> {
        let (key, user, confirmed) = (self.key.as_ref()?, booking.user_key?, booking.confirmed?);
        let grid = self.gate.lock().trust().grid().to_owned();
        let grants = [booking.grants.as_slice(), &booking.lost].concat();
        let receipt = Receipt::of((&grid, &self.site), &booking.attempt, user, &grants, confirmed);
        // What is too long to sign was too long to be asked for.
        SignedText::sign(&receipt, key).ok().map(Arc::new)
    }
}
