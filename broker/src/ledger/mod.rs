//! A site's own, authoritative record of holds and reservations: the only place where amounts are granted.
//!
//! It is the participant of a two-phase commit: hold, confirm and release are prepare, commit and abort. What is prepared has a
//! lease, and is in memory only. A participant that has confirmed and does not learn the outcome asks the coordinator and the other
//! participants for it (cooperative termination); the coordinator presumes abort of what it has no record of.
//!
//! A pure state machine. The caller feeds [`Ledger::handle`] and [`Ledger::handle_timeout`], then drains
//! [`Ledger::poll_output`] and arms its timer by [`Ledger::poll_timeout`] after either call. Outputs come in the order
//! in which they must happen: a [`Output::Persist`] must be on disk before any later output is let out.
//!
//! Invariants ([`Ledger::sanity_check`]): `promised` of a unit, which is a host or the uplink, is the owner's own work, plus all confirmed bookings,
//! plus all holds; `reserved` is the same without the holds and without own jobs that may be stopped; nothing is admitted that lifts `promised` above the
//! capacity anywhere. There is one check of room, in `admission`. One exception: when the owner takes capacity away,
//! a reservation that has begun stays, and then nothing else is granted where there is too little.

mod accounts;
mod admission;
mod answers;
mod booking;
mod books;
mod charges;
mod denied;
#[cfg(test)]
mod denied_tests;
mod ended;
mod events;
mod expiring;
mod feed;
mod floating;
mod lapses;
mod limits;
mod listing;
mod local;
#[cfg(test)]
mod money_tests;
mod opening;
mod own_plan;
mod promises;
mod queue;
mod quotes;
mod receipts;
#[cfg(test)]
mod receipts_tests;
mod seating;
mod settlement;
#[cfg(test)]
mod settlement_tests;
mod shares;
#[cfg(test)]
mod shares_tests;
mod standing;
mod substitutes;
#[cfg(test)]
mod substitutes_tests;
mod takeover;
#[cfg(test)]
mod takeover_tests;
mod tariffs;
mod terms;
#[cfg(test)]
mod tests;
mod told;
#[cfg(test)]
mod told_tests;
mod tombstones;
#[cfg(test)]
mod trust_tests;
mod uplink;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use ed25519_dalek::SigningKey;

use self::{
    accounts::Accounts,
    ended::Ended,
    expiring::Expiring,
    floating::Floating,
    lapses::Lapses,
    promises::{ReadOnly, Trial},
    queue::Queue,
    shares::Shares,
    terms::Terms,
    told::Told,
    tombstones::Tombstones,
};
pub use self::{
    admission::fit_beside,
    booking::{Booking, BookingRecord, BookingState, GoneRecord, Kept, LocalWork, QueuedJob, Record},
    books::{Books, HostLedger},
    charges::{Charge, ChargedFor},
    events::{Event, Output, ReplyToken, ScheduleUpdateParts},
    feed::{FEED_NAME_BYTES_MAX, FeedReport},
    floating::Unusable,
    limits::LedgerLimits,
    own_plan::PlannedJob,
    queue::{JobStage, OwnJob, QUEUE_JOBS_MAX, QueueError, QueueOrder},
};
use crate::{
    cost::Cost,
    ids::{HostId, RequestId, SiteId},
    protocol::{AttemptId, LedgerVersion},
    schedule::Schedule,
    time::{Millis, Now, Time},
    trust::{PublicKey, SharedGate},
};

/// A site that comes back asks about its reservations one after another, this far apart.
const RETURNED_APART: Millis = Millis(20);

/// One site's ledger.
#[derive(Debug)]
pub struct Ledger<B = HostLedger> {
    site: SiteId,
    limits: LedgerLimits,
    version: LedgerVersion,
    /// Checks credentials, signatures and the owner's rules before the schedules are looked at.
    gate: SharedGate,
    /// The node's key, with which receipts are signed.
    key: Option<Arc<SigningKey>>,
    hosts: ReadOnly<BTreeMap<HostId, B>>,
    /// The books of the uplink, if it has a limit.
    uplink: ReadOnly<Option<B>>,
    bookings: ReadOnly<BTreeMap<AttemptId, Booking>>,
    trial: Trial,
    /// One entry for each booking that waits for something: a hold's deadline, or the time to ask for an outcome.
    timers: BTreeSet<(Millis, AttemptId)>,
    /// Number of holds by entry point; no entry is zero.
    held_by: BTreeMap<SiteId, usize>,
    accounts: Accounts,
    shares: Shares,
    lapses: Lapses,
    tombstones: Tombstones,
    /// Requests of users from which the owner has taken hosts back.
    evicted: Expiring<(Option<PublicKey>, RequestId), Millis, ()>,
    ended: Ended,
    /// What bookings have cost that have ended.
    charged: Expiring<AttemptId, Time, Cost>,
    /// The same, added up for each request of a user.
    spent: Expiring<(Option<PublicKey>, RequestId), Time, Cost>,
    terms: Terms,
    queue: Queue,
    /// The schedules were cleared before this time.
    forgotten: Time,
    /// Before this time the schedules may show more than the bookings: the past of a booking is not given back.
    settled_before: Time,
    /// Bookings that had begun when the ledger was opened, or when they lost a seat: they stay, even where there is too little for them.
    begun: BTreeSet<AttemptId>,
    outputs: VecDeque<Output>,
    floating: Floating,
    told: Told,
}

