//! What a ledger takes in when it is opened, and anew when the owner changes the hosts.
//!
//! Invariant: what the owner changes while the site runs has the outcome that it would have after a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Accounts, Booking, BookingRecord, BookingState, Books, Ended, Expiring, Floating, HostLedger, Kept, Lapses, Ledger,
    LedgerLimits, Output, Queue, RETURNED_APART, ReadOnly, ScheduleUpdateParts, Shares, Terms, Told, Tombstones, Trial,
};
use crate::{
    host::Host,
    ids::SiteId,
    protocol::{AttemptId, LedgerVersion},
    schedule::Schedule,
    time::{Millis, Now, Span, Time},
    trust::SharedGate,
};

impl Ledger {
    /// [`Ledger::open_with`] the books of the product.
    #[must_use]
    pub fn open(
        site: SiteId,
        limits: LedgerLimits,
        incarnation: u64,
        gate: impl Into<SharedGate>,
        hosts: Vec<(Host, Schedule)>,
        kept: impl Into<Kept>,
        now: Now,
    ) -> (Ledger, Vec<BookingRecord>) {
        let hosts = hosts.into_iter().map(|(host, own)| HostLedger::new(host, own)).collect();
        Ledger::open_with(site, limits, incarnation, gate, hosts, kept, now)
    }
}

impl<B: Books> Ledger<B> {
    /// Opens the ledger of a site with its hosts, the owner's own work, and what is on disk. An uplink with a limit is given among the
    /// hosts ([`unit_of`](crate::uplinks::unit_of)).
    ///
    /// Where the owner has taken a host or a part of it away, a booking that has not begun loses the hosts that it no longer fits
    /// on, and its coordinator learns so when it asks; one that has begun is kept. Both are returned as they were on disk, to be
    /// shown to the owner.
    #[must_use]
    pub fn open_with(
        site: SiteId,
        limits: LedgerLimits,
        incarnation: u64,
        gate: impl Into<SharedGate>,
        hosts: Vec<B>,
        kept: impl Into<Kept>,
        now: Now,
    ) -> (Ledger<B>, Vec<BookingRecord>) {
        let tombstones = Tombstones::new(limits.max_tombstones);
        let ended = Ended::new(limits.max_tombstones);
        let evicted = Expiring::new(limits.max_tombstones);
        let charged = Expiring::new(limits.max_tombstones);
        let spent = Expiring::new(limits.max_tombstones);
        let terms = Terms::new(limits.max_tombstones);
        let lapses = Lapses::new(limits.lapse_forgiven_in);
        let mut ledger = Ledger {
            site,
            limits,
            version: LedgerVersion { incarnation, change: 0 },
            gate: gate.into(),
            key: None,
            hosts: ReadOnly::default(),
            uplink: ReadOnly::default(),
            bookings: ReadOnly::default(),
            trial: Trial::default(),
            timers: BTreeSet::new(),
            held_by: BTreeMap::new(),
            accounts: Accounts::default(),
            shares: Shares::default(),
            lapses,
            tombstones,
            evicted,
            ended,
            charged,
            spent,
            terms,
            queue: Queue::default(),
            forgotten: Time::ZERO,
            settled_before: Time::ZERO,
            begun: BTreeSet::new(),
            outputs: VecDeque::new(),
            floating: Floating::new(now),
            told: Told::default(),
        };
        ledger.put_units(hosts);
        let kept = kept.into();
        ledger.know_jobs(kept.queue);
        let misfits = ledger.take_in_all(now, kept.bookings);
        ledger.take_in_ended(now, kept.gone);
        ledger.write_moved(None);
        ledger.tell_anew();
        kept.charges.iter().for_each(|charge| ledger.remember_charge(charge));
        ledger.take_in_queue(now);
        (ledger, misfits)
    }

