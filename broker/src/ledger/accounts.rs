//! The bookings by account and by request, and the limits on accounts: an invitation cannot get more than the site grants, through
//! however many entry points, and for however many keys.
//!
//! Invariant ([`Ledger::check_accounts`]): both indexes have exactly the bookings of the ledger; no entry is empty. Own work is on no
//! account.

use std::collections::{BTreeMap, BTreeSet};

use super::{Booking, Books, Ledger};
use crate::{
    cost::Cost,
    ids::{HostId, RequestId},
    protocol::{AttemptId, Grant, HoldRequest, RefusalReason, hull, share_of},
    resources::amount_of,
    schedule::Schedule,
    time::{Span, Time},
    trust::{
        Denial, Permit, PublicKey, RequestStatement, Rule,
        asked::{check_budget, check_total},
    },
};

const HOUR_S: u64 = 3600;

/// The bookings on one account.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    /// Number of holds.
    holds: usize,
    /// Seconds of all seats.
    host_seconds: u64,
    /// What is agreed for all of them, in thousandths of a credit: at most 2^48 for each seat.
    agreed: u128,
    /// All bookings.
    bookings: BTreeSet<AttemptId>,
}

/// All accounts, and all requests that have bookings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accounts {
    by_key: BTreeMap<PublicKey, Account>,
    by_request: BTreeMap<RequestId, BTreeSet<AttemptId>>,
}

fn agreed_for(grants: &[Grant]) -> u128 {
    grants.iter().map(|grant| u128::from(grant.agreed.cost.0)).sum()
}

fn host_seconds(grants: &[Grant]) -> u64 {
    grants.iter().fold(0, |sum, grant| sum.saturating_add(grant.window.duration().0))
}

/// Checks that `hold`, the `others` of its request and what was `spent` on it already are of one variant, and together stay within what
/// the user has signed of it. The seats of a reservation begin together, whenever each of them ends.
fn check_covered(
    hold: &HoldRequest,
    statement: &RequestStatement,
    others: &[&Booking],
    spent: Cost,
) -> Result<(), Denial> {
    let request = &statement.request;
    if let Some(other) = others.iter().find(|other| other.variant != hold.variant) {
        let (asked, used) = (hold.variant, other.variant);
        let rule = if asked.shape == used.shape { Rule::Scale } else { Rule::Shape };
        return Err(Denial::new(rule, format!("{asked}, the request has been used for {used} already")));
    }
    let start = hull(&hold.grants).map(|window| window.start);
    let at_same_time = || others.iter().filter(|other| Some(other.window.start) == start);
    let seats = at_same_time().map(|other| other.grants.len()).sum::<usize>() + hold.grants.len();
    if seats > request.demand().seats() {
        let detail = format!("{seats} hosts in all attempts, the user asked for {}", request.demand().seats());
        return Err(Denial::new(Rule::HostCount, detail));
    }
    let grants = at_same_time().flat_map(|other| &other.grants).chain(&hold.grants);
    check_total(statement, grants.map(|grant| &grant.amounts))?;
    // One signature does not pay for one booking after the other, nor for two at different times.
    check_budget(statement, others.iter().flat_map(|other| &other.grants).chain(&hold.grants), spent)?;
    let starts = others.iter().map(|other| other.window.start);
    let other_starts: BTreeSet<Time> = starts.filter(|other| Some(*other) != start).collect();
    if other_starts.len() > usize::from(request.moves_on_loss()) {
        return Err(Denial::new(Rule::HostCount, "the request has been used for another time already"));
    }
    Ok(())
}

impl Accounts {
    pub(super) fn add(&mut self, booking: &Booking) {
        self.by_request.entry(booking.attempt.request.clone()).or_default().insert(booking.attempt.clone());
        let Some(account) = booking.account else { return };
        let account = self.by_key.entry(account).or_default();
        account.holds += usize::from(booking.is_held());
        account.host_seconds += host_seconds(&booking.grants);
        account.agreed += agreed_for(&booking.grants);
        account.bookings.insert(booking.attempt.clone());
    }

