//! Whether who was promised something may still use it: what is promised stays, and its use ends with a revocation or an owner's denial.
//!
//! Invariant: only lookups, so that it can be asked of everything that runs, each second.

use super::{Booking, Books, Ledger};
use crate::{
    ids::RequestId,
    trust::{Denial, Gate, PublicKey},
};

impl<B: Books> Ledger<B> {
    /// Why a user may no longer use what is booked here for a request, as revocations and the owner's lists are now; none where the user
    /// may, by the credential of one booking at least. Where nothing is left of the request, the user's other bookings tell, else the
    /// key alone.
    #[must_use]
    pub fn denial_of(&self, user: &PublicKey, request: &RequestId) -> Option<Denial> {
        let gate = self.gate.lock();
        let of_request = verdict(&gate, self.of_request(*user, request));
        let of_user = || verdict(&gate, self.of_users().filter(|booking| booking.user_key.as_ref() == Some(user)));
        of_request.or_else(of_user).unwrap_or_else(|| gate.check_key(user)).err()
    }
}

/// Whether the user may use any of these, or else why not; none when there is none of them.
fn verdict<'a>(gate: &Gate, bookings: impl Iterator<Item = &'a Booking>) -> Option<Result<(), Denial>> {
    let checked = bookings.filter_map(|booking| {
        let user = booking.user_key.as_ref()?;
        let account = booking.account.as_ref().unwrap_or(user);
        let lineage = booking.lineage.as_ref().map_or(&[][..], |keys| keys);
        Some(gate.check_use(&booking.user, (user, account), lineage))
    });
    checked.reduce(Result::or)
}