    /// The owner changes hosts, their capacities, own work or uplink while the site runs. Bookings stay or lose hosts, and are returned, as when a
    /// ledger is opened with these hosts; holds end, and their coordinators plan again. Others see a version that no change leads to,
    /// and fetch the schedules anew.
    pub fn replace_hosts(&mut self, now: Now, hosts: Vec<B>) -> Vec<BookingRecord> {
        self.queue.forget_plan();
        self.bind_due(now);
        let unwritten = self.take_unwritten();
        let attempts: Vec<AttemptId> = self.bookings.keys().cloned().collect();
        let free_from = self.free_from(now);
        let bookings: Vec<Booking> = attempts.iter().filter_map(|attempt| self.end(attempt, free_from)).collect();
        let (holds, reservations): (Vec<_>, Vec<_>) = bookings.into_iter().partition(Booking::is_held);
        holds.iter().for_each(|hold| self.bury(now, &hold.attempt));
        self.begun.clear();
        self.put_units(hosts);
        let misfits = self.take_in_all(now, reservations.iter().map(Booking::to_booking_record).collect());
        unwritten.iter().for_each(|attempt| self.note_unwritten(attempt));
        self.write_moved(None);
        self.tell_anew();
        self.version.change += 1;
        self.outputs.push_back(Output::Publish(ScheduleUpdateParts { from: self.version, changes: Vec::new() }));
        self.replan_queue(now);
        misfits
    }

    /// Enters bookings from disk; those that do not fit any more.
    fn take_in_all(&mut self, now: Now, bookings: Vec<BookingRecord>) -> Vec<BookingRecord> {
        // A booking that has begun stays in any case, so the others give way to it.
        let (begun, others): (Vec<_>, Vec<_>) =
            bookings.into_iter().partition(|reservation| reservation.window.start <= now.utc);
        let floats = |reservation: &BookingRecord| reservation.grants.iter().any(|grant| grant.place.is_floating());
        let (mut floating, others): (Vec<_>, Vec<_>) = others.into_iter().partition(floats);
        let mut misfits: Vec<BookingRecord> = Vec::new();
        misfits.extend(begun.into_iter().filter(|reservation| !self.replay(reservation, now)));
        // One that loses a host in any case may put more on the uplink with those that are left: what has lost nothing comes first.
        let has_hosts =
            |reservation: &BookingRecord| reservation.grants.iter().all(|grant| self.fits_still(grant, now));
        let (whole, reduced): (Vec<_>, Vec<_>) = others.into_iter().partition(has_hosts);
        misfits.extend(whole.into_iter().chain(reduced).filter(|reservation| !self.replay(reservation, now)));
        // What floats goes where the others leave room; of too many, the fewest are lost when the first to end go first.
        floating.sort_by_key(|reservation| reservation.window.end);
        misfits.extend(floating.into_iter().filter(|reservation| !self.replay(reservation, now)));
        misfits
    }

