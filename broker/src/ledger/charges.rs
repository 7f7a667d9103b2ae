//! What a booking has cost when it is over. Kolo moves no money: it keeps what was agreed, and what of that is to be paid.
//!
//! What is charged: all that was agreed for a booking that was kept to its end, used or not; for one that was given back, what its
//! refund rules leave ([`Agreement::after_cancellation`](crate::tariff::Agreement::after_cancellation)), by the time that it then has: of one that
//! has waited that is no more than by the time in its receipt; nothing for a hold, for an
//! attempt that was given up before it was complete, and for what the site itself has taken back.
//!
//! Invariant: a booking is charged once, together with the record of its end, and never more than was agreed. What its user and the site
//! have signed stays with the charge, and it counts against the budget for as long as the signed request can be used.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Booking, Books, Ledger, Output, Record};
use crate::{
    cost::Cost,
    ids::RequestId,
    protocol::{AttemptId, Grant},
    time::{Now, Span, Time, Window},
    trust::{PublicKey, RequestStatement, SignedText},
};

/// For so long at least a repeated release is told what the first was told. Coordinators repeat one for hours at most.
const TOLD_FOR: Span = Span(7 * 86_400);

/// How a booking ended that cost something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargedFor {
    /// It was kept to its end.
    Use,
    /// It was given back before.
    Cancellation,
}

/// What a booking has cost; it is kept on disk after the booking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The attempt that made the booking.
    pub attempt: AttemptId,
    /// The user's name, for display.
    pub user: String,
    /// The user's key.
    pub user_key: Option<PublicKey>,
    /// From the first start to the last end of its seats.
    pub window: Window,
    /// How many seats.
    pub seats: u32,
    /// What was agreed for all of them.
    pub agreed: Cost,
    /// What of that is to be paid.
    pub charged: Cost,
    /// How it ended.
    pub reason: ChargedFor,
    /// When.
    pub ended: Time,
    /// Until when it counts against the budget of its request: nothing is held for that afterwards.
    pub counts_until: Time,
    /// What the user has signed: the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<Arc<SignedText>>,
    /// What the site has signed: the receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Arc<SignedText>>,
}

impl<B: Books> Ledger<B> {
    /// Writes down what a booking has cost that ends now.
    pub(super) fn charge(&mut self, now: Now, booking: &Booking, reason: ChargedFor) {
        let agreed: Cost = booking.grants.iter().map(|grant| grant.agreed.cost).sum();
        if agreed.is_zero() {
            return;
        }
        let charged = match reason {
            ChargedFor::Use => agreed,
            ChargedFor::Cancellation => {
                let of_seat = |grant: &Grant| grant.agreed.after_cancellation(grant.window, now.utc);
                booking.grants.iter().map(of_seat).sum()
            }
        };
        let signed = booking.statement.as_ref().and_then(|signed| signed.open::<RequestStatement>().ok());
        let expires = signed.map_or(now.utc, |statement| statement.expires);
        let charge = Charge {
            attempt: booking.attempt.clone(),
            user: booking.user.clone(),
            user_key: booking.user_key,
            window: booking.window,
            // A request has at most 10,000 seats.
            seats: booking.grants.len() as u32,
            agreed,
            charged,
            reason,
            ended: now.utc,
            counts_until: expires.max(now.utc + TOLD_FOR),
            statement: booking.statement.clone(),
            receipt: self.receipt_for(booking),
        };
        self.remember_charge(&charge);
        self.outputs.push_back(Output::Persist(Record::Charge(charge)));
    }

    pub(super) fn remember_charge(&mut self, charge: &Charge) {
        let of_request = (charge.user_key, charge.attempt.request.clone());
        let until = charge.counts_until;
        let before = self.spent.get(&of_request).copied().unwrap_or_default();
        let again = self.charged.get(&charge.attempt).copied().unwrap_or_default();
        let spent = Cost(before.0.saturating_sub(again.0).saturating_add(charge.charged.0));
        let spent_until = self.spent.until(&of_request).map_or(until, |before| before.max(until));
        self.spent.insert(of_request, spent_until, spent);
        self.charged.insert(charge.attempt.clone(), until, charge.charged);
    }

    /// What bookings of a user's request have cost that have ended.
    pub(super) fn spent_on(&self, user: PublicKey, request: &RequestId) -> Cost {
        self.spent.get(&(Some(user), request.clone())).copied().unwrap_or_default()
    }

    /// What the booking of an attempt has cost that has ended.
    pub(super) fn charged_for(&self, attempt: &AttemptId) -> Cost {
        self.charged.get(attempt).copied().unwrap_or_default()
    }
}