impl<B: Books> Ledger<B> {
    /// The site.
    #[must_use]
    pub fn site(&self) -> &SiteId {
        &self.site
    }

    /// The present version.
    #[must_use]
    pub fn version(&self) -> LedgerVersion {
        self.version
    }

    /// Puts other limits into force; what is promised stays. How many attempts are remembered does not change.
    pub fn set_limits(&mut self, limits: LedgerLimits) {
        self.limits = limits;
    }

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &B> {
        self.hosts.values()
    }

    /// All bookings.
    pub fn bookings(&self) -> impl Iterator<Item = &Booking> {
        self.bookings.values()
    }

    /// Something happened. Drain [`Ledger::poll_output`] and call [`Ledger::poll_timeout`] afterwards.
    pub fn handle(&mut self, now: Now, event: Event) {
        // A hold whose deadline has passed must not be confirmed only because the timer was late.
        self.handle_timeout(now);
        match event {
            Event::Request { from, network, token, request } => {
                self.on_request(now, (&from, network), token, request);
            }
            Event::Local { token, work } => {
                let answer = self.on_local(now, work);
                self.outputs.push_back(Output::Reply { token, answer });
            }
            Event::Evict { token, request } => {
                let answer = self.on_evict(now, &request);
                self.outputs.push_back(Output::Reply { token, answer });
            }
            Event::Unusable { token, unusable } => {
                let answer = self.on_unusable(now, &unusable);
                self.outputs.push_back(Output::Reply { token, answer });
            }
            Event::Feed { token, works, queue } => self.on_feed(now, token, (works, queue)),
            Event::Queue { token, order } => self.on_queue(now, token, order),
            Event::StatusReceived { from, attempt, round, decision, booking } => {
                self.on_status(now, &from, (&attempt, round), decision, booking);
            }
        }
        // What begins at once may wait for the jobs that it would stop.
        self.bind_due(now);
        self.run_queue(now);
    }