    /// Enters one booking from disk; false when it does not fit any more.
    pub(super) fn replay(&mut self, reservation: &BookingRecord, now: Now) -> bool {
        let has_begun = reservation.window.start <= now.utc;
        let mut grants = Vec::with_capacity(reservation.grants.len());
        let mut lost = reservation.lost.clone();
        let mut fits = true;
        let housed = self.rehoused(now, reservation);
        let has_moved = housed.iter().map(|(grant, _)| grant).ne(&reservation.grants);
        for (grant, is_housed) in &housed {
            let fits_here = *is_housed && self.fits_beside(&grants, grant, now);
            fits &= fits_here;
            if !fits_here && !has_begun {
                lost.push(grant.clone());
                continue;
            }
            grants.push(grant.clone());
        }
        let talk = reservation.talk.as_deref().copied();
        if let Some(load) = self.load_of(talk, grants.len(), reservation.window) {
            let bears = self.fits_still(&load, now);
            fits &= bears;
            if !bears && !has_begun {
                lost.append(&mut grants);
            }
        }
        if has_begun {
            self.begun.insert(reservation.attempt.clone());
        }
        // A booking that has lost all its hosts stays as well: otherwise this site would answer the other participants that the
        // attempt never was complete.
        let is_final = has_begun || self.is_local(&reservation.attempt);
        let state = match (reservation.settled, is_final) {
            (true, true) => BookingState::Settled,
            (true, false) => BookingState::Returned {
                ask_at: now.monotonic + Millis(RETURNED_APART.0 * self.bookings.len() as u64),
                asked: 0,
            },
            (false, _) => BookingState::confirmed(now.monotonic),
        };
        let is_reduced = grants.len() < reservation.grants.len();
        let may_wait = !is_reduced && reservation.window.start > self.open_from();
        let booking = Booking {
            attempt: reservation.attempt.clone(),
            variant: reservation.variant,
            window: reservation.window,
            grants,
            participants: reservation.participants.clone(),
            user: reservation.user.clone(),
            user_key: reservation.user_key,
            account: reservation.account.or(reservation.user_key),
            lineage: reservation.lineage.clone(),
            network: reservation.network.clone(),
            statement: reservation.statement.clone(),
            coordinator: reservation.coordinator.clone(),
            fed_as: reservation.fed_as.clone(),
            is_substituted: reservation.is_substituted,
            confirmed: reservation.confirmed,
            lost,
            talk,
            slack: if may_wait { reservation.slack } else { Span::default() },
            wait: reservation.wait,
            state,
        };
        self.begin(booking);
        if is_reduced || has_moved {
            self.note_unwritten(&reservation.attempt);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{Event, ReplyToken, tests::*},
        *,
    };
    use crate::{
        protocol::{SiteAnswer, SiteRequest},
        time::Window,
        trust::testing,
    };

    fn put(ledger: &mut Ledger) -> Vec<BookingRecord> {
        let mut records = Vec::new();
        while let Some(output) = ledger.poll_output() {
            if let Output::Persist(record) = output {
                records.extend(record.put().iter().cloned());
            }
        }
        records
    }

    proptest! {
        #[test]
        fn hosts_that_change_have_the_outcome_of_a_restart(
            asked in prop::collection::vec((990_i64..1_200, 1_u64..2_500, 0..3), 1..12),
            capacities in [0_u64..4_000, 0_u64..4_000],
            own in 0_u64..2_000,
            after_s in 0_u64..150,
        ) {
            let mut ledger = ledger();
            for (number, (start, amount, step)) in (0..).zip(&asked) {
                let attempt = attempt(&format!("r{number}"), 1);
                ask(&mut ledger, at(0), "entry", hold(attempt.clone(), (*start).max(1_000), *amount));
                if *step > 0 {
                    ask(&mut ledger, at(0), "entry", confirm(attempt.clone()));
                }
                if *step > 1 {
                    ask(&mut ledger, at(0), "entry", SiteRequest::Settle(attempt));
                }
            }
            let now = at(after_s * 1_000);
            let changed = || {
                let mut hosts = Vec::new();
                for (name, capacity) in ["h1", "h3"].into_iter().zip(capacities) {
                    let mut work = Schedule::default();
                    work.add(Window { start: Time(1_020), end: Time(1_120) }, &cpu(own.min(capacity)));
                    if capacity > 500 {
                        hosts.push((Host { capacity: cpu(capacity), ..host(name) }, work));
                    }
                }
                hosts
            };
            let on_disk = ledger.bookings().filter(|booking| !booking.is_held()).map(Booking::to_booking_record);
            let (site, limits) = (id("site"), LedgerLimits::default());
            let (mut again, misfits) =
                Ledger::open(site, limits, 8, testing::open_gate(), changed(), on_disk.collect::<Vec<_>>(), now);
            let before = ledger.version();
            let held: Vec<_> = ledger.bookings().filter(|booking| booking.is_held()).map(|one| one.attempt.clone()).collect();
            put(&mut ledger);
            let books = changed().into_iter().map(|(host, own)| HostLedger::new(host, own)).collect();
            prop_assert_eq!(ledger.replace_hosts(now, books), misfits);
            prop_assert_eq!(ledger.sanity_check(), Ok(()));
            prop_assert!(ledger.version() > before && ledger.version().incarnation == before.incarnation);
            prop_assert_eq!(put(&mut ledger), put(&mut again));
            prop_assert_eq!(ledger.bookings().collect::<Vec<_>>(), again.bookings().collect::<Vec<_>>());
            prop_assert_eq!(ledger.snapshot(now).schedules, again.snapshot(now).schedules);
            prop_assert_eq!(ledger.poll_timeout(), again.poll_timeout());
            for attempt in held {
                let request = confirm(attempt);
                ledger.handle(now, Event::Request { from: id("entry"), network: None, token: ReplyToken(1), request });
                let outputs: Vec<_> = std::iter::from_fn(|| ledger.poll_output()).collect();
                let is_refused = outputs
                    .iter()
                    .any(|output| matches!(output, Output::Reply { answer: SiteAnswer::Refused(_), .. }));
                prop_assert!(is_refused, "{:?}", outputs);
            }
        }
    }
}
