//! Seats that float: promised on one of a class of hosts, bound to one of them when they begin.
//!
//! Until then such a seat has a host in the books like any other, so that the one check of room holds for it; together these hosts are the
//! witness that every promise can be kept. The ledger gives it another host of its class where that makes room. Invariants: a seat that has
//! begun never moves, unless the owner's hook fails on its host ([`unusable`]); who has moved is on disk, all at once, before anything that needs the room; other sites hear of it only through the
//! schedules.
//!
//! What floats: seats on hosts of a class, unless the request names hosts, or its coordinator counts on the hosts that it has named
//! ([`HoldRequest::may_substitute`](crate::protocol::HoldRequest::may_substitute)).

mod arrangement;
#[cfg(test)]
pub(super) mod tests;
mod unusable;

use std::collections::BTreeSet;

pub(super) use self::arrangement::{Arrangement, Wanted};
pub use self::unusable::Unusable;
use super::{Booking, BookingRecord, Books, Ledger, Output, Record, seating::MOVES_MAX};
use crate::{
    ids::{HostId, RequestId},
    plan::Place,
    protocol::{AttemptId, Grant},
    time::{Millis, Now, Span, Time},
    trust::PublicKey,
};

/// What floats, and what of it has moved.
#[derive(Debug)]
pub(super) struct Floating {
    /// Bookings with a floating seat, or that may yet wait for own jobs, by the first start of one such seat.
    by_start: BTreeSet<(Time, AttemptId)>,
    /// Bookings with seats that have moved since they were written.
    unwritten: BTreeSet<AttemptId>,
    /// When the ledger was last called.
    seen: Now,
}

impl Floating {
    pub(super) fn new(now: Now) -> Floating {
        Floating { by_start: BTreeSet::new(), unwritten: BTreeSet::new(), seen: now }
    }

    /// When the ledger was last called.
    pub(super) fn seen(&self) -> Time {
        self.seen.utc
    }

    pub(super) fn insert(&mut self, booking: &Booking) {
        self.by_start.extend(binds_from(booking).map(|start| (start, booking.attempt.clone())));
    }

    pub(super) fn take(&mut self, booking: &Booking) {
        if let Some(start) = binds_from(booking) {
            self.by_start.remove(&(start, booking.attempt.clone()));
        }
    }

    /// The bookings with what is to be bound by then.
    pub(super) fn due(&self, until: Time) -> Vec<AttemptId> {
        let due = self.by_start.iter().take_while(|(start, _)| *start <= until);
        due.map(|(_, attempt)| attempt.clone()).collect()
    }

    /// A booking is gone for good.
    pub(super) fn forget(&mut self, attempt: &AttemptId) {
        self.unwritten.remove(attempt);
    }
}

/// The first start of a seat that is not bound, or may begin later.
fn binds_from(booking: &Booking) -> Option<Time> {
    let is_open = |grant: &&Grant| grant.place.is_floating() || !booking.slack.is_zero();
    booking.grants.iter().filter(is_open).map(|grant| grant.window.start).min()
}

impl<B: Books> Ledger<B> {
    /// The time from which on seats can float.
    pub(super) fn open_from(&self) -> Time {
        self.open_from_at(self.floating.seen)
    }

    fn open_from_at(&self, now: Now) -> Time {
        (now.utc + self.limits.bound_before).max(self.forgotten)
    }

