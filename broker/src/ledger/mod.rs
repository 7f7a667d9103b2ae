//! A site's own, authoritative record of holds and reservations: the only place where amounts are granted.
//!
//! A pure state machine. The caller feeds [`Ledger::handle`] and [`Ledger::handle_timeout`], then drains
//! [`Ledger::poll_output`] and arms its timer by [`Ledger::poll_timeout`] after either call. Outputs come in the order
//! in which they must happen: a [`Output::Persist`] must be on disk before any later output is let out.
//!
//! Invariants ([`Ledger::sanity_check`]): `promised` of a host is the owner's own work, plus all confirmed bookings,
//! plus all holds; `reserved` is the same without the holds; nothing is admitted that lifts `promised` above the
//! capacity anywhere. There is one admission function, [`HostLedger::admit`].

mod accounts;
mod answers;
mod booking;
mod events;
mod feed;
mod limits;
mod local;
mod settlement;
mod takeover;
mod telling;
#[cfg(test)]
mod tests;
mod tombstones;
#[cfg(test)]
mod trust_tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::{accounts::Accounts, takeover::Words, tombstones::Tombstones};
pub use self::{
    booking::{Booking, BookingState, LocalWork, Record, Reservation},
    events::{Event, Output, ReplyToken, ScheduleUpdateParts},
    feed::{FEED_NAME_BYTES_MAX, FeedReport},
    limits::LedgerLimits,
};
use crate::{
    canary::{self, Canary},
    host::Host,
    ids::{HostId, SiteId},
    protocol::{AttemptId, ChangeKind, Grant, LedgerVersion, ScheduleChange, ScheduleSnapshot},
    resources::Amounts,
    schedule::{Schedule, Shortage},
    time::{Millis, Now, Time, Window},
    trust::SharedGate,
};

/// One host of the site with its schedules.
#[derive(Debug, Clone)]
pub struct HostLedger {
    host: Host,
    own: Schedule,
    reserved: Schedule,
    promised: Schedule,
}

impl HostLedger {
    fn new(host: Host, own: Schedule) -> HostLedger {
        HostLedger { host, reserved: own.clone(), promised: own.clone(), own }
    }

    /// The host as offered.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The owner's own work.
    #[must_use]
    pub fn own(&self) -> &Schedule {
        &self.own
    }

    /// The owner's own work and all reservations: what others are told.
    #[must_use]
    pub fn reserved(&self) -> &Schedule {
        &self.reserved
    }

    /// The one admission function: whether `amounts` fit into `window` beside everything that is promised.
    ///
    /// # Errors
    /// The first resource that is short.
    pub fn admit(&self, window: Window, amounts: &Amounts) -> Result<(), Shortage> {
        let beside = if canary::is_on(Canary::AdmitBesideHolds) { &self.reserved } else { &self.promised };
        beside.admits(&self.host.capacity, window, amounts)
    }
}

/// A site that comes back asks about its reservations one after another, this far apart.
const RETURNED_APART: Millis = Millis(20);

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    site: SiteId,
    limits: LedgerLimits,
    version: LedgerVersion,
    /// Checks who asks for what before room is looked for.
    gate: SharedGate,
    hosts: BTreeMap<HostId, HostLedger>,
    bookings: BTreeMap<AttemptId, Booking>,
    /// One entry for each booking that waits for something: a hold's deadline, or the time to ask for a final word.
    timers: BTreeSet<(Millis, AttemptId)>,
    /// Number of holds by entry point; no entry is zero.
    held_by: BTreeMap<SiteId, usize>,
    accounts: Accounts,
    tombstones: Tombstones,
    words: Words,
    /// Schedules hold nothing before this time any more.
    forgotten: Time,
    outputs: VecDeque<Output>,
}

impl Ledger {
    /// Opens the ledger of a site with its hosts, the owner's own work, and what the disk remembers.
    ///
    /// Where the owner has taken a host or a part of it away, a reservation that has not begun loses the hosts that it no
    /// longer fits on, and its entry point hears so when it asks; one that has begun is kept. Both are returned, as they
    /// were, so that the owner can be told.
    #[must_use]
    pub fn open(
        site: SiteId,
        limits: LedgerLimits,
        incarnation: u64,
        gate: impl Into<SharedGate>,
        hosts: Vec<(Host, Schedule)>,
        reservations: Vec<Reservation>,
        now: Now,
    ) -> (Ledger, Vec<Reservation>) {
        let hosts = hosts.into_iter().map(|(host, own)| (host.id.clone(), HostLedger::new(host, own))).collect();
        let tombstones = Tombstones::new(limits.max_tombstones);
        let words = Words::new(limits.max_tombstones);
        let mut ledger = Ledger {
            site,
            limits,
            version: LedgerVersion { incarnation, change: 0 },
            gate: gate.into(),
            hosts,
            bookings: BTreeMap::new(),
            timers: BTreeSet::new(),
            held_by: BTreeMap::new(),
            accounts: Accounts::default(),
            tombstones,
            words,
            forgotten: Time::ZERO,
            outputs: VecDeque::new(),
        };
        let mut misfits = Vec::new();
        for reservation in reservations {
            if !ledger.replay(&reservation, now) {
                misfits.push(reservation);
            }
        }
        (ledger, misfits)
    }