    /// When [`Ledger::handle_timeout`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let first = self.timers.first().map(|(at, _)| *at);
        first.into_iter().chain(self.binds_at()).chain(self.queue.wakes_at()).min()
    }

    /// Lets holds lapse, asks for outcomes that did not arrive, binds the seats that begin, and begins own jobs whose time has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.bind_due(now);
        let due = self.timers.iter().take_while(|(at, _)| *at <= now.monotonic);
        let due: Vec<AttemptId> = due.map(|(_, attempt)| attempt.clone()).collect();
        for attempt in due {
            match self.bookings.get(&attempt).map(|booking| &booking.state) {
                Some(BookingState::Held { .. }) => self.give_back(now, &attempt),
                Some(BookingState::Confirmed { .. } | BookingState::Returned { .. }) => {
                    self.ask_for_outcome(now, &attempt);
                }
                Some(BookingState::Settled) | None => {}
            }
        }
        self.run_queue(now);
    }

    /// The next thing to do, until none is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// How many outputs [`Ledger::poll_output`] is still to give out.
    #[must_use]
    pub fn waiting_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The records that [`Ledger::poll_output`] is still to give out.
    pub fn waiting_records(&self) -> impl Iterator<Item = &Record> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Persist(record) => Some(record),
            _ => None,
        })
    }

    /// Drops bookings that have ended, and the past of the schedules. The caller calls it now and then.
    pub fn forget_past(&mut self, now: Now) {
        // No job that is cut ends here before the seats that it is cut for are bound.
        self.bind_due(now);
        self.look_at_cut(now);
        let ended: Vec<AttemptId> = self
            .bookings
            .values()
            .filter(|booking| !booking.is_held() && booking.window.end <= now.utc)
            .map(|booking| booking.attempt.clone())
            .collect();
        let free_from = self.free_from(now);
        for attempt in ended {
            let Some(booking) = self.end(&attempt, free_from) else { continue };
            self.begun.remove(&attempt);
            self.forget_job(&attempt);
            self.charge(now, &booking, ChargedFor::Use);
            self.keep_ended(now, &booking);
        }
        self.forget_ended(now);
        self.forget_books_before(now.utc);
        self.told.forget_before(now.utc);
        self.tell_of_begun();
        self.gate.lock().prune(now.utc);
        self.tombstones.forget(now.monotonic);
        while self.evicted.pop_due(now.monotonic).is_some() {}
        while self.charged.pop_due(now.utc).is_some() {}
        while self.spent.pop_due(now.utc).is_some() {}
        self.terms.forget(now.monotonic);
        self.lapses.forget(now.monotonic);
    }

    /// Gives back everything of `attempt`, if it has a booking, and buries it.
    fn give_back(&mut self, now: Now, attempt: &AttemptId) {
        self.bury(now, attempt);
        self.put_back(now, attempt);
    }

    /// Gives back everything of `attempt`, if it has a booking.
    fn put_back(&mut self, now: Now, attempt: &AttemptId) {
        let free_from = self.free_from(now);
        let Some(booking) = self.end(attempt, free_from) else { return self.forbid_anew(attempt) };
        let is_shown = self.is_shown(&booking);
        self.begun.remove(attempt);
        self.forget_job(attempt);
        self.lapses.note_end(now.monotonic, &booking);
        if booking.state.is_settled() || booking.is_left_unsettled(now.utc) {
            self.charge(now, &booking, ChargedFor::Cancellation);
        }
        if !booking.is_held() {
            self.forget_on_disk(now, &booking, booking.state.is_settled());
        }
        let given_back = self.rest_of(free_from, &booking);
        self.queue.release(&given_back);
        if is_shown && !given_back.is_empty() {
            self.tell(&given_back);
        }
    }

    fn bury(&mut self, now: Now, attempt: &AttemptId) {
        self.tombstones.bury(attempt, now.monotonic + self.limits.tombstone_life);
    }

    /// The holds; far fewer than the bookings.
    fn holds(&self) -> impl Iterator<Item = &Booking> {
        let waiting = self.timers.iter().filter_map(|(_, attempt)| self.bookings.get(attempt));
        waiting.filter(|booking| booking.is_held())
    }

    /// Checks the module's invariants from scratch; for tests and the simulator.
    ///
    /// # Errors
    /// The invariant that is broken, as a text.
    pub fn sanity_check(&self) -> Result<(), String> {
        let held = self.bookings.values().filter(|booking| booking.is_held()).count();
        let counted: usize = self.held_by.values().sum();
        if held != counted {
            return Err(format!("{held} holds are there, {counted} counted"));
        }
        let waiting = self.bookings.values().filter(|booking| booking.state.wakes_at().is_some()).count();
        if waiting != self.timers.len() {
            return Err(format!("{waiting} bookings wait, {} timers are armed", self.timers.len()));
        }
        for Booking { attempt, window, grants, .. } in self.bookings.values() {
            let seats: BTreeSet<_> = grants.iter().map(|grant| grant.seat).collect();
            let is_inside =
                grants.iter().all(|grant| window.start <= grant.window.start && grant.window.end <= window.end);
            if seats.len() < grants.len() || !is_inside {
                return Err(format!("{attempt:?}: a seat twice, or outside of the booking's window"));
            }
        }
        self.check_accounts()?;
        self.check_floating()?;
        self.check_shares()?;
        self.check_queue()?;
        self.check_told()?;
        self.units().try_for_each(|unit| self.check_books(unit))
    }

    /// The schedules of a host, or of the uplink, are what own work, bookings and holds add up to, and no more than it has.
    fn check_books(&self, host: &B) -> Result<(), String> {
        let id = &host.host().id;
        let from = self.forgotten.max(self.settled_before);
        let (mut reserved, mut promised, mut stays) = (host.own().clone(), host.own().clone(), host.own().clone());
        for booking in self.bookings.values() {
            for grant in self.taken_by(booking).iter().filter(|grant| grant.host() == id) {
                promised.add(grant.window, &grant.amounts);
                if self.is_shown(booking) {
                    reserved.add(grant.window, &grant.amounts);
                }
                if self.begun.contains(&booking.attempt) {
                    stays.add(grant.window, &grant.amounts);
                }
            }
        }
        for (expected, is, what) in
            [(&mut reserved, host.reserved(), "reserved"), (&mut promised, host.promised(), "promised")]
        {
            let mut is = is.clone();
            is.forget_before(from);
            expected.forget_before(from);
            if is != *expected {
                return Err(format!("host {id}: {what} is not what own work, reservations and holds add up to"));
            }
        }
        for (name, occupancy) in promised.occupancies() {
            let capacity = crate::resources::amount_of(&host.host().capacity, name);
            let used_at = |schedule: &Schedule, at| {
                schedule.occupancy(name).map_or_else(Default::default, |occupancy| occupancy.used_at(at))
            };
            for (at, used) in occupancy.steps() {
                if used > capacity.max(used_at(&stays, at)) {
                    return Err(format!("host {id}: {used} of {name} promised at {}, capacity {capacity}", at.0));
                }
            }
        }
        Ok(())
    }
}