    pub(super) fn remove(&mut self, booking: &Booking) {
        if let Some(of_request) = self.by_request.get_mut(&booking.attempt.request) {
            of_request.remove(&booking.attempt);
            if of_request.is_empty() {
                self.by_request.remove(&booking.attempt.request);
            }
        }
        let Some(key) = booking.account else { return };
        let Some(account) = self.by_key.get_mut(&key) else { return };
        account.holds -= usize::from(booking.is_held());
        account.host_seconds -= host_seconds(&booking.grants);
        account.agreed -= agreed_for(&booking.grants);
        account.bookings.remove(&booking.attempt);
        if account.bookings.is_empty() {
            self.by_key.remove(&key);
        }
    }
}

impl<B: Books> Ledger<B> {
    /// Checks that the user may have this booking as well.
    pub(super) fn check_account(&self, hold: &HoldRequest, permit: &Permit) -> Result<(), Denial> {
        let nothing = Account::default();
        let account = self.accounts.by_key.get(&permit.account).unwrap_or(&nothing);
        let limits = &permit.limits;
        if let Some(most) = limits.max_holds.filter(|most| account.holds >= *most as usize) {
            return Err(Denial::new(
                Rule::MaxHolds,
                format!("the account has {} holds, {most} are allowed", account.holds),
            ));
        }
        let bookings = account.bookings.len();
        if let Some(most) = limits.max_reservations.filter(|most| bookings >= *most as usize) {
            let detail = format!("the account has {bookings} reservations and holds, {most} are allowed");
            return Err(Denial::new(Rule::MaxReservations, detail));
        }
        let after = account.host_seconds.saturating_add(host_seconds(&hold.grants));
        if let Some(most) = limits.max_host_hours.filter(|most| after > most.saturating_mul(HOUR_S)) {
            let detail = format!("the account would have {} host-hours, {most} are allowed", after.div_ceil(HOUR_S));
            return Err(Denial::new(Rule::MaxHostHours, detail));
        }
        let agreed = account.agreed + agreed_for(&hold.grants);
        if let Some(most) = limits.max_credits.filter(|most| agreed > u128::from(*most) * 1000) {
            let after = agreed.div_ceil(1000);
            let detail = format!("the account would have reservations for {after} credits, {most} are allowed");
            return Err(Denial::new(Rule::MaxCredits, detail));
        }
        self.check_share(&hold.grants, permit.account)
    }

    /// The longest reservation that the account may still have, if there is a limit.
    ///
    /// # Errors
    /// The limit that it has reached.
    pub(super) fn longest_left(&self, permit: &Permit) -> Result<Option<Span>, Denial> {
        let nothing = Account::default();
        let account = self.accounts.by_key.get(&permit.account).unwrap_or(&nothing);
        let (limits, bookings) = (&permit.limits, account.bookings.len());
        if let Some(most) = limits.max_reservations.filter(|most| bookings >= *most as usize) {
            let detail = format!("the account has {bookings} reservations and holds, {most} are allowed");
            return Err(Denial::new(Rule::MaxReservations, detail));
        }
        let Some(most) = limits.max_host_hours else { return Ok(None) };
        match most.saturating_mul(HOUR_S).saturating_sub(account.host_seconds) {
            0 => {
                let detail = format!("the account has {most} host-hours, and no more are allowed");
                Err(Denial::new(Rule::MaxHostHours, detail))
            }
            left => Ok(Some(Span(left))),
        }
    }

    /// Credits that the account may still agree to pay; none where the owner sets no limit.
    pub(super) fn credits_left(&self, permit: &Permit) -> Option<Cost> {
        let most = u128::from(permit.limits.max_credits?) * 1000;
        let agreed = self.accounts.by_key.get(&permit.account).map_or(0, |account| account.agreed);
        Some(Cost(u64::try_from(most.saturating_sub(agreed)).unwrap_or(u64::MAX)))
    }

