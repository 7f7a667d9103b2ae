//! Whether what was agreed is what the owner asks for now.
//!
//! Invariant: nothing is held for another than the owner's price at the time of the hold, nor against the owner's conditions; what was
//! agreed then stays as it is when the owner changes the tariff.

use super::{Books, Ledger};
use crate::{
    protocol::{Grant, RefusalReason},
    resources::{Amounts, amount_of},
    schedule::Schedule,
    tariff::Conditions,
    time::{Time, Window},
    trust::asked::CLOCKS_DIFFER,
};

impl<B: Books> Ledger<B> {
    /// Checks these grants against the tariffs of their hosts. Clocks differ, so a lead time may be a little short.
    pub(super) fn check_tariffs(&self, now: Time, grants: &[Grant]) -> Result<(), RefusalReason> {
        let asked_at = now - CLOCKS_DIFFER;
        for Grant { place, window, amounts, agreed, .. } in grants {
            let Some(books) = self.hosts.get(place.host()) else { continue };
            let tariff = &books.host().tariff;
            let [least, most] = [asked_at, now + CLOCKS_DIFFER].map(|at| tariff.agreement(Some(at), *window, amounts));
            let is_agreed = agreed.is_between(&least, &most);
            if !is_agreed || window.start < asked_at + tariff.conditions.notice_min {
                return Err(RefusalReason::PriceChanged { host: place.host().clone(), tariff: tariff.clone() });
            }
        }
        self.check_conditions(now, grants)
    }

    /// Checks these grants, at their prices, against the conditions of the tariffs of their hosts: how far ahead, and how much.
    pub(super) fn check_conditions(&self, now: Time, grants: &[Grant]) -> Result<(), RefusalReason> {
        for Grant { place, window, amounts, .. } in grants {
            let Some(books) = self.hosts.get(place.host()) else { continue };
            let tariff = &books.host().tariff;
            let horizon = tariff.conditions.horizon;
            if horizon.is_some_and(|horizon| window.end > now + horizon + CLOCKS_DIFFER) {
                return Err(RefusalReason::PriceChanged { host: place.host().clone(), tariff: tariff.clone() });
            }
            if tariff.conditions.share_max.is_some() {
                check_share(&tariff.conditions, (books, &self.without_stoppable(books)), (*window, amounts))?;
            }
        }
        Ok(())
    }
}

/// Whether the host, with this seat beside what is promised, promises no more than the share that the owner gives.
fn check_share(
    conditions: &Conditions,
    (books, promised): (&impl Books, &Schedule),
    (window, amounts): (Window, &Amounts),
) -> Result<(), RefusalReason> {
    let Some(share) = conditions.share_max else { return Ok(()) };
    let host = books.host();
    for (resource, asked) in amounts {
        let most = u128::from(amount_of(&host.capacity, resource).0) * u128::from(share.0.min(1000)) / 1000;
        let used = u128::from(promised.peak(resource, window).0);
        // What is free is below what the host has.
        let free = crate::amount::Amount(most.saturating_sub(used) as u64);
        if *asked > free {
            let (id, asked_in_all) =
                (host.id.clone(), u128::from(asked.0) + u128::from(books.reserved().peak(resource, window).0));
            let (resource, asked) = (resource.clone(), *asked);
            return Err(match asked_in_all <= most {
                true => RefusalReason::HeldByAnother { host: id, resource },
                false => RefusalReason::NotEnough { host: id, resource, asked, free },
            });
        }
    }
    Ok(())
}