    /// The grants of a booking on disk with the hosts that its floating seats have now, each with whether it has one: those on disk where
    /// there is room, else others of the class if there are any. What has begun while the site was down is bound.
    pub(super) fn rehoused(&mut self, now: Now, reservation: &BookingRecord) -> Vec<(Grant, bool)> {
        let request = &reservation.attempt.request;
        let mut grants: Vec<(Grant, bool)> = reservation.grants.iter().map(|grant| (grant.clone(), true)).collect();
        let floating: Vec<usize> = (0..grants.len()).filter(|at| grants[*at].0.place.is_floating()).collect();
        let is_housed = |at: &usize| {
            let grant = &grants[*at].0;
            self.fits_still(grant, now) && !self.shares_with_floating(std::slice::from_ref(grant), request)
        };
        if !floating.iter().all(is_housed) {
            let (mut kept, mut found): (Vec<usize>, _) = (Vec::new(), None);
            for at in floating {
                let wanted: Vec<Grant> = kept.iter().chain([&at]).map(|at| grants[*at].0.clone()).collect();
                let arranged = self.arranged(&Wanted { grants: &wanted, request: Some(request), floats: true });
                grants[at].1 = arranged.is_some();
                if arranged.is_some() {
                    kept.push(at);
                    found = arranged;
                }
            }
            if let Some(found) = found {
                self.move_seats(&found);
                kept.into_iter().zip(found.given).for_each(|(at, grant)| grants[at].0 = grant);
            }
        }
        let open_from = self.open_from();
        for (grant, _) in &mut grants {
            let is_late =
                self.hosts.get(grant.host()).is_some_and(|books| books.class() == Some(grant.place.promised()));
            if !is_late || grant.window.start <= open_from {
                bind_one(grant);
            }
        }
        grants
    }

    /// What has moved since it was written, so that it is not forgotten while all bookings are entered anew.
    pub(super) fn take_unwritten(&mut self) -> BTreeSet<AttemptId> {
        std::mem::take(&mut self.floating.unwritten)
    }

    /// Notes that a booking is not on disk as it is.
    pub(super) fn note_unwritten(&mut self, attempt: &AttemptId) {
        if self.bookings.contains_key(attempt) {
            self.floating.unwritten.insert(attempt.clone());
        }
    }

    /// Notes the time, and binds what begins, where it disturbs own work least.
    pub(super) fn bind_due(&mut self, now: Now) {
        let open_from = self.open_from_at(now);
        if !self.floating.due(open_from).is_empty() {
            self.spare_own_jobs(now, open_from);
        }
        self.floating.seen = now;
        for attempt in self.floating.due(open_from) {
            let changed = self.amend(&attempt, |booking| bind(booking, open_from));
            if changed.is_some_and(|booking| !booking.is_held()) {
                self.persist(&attempt);
            }
        }
    }

    /// Binds all of a user's request, since the user counts on the hosts and on the end: what lengthens it is to be on the same, and at once.
    pub(super) fn bind_all_of(&mut self, user: PublicKey, request: &RequestId) {
        let floats = |booking: &&Booking| !booking.is_held() && binds_from(booking).is_some();
        let attempts: Vec<AttemptId> =
            self.of_request(user, request).filter(floats).map(|one| one.attempt.clone()).collect();
        for attempt in attempts {
            self.amend(&attempt, |booking| bind(booking, Time(i64::MAX)));
            self.persist(&attempt);
        }
    }

    /// When the next seat is to be bound.
    pub(super) fn binds_at(&self) -> Option<Millis> {
        let (start, _) = self.floating.by_start.first()?;
        let left = start.since(self.open_from()).0.saturating_mul(1_000);
        Some(self.floating.seen.monotonic + Millis(left))
    }

    /// Writes a booking together with what has moved since it was written.
    pub(super) fn persist(&mut self, attempt: &AttemptId) {
        self.write_moved(Some(attempt));
    }

    /// Writes what has moved since it was written, and after it, in one, a booking that may need the room. Without one nothing rests on
    /// what is written, so it may be many records of [`MOVES_MAX`] bookings: after a restart or a change of hosts more may have moved.
    pub(super) fn write_moved(&mut self, last: Option<&AttemptId>) {
        let moved = std::mem::take(&mut self.floating.unwritten);
        let attempts = moved.iter().filter(|attempt| Some(*attempt) != last).chain(last);
        let bookings = attempts.filter_map(|attempt| self.bookings.get(attempt));
        let mut records: Vec<BookingRecord> = bookings.map(Booking::to_booking_record).collect();
        let most = if last.is_some() { records.len() } else { MOVES_MAX };
        while !records.is_empty() {
            let rest = records.split_off(most.min(records.len()));
            let record = match <[BookingRecord; 1]>::try_from(records) {
                Ok([one]) => Record::Put(one),
                Err(all) => Record::PutAll(all),
            };
            self.outputs.push_back(Output::Persist(record));
            records = rest;
        }
    }