    /// What the account has of each host.
    pub(super) fn had_by(&self, account: PublicKey) -> Vec<(HostId, Schedule)> {
        let booked = self.accounts.by_key.get(&account).into_iter().flat_map(|account| &account.bookings);
        let mut had: BTreeMap<HostId, Schedule> = BTreeMap::new();
        for grant in booked.filter_map(|attempt| self.bookings.get(attempt)).flat_map(|booking| &booking.grants) {
            had.entry(grant.host().clone()).or_default().add(grant.window, &grant.amounts);
        }
        had.into_iter().collect()
    }

    /// Whether the account stays within the share of each host that the owner grants one user at any time.
    pub(super) fn check_share(&self, grants: &[Grant], account: PublicKey) -> Result<(), Denial> {
        let gate = self.gate.lock();
        let shares = &gate.policy().user_share_percent;
        let Some(window) = hull(grants).filter(|_| !shares.is_empty()) else { return Ok(()) };
        let mut of_user: BTreeMap<&HostId, Schedule> =
            grants.iter().map(|grant| (grant.host(), Schedule::default())).collect();
        let booked = self.accounts.by_key.get(&account).into_iter().flat_map(|account| &account.bookings);
        let booked = booked.filter_map(|attempt| self.bookings.get(attempt));
        let booked = booked.filter(|booking| booking.window.overlaps(window));
        for grant in booked.flat_map(|booking| &booking.grants).chain(grants) {
            if let Some(here) = of_user.get_mut(grant.host()) {
                here.add(grant.window, &grant.amounts);
            }
        }
        for grant in grants {
            let Some(host) = self.hosts.get(grant.host()) else { continue };
            for (name, percent) in shares {
                let most = share_of(amount_of(&host.host().capacity, name), *percent);
                let after = of_user[grant.host()].peak(name, grant.window);
                if after > most {
                    let id = grant.host();
                    let detail = format!("host {id}: the account would have {after} of {name}, {most} are allowed");
                    return Err(Denial::new(Rule::UserShare, detail));
                }
            }
        }
        Ok(())
    }

    /// Whether the owner limits what a user has of each host.
    pub(super) fn has_user_shares(&self) -> bool {
        !self.gate.lock().policy().user_share_percent.is_empty()
    }

    /// Checks that all bookings of one request together stay within the user's signed request, so that it cannot be used many
    /// times. They are for no more hosts than the request has, at one time, or at two while a reservation that has lost hosts
    /// moves. A second signature for another coordinator does not make it two requests.
    pub(super) fn check_other_attempts(&self, hold: &HoldRequest, permit: &Permit) -> Result<(), RefusalReason> {
        let statement = &*permit.statement;
        let others: Vec<&Booking> = self.of_request(permit.user, &hold.attempt.request).collect();
        let settled: Vec<&Booking> = others.iter().copied().filter(|booking| booking.state.is_settled()).collect();
        let spent = self.spent_on(permit.user, &hold.attempt.request);
        check_covered(hold, statement, &settled, spent).map_err(RefusalReason::NotAllowed)?;
        // An aborted earlier attempt may still have a booking until its release arrives.
        check_covered(hold, statement, &others, spent).map_err(|_| RefusalReason::OtherAttempt)
    }

    /// What is booked here for a request of this name, of whichever user.
    pub(super) fn of_name(&self, request: &RequestId) -> impl Iterator<Item = &Booking> {
        let attempts = self.accounts.by_request.get(request).into_iter().flatten();
        attempts.filter_map(|attempt| self.bookings.get(attempt))
    }

    /// What a user has booked here with this request.
    pub(super) fn of_request(&self, user: PublicKey, request: &RequestId) -> impl Iterator<Item = &Booking> {
        self.of_name(request).filter(move |booking| booking.user_key == Some(user))
    }

    /// Checks the module's invariant from scratch.
    pub(super) fn check_accounts(&self) -> Result<(), String> {
        let mut counted = Accounts::default();
        self.bookings.values().for_each(|booking| counted.add(booking));
        if counted == self.accounts {
            Ok(())
        } else {
            Err(format!("accounts are {:?}, the bookings say {counted:?}", self.accounts))
        }
    }
}