    /// Puts one reservation from disk back; false when it does not fit any more.
    fn replay(&mut self, reservation: &Reservation, now: Now) -> bool {
        let has_begun = reservation.window.start <= now.utc;
        let mut grants = Vec::with_capacity(reservation.grants.len());
        let mut fits = true;
        for grant in &reservation.grants {
            let host = self.hosts.get_mut(&grant.host);
            let fits_here = host.as_ref().is_some_and(|host| host.admit(reservation.window, &grant.amounts).is_ok());
            fits &= fits_here;
            if !fits_here && !has_begun {
                continue;
            }
            grants.push(grant.clone());
            if let Some(host) = host {
                host.promised.add(reservation.window, &grant.amounts);
                host.reserved.add(reservation.window, &grant.amounts);
            }
        }
        // One that has lost all its hosts stays as well: that it was confirmed must not be forgotten, or this site would
        // tell the others that the attempt had never been complete.
        let is_final = has_begun || self.is_local(&reservation.attempt);
        let state = match (reservation.settled, is_final) {
            (true, true) => BookingState::Settled,
            (true, false) => BookingState::Returned {
                ask_at: now.monotonic + Millis(RETURNED_APART.0 * self.bookings.len() as u64),
                asked: 0,
            },
            (false, _) => BookingState::Confirmed { ask_at: now.monotonic, asked: 0, confirmed_by: BTreeSet::new() },
        };
        let is_reduced = grants.len() < reservation.grants.len();
        let booking = Booking {
            attempt: reservation.attempt.clone(),
            window: reservation.window,
            grants,
            participants: reservation.participants.clone(),
            user: reservation.user.clone(),
            user_key: reservation.user_key,
            statement: reservation.statement.clone(),
            steward: reservation.steward.clone(),
            state,
        };
        if is_reduced {
            self.outputs.push_back(Output::Persist(booking.to_record()));
        }
        self.insert(booking);
        fits
    }

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

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &HostLedger> {
        self.hosts.values()
    }

    /// What stands in the ledger.
    pub fn bookings(&self) -> impl Iterator<Item = &Booking> {
        self.bookings.values()
    }

    /// What other nodes may believe of this site's schedules: no holds, nothing of the past.
    #[must_use]
    pub fn snapshot(&self, now: Now) -> ScheduleSnapshot {
        let hosts = self.hosts.values().map(|host| {
            let mut schedule = host.reserved.clone();
            schedule.forget_before(now.utc);
            (host.host.id.clone(), schedule)
        });
        ScheduleSnapshot { site: self.site.clone(), version: self.version, hosts: hosts.collect() }
    }

    /// Something happened. Drain [`Ledger::poll_output`] and call [`Ledger::poll_timeout`] afterwards.
    pub fn handle(&mut self, now: Now, event: Event) {
        // A hold whose deadline has passed must not be confirmed only because the timer was late.
        self.handle_timeout(now);
        match event {
            Event::Request { from, token, request } => self.on_request(now, &from, token, request),
            Event::Local { token, work } => {
                let answer = self.on_local(now, work);
                self.outputs.push_back(Output::Reply { token, answer });
            }
            Event::Feed { token, works } => self.on_feed(now, token, works),
            Event::StatusHeard { from, attempt, decision, booking } => {
                self.on_status(now, &from, &attempt, decision, booking);
            }
        }
    }

    /// When [`Ledger::handle_timeout`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Lets holds lapse and asks for final words that did not come.
    pub fn handle_timeout(&mut self, now: Now) {
        let due = self.timers.iter().take_while(|(at, _)| *at <= now.monotonic);
        let due: Vec<AttemptId> = due.map(|(_, attempt)| attempt.clone()).collect();
        for attempt in due {
            match self.bookings.get(&attempt).map(|booking| &booking.state) {
                Some(BookingState::Held { .. }) => self.give_back(now, &attempt),
                Some(BookingState::Confirmed { .. } | BookingState::Returned { .. }) => {
                    self.ask_for_final_word(now, &attempt);
                }
                Some(BookingState::Settled) | None => {}
            }
        }
    }

    fn insert(&mut self, booking: Booking) {
        if let Some(at) = booking.state.wakes_at() {
            self.timers.insert((at, booking.attempt.clone()));
        }
        if booking.is_held() {
            *self.held_by.entry(booking.attempt.entry_point.clone()).or_default() += 1;
        }
        self.accounts.add(&booking);
        self.bookings.insert(booking.attempt.clone(), booking);
    }