    /// The class of a host whose seats are bound late, for a seat of these grants.
    fn class_of(&self, grant: &Grant) -> Option<HostId> {
        match &grant.place {
            Place::Floating { class, .. } => Some(class.clone()),
            Place::Host(host) | Place::Bound { host, .. } => self.hosts.get(host)?.class().cloned(),
        }
    }

    /// The same grants, those floating that may.
    pub(super) fn floated(&self, grants: Vec<Grant>) -> Vec<Grant> {
        let open_from = self.open_from();
        let float = |mut grant: Grant| {
            if let (Place::Host(host), true) = (&grant.place, grant.window.start > open_from)
                && let Some(class) = self.class_of(&grant)
            {
                grant.place = Place::Floating { class, host: host.clone() };
            }
            grant
        };
        grants.into_iter().map(float).collect()
    }

    /// Whether what is wanted shares no host with a seat of the same request that floats.
    pub(super) fn stands_apart(&self, wanted: &Wanted<'_>) -> bool {
        wanted.request.is_none_or(|request| !self.shares_with_floating(wanted.grants, request))
    }

    /// Checks the module's invariants from scratch.
    pub(super) fn check_floating(&self) -> Result<(), String> {
        let expected: BTreeSet<(Time, AttemptId)> =
            self.bookings.values().filter_map(|one| Some((binds_from(one)?, one.attempt.clone()))).collect();
        if expected != self.floating.by_start {
            return Err("the index of floating seats is not what the bookings say".to_owned());
        }
        for booking in self.bookings.values() {
            let is_here = booking.participants == [self.site.clone()] && booking.lost.is_empty();
            let may_wait = is_here && booking.wait.is_zero();
            if !booking.slack.is_zero() && !may_wait {
                return Err(format!("{:?}: has slack, and has waited or is not whole", booking.attempt));
            }
            let floating: Vec<&Grant> = booking.grants.iter().filter(|grant| grant.place.is_floating()).collect();
            for grant in &floating {
                let is_member =
                    self.hosts.get(grant.host()).is_some_and(|books| books.class() == Some(grant.place.promised()));
                if !is_member {
                    return Err(format!(
                        "{:?}: a floating seat on {}, which is not of its class",
                        booking.attempt,
                        grant.host()
                    ));
                }
            }
            let others = booking.grants.iter();
            let shares = |grant: &&&Grant| {
                let is_other = |other: &&Grant| other.seat != grant.seat && other.host() == grant.host();
                others.clone().any(|other| is_other(&other) && other.window.overlaps(grant.window))
            };
            if let Some(grant) = floating.iter().find(shares) {
                return Err(format!("{:?}: two seats on {}", booking.attempt, grant.host()));
            }
        }
        Ok(())
    }

    /// Whether a seat of the request that floats is on one of these hosts.
    pub(super) fn shares_with_floating(&self, grants: &[Grant], request: &RequestId) -> bool {
        let floating =
            || self.of_name(request).flat_map(|booking| &booking.grants).filter(|one| one.place.is_floating());
        grants.iter().any(|grant| floating().any(|one| one.host() == grant.host() && one.window.overlaps(grant.window)))
    }
}

/// Gives the floating seats of a booking that begin by then their hosts, and their windows, for good.
fn bind(booking: &mut Booking, until: Time) {
    if booking.window.start <= until {
        booking.slack = Span::default();
    }
    bind_seats(booking, until);
}

/// Gives the floating seats of a booking that begin by then their hosts for good; whether the booking waits is looked at when it is bound.
pub(super) fn bind_seats(booking: &mut Booking, until: Time) {
    booking.grants.iter_mut().filter(|grant| grant.window.start <= until).for_each(bind_one);
}

fn bind_one(grant: &mut Grant) {
    if let Place::Floating { class, host } = &grant.place {
        grant.place = Place::Bound { class: class.clone(), host: host.clone() };
    }
}