    fn take(&mut self, attempt: &AttemptId) -> Option<Booking> {
        let booking = self.bookings.remove(attempt)?;
        self.accounts.remove(&booking);
        if let Some(at) = booking.state.wakes_at() {
            self.timers.remove(&(at, attempt.clone()));
        }
        if booking.is_held()
            && let Some(count) = self.held_by.get_mut(&attempt.entry_point)
        {
            *count -= 1;
            if *count == 0 {
                self.held_by.remove(&attempt.entry_point);
            }
        }
        Some(booking)
    }

    /// The next thing to do, until none is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Drops reservations that have ended, and the past of the schedules. Call it now and then.
    pub fn forget_past(&mut self, now: Now) {
        let ended: Vec<AttemptId> = self
            .bookings
            .values()
            .filter(|booking| !booking.is_held() && booking.window.end <= now.utc)
            .map(|booking| booking.attempt.clone())
            .collect();
        for attempt in ended {
            self.take(&attempt);
            self.outputs.push_back(Output::Persist(Record::Remove(attempt)));
        }
        for host in self.hosts.values_mut() {
            for schedule in [&mut host.own, &mut host.reserved, &mut host.promised] {
                schedule.forget_before(now.utc);
            }
        }
        self.forgotten = self.forgotten.max(now.utc);
        self.gate.lock().prune(now.utc);
        self.tombstones.forget(now.monotonic);
        self.words.forget(now.monotonic);
    }

    /// Takes everything of `attempt` back and buries it. Does nothing for an attempt that is not there, except burying.
    fn give_back(&mut self, now: Now, attempt: &AttemptId) {
        self.bury(now, attempt);
        self.put_back(now, attempt);
    }

    /// Takes everything of `attempt` back, if it is there.
    fn put_back(&mut self, now: Now, attempt: &AttemptId) {
        let Some(booking) = self.take(attempt) else { return };
        if booking.state.is_settled() {
            self.tombstones.note_complete(attempt);
        }
        // What has passed cannot be given back, and may have been forgotten already.
        let from = booking.window.start.max(now.utc).max(self.forgotten);
        let window = Window { start: from, end: booking.window.end };
        if !booking.is_held() {
            self.outputs.push_back(Output::Persist(Record::Remove(attempt.clone())));
        }
        if window.start >= window.end {
            return;
        }
        for grant in &booking.grants {
            if let Some(host) = self.hosts.get_mut(&grant.host) {
                let freed = host.promised.remove(window, &grant.amounts);
                debug_assert!(
                    freed.is_ok() || canary::is_on(Canary::DoubleRelease),
                    "a booking takes back what it has put in"
                );
                if canary::is_on(Canary::DoubleRelease) {
                    let _ = host.promised.remove(window, &grant.amounts);
                }
                if !booking.is_held() {
                    let freed = host.reserved.remove(window, &grant.amounts);
                    debug_assert!(freed.is_ok(), "a reservation takes back what it has put in");
                }
            }
        }
        if !booking.is_held() {
            self.publish(window, &booking.grants, ChangeKind::Removed);
        }
    }

    fn publish(&mut self, window: Window, grants: &[Grant], kind: ChangeKind) {
        let from = self.version;
        let changes: Vec<ScheduleChange> = grants
            .iter()
            .filter(|grant| self.hosts.contains_key(&grant.host))
            .map(|grant| ScheduleChange { host: grant.host.clone(), window, amounts: grant.amounts.clone(), kind })
            .collect();
        self.version.change += changes.len() as u64;
        self.outputs.push_back(Output::Publish(ScheduleUpdateParts { from, changes }));
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
    /// What does not hold, in words.
    pub fn sanity_check(&self) -> Result<(), String> {
        let held = self.bookings.values().filter(|booking| booking.is_held()).count();
        let counted: usize = self.held_by.values().sum();
        if held != counted {
            return Err(format!("{held} holds stand, {counted} counted"));
        }
        let waiting = self.bookings.values().filter(|booking| booking.state.wakes_at().is_some()).count();
        if waiting != self.timers.len() {
            return Err(format!("{waiting} bookings wait, {} timers are armed", self.timers.len()));
        }
        self.check_accounts()?;
        for (id, host) in &self.hosts {
            for (name, occupancy) in host.promised.occupancies() {
                let capacity = crate::resources::amount_of(&host.host.capacity, name);
                for (at, used) in occupancy.steps() {
                    let own = host.own.occupancy(name).map_or_else(Default::default, |own| own.used_at(at));
                    if used > capacity.max(own) {
                        return Err(format!("host {id}: {used} of {name} promised at {}, capacity {capacity}", at.0));
                    }
                }
            }
        }
        Ok(())
    }
}
