//! What the site has promised: its bookings, and on the books of each host and of the uplink the sum of what they take.
//!
//! Invariant: bookings and books are read everywhere and changed here only, all by one function, `exchange`, which puts what a booking is
//! in the place of what it was: what it takes, whether others see that, and what counts it. So none that begins, changes or ends leaves a half
//! of it behind, nor does a trial. Room is found before ([`Ledger::admit`]).

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use super::{Booking, Books, Ledger, shares::Shares, uplink::Taken};
use crate::{
    ids::HostId,
    protocol::{AttemptId, Grant},
    resources::Amounts,
    tariff::Tariff,
    time::{Now, Time, Window},
};

/// A time before every seat: the whole of a booking is put on the books.
const ALWAYS: Time = Time(i64::MIN);

/// A value that all of the ledger reads and this module alone changes.
#[derive(Debug, Default)]
pub(super) struct ReadOnly<T>(T);

impl<T> Deref for ReadOnly<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Changes of bookings since a trial began, the oldest first; none outside of a trial.
#[derive(Debug, Default)]
pub(super) struct Trial(Option<Vec<Step>>);

/// A change of a booking from a time on: what it was.
#[derive(Debug)]
struct Step {
    attempt: AttemptId,
    before: Option<Booking>,
    from: Time,
}

/// Amounts that a booking has on the books, and whether published schedules show them.
struct Owed<'b> {
    taken: Taken<'b>,
    is_shown: bool,
}

impl<B: Books> Ledger<B> {
    /// A booking begins. There must be room for it, unless it has begun before.
    pub(super) fn begin(&mut self, booking: Booking) {
        let displaced = self.exchange(&booking.attempt.clone(), Some(booking), ALWAYS);
        debug_assert!(displaced.is_none(), "an attempt has one booking");
    }

    /// A booking ends, and from a time on what it takes is free.
    pub(super) fn end(&mut self, attempt: &AttemptId, from: Time) -> Option<Booking> {
        let booking = self.exchange(attempt, None, from)?;
        self.floating.forget(attempt);
        Some(booking)
    }

    /// Changes a booking; as it was before.
    pub(super) fn amend(&mut self, attempt: &AttemptId, change: impl FnOnce(&mut Booking)) -> Option<Booking> {
        self.amend_from(attempt, ALWAYS, change)
    }

    /// Changes a booking, and the books from a time on only; the booking as it was before.
    pub(super) fn amend_from(
        &mut self,
        attempt: &AttemptId,
        from: Time,
        change: impl FnOnce(&mut Booking),
    ) -> Option<Booking> {
        let mut booking = self.bookings.get(attempt)?.clone();
        change(&mut booking);
        self.exchange(attempt, Some(booking), from)
    }

    /// All seats of a booking end then instead, at their start at the earliest; as it was before.
    pub(super) fn end_at(&mut self, attempt: &AttemptId, end: Time) -> Option<Booking> {
        let booking = self.bookings.get(attempt)?;
        let from = booking.grants.iter().map(|grant| grant.window.end).fold(end, Time::min);
        self.amend_from(attempt, from, |booking| {
            let windows = booking.grants.iter_mut().map(|grant| &mut grant.window).chain([&mut booking.window]);
            windows.for_each(|window| window.end = end.max(window.start));
        })
    }

    /// The result of a trial, after which all bookings are as before. What else it changes stays so.
    pub(super) fn try_out<R>(&mut self, trial: impl FnOnce(&mut Self) -> R) -> R {
        let (outer, settled_before) = (self.trial.0.replace(Vec::new()), self.settled_before);
        let result = trial(self);
        for Step { attempt, before, from } in self.trial.0.take().into_iter().flatten().rev() {
            let was_taken_out = before.as_ref().is_some_and(|booking| !booking.is_held());
            if self.exchange(&attempt, before, from).is_none() && was_taken_out {
                // Nobody knows any more whether a seat has moved since it was written.
                self.note_unwritten(&attempt);
            }
        }
        (self.trial.0, self.settled_before) = (outer, settled_before);
        result
    }

    /// Puts other books into force, without a booking on them, where there is none.
    pub(super) fn put_units(&mut self, units: Vec<B>) {
        debug_assert!(self.bookings.is_empty(), "what they take would be on no books");
        let mut hosts: BTreeMap<HostId, B> = units.into_iter().map(|books| (books.host().id.clone(), books)).collect();
        let uplink = hosts.remove(&HostId::uplink());
        self.shares = Shares::of(hosts.values().map(Books::host), uplink.as_ref().map(Books::host));
        (self.hosts, self.uplink) = (ReadOnly(hosts), ReadOnly(uplink));
    }

    /// Puts other tariffs into force for the hosts that are named. What is promised stays. Outputs follow where a class is now told
    /// by name, or by count again.
    pub fn set_tariffs(&mut self, now: Now, mut tariffs: BTreeMap<HostId, Arc<Tariff>>) {
        self.bind_due(now);
        for (id, host) in &mut self.hosts.0 {
            if let Some(tariff) = tariffs.remove(id) {
                host.set_tariff(tariff);
            }
        }
        self.tell_of_tariffs();
    }

    /// Clears the books before `time`.
    pub(super) fn forget_books_before(&mut self, time: Time) {
        for unit in self.hosts.0.values_mut().chain(&mut self.uplink.0) {
            unit.forget_before(time);
        }
        self.forgotten = self.forgotten.max(time);
    }

    /// From when on is free what is given back: the past is not, and may have been cleared already.
    pub(super) fn free_from(&self, now: Now) -> Time {
        now.utc.max(self.forgotten)
    }

    /// Grants of a booking from a time on, without those that end before.
    pub(super) fn rest_of(&self, from: Time, booking: &Booking) -> Vec<Grant> {
        let rest = |grant: &Grant| {
            let window = Window { start: grant.window.start.max(from), ..grant.window };
            (window.start < window.end).then(|| Grant { window, ..grant.clone() })
        };
        self.taken_by(booking).iter().filter_map(rest).collect()
    }

    /// Puts one state of a booking in the place of another, and returns the former one. All that begins, changes or ends a booking goes
    /// through here. Before `from` the books stay as they are, and so they do where they were cleared: what a booking had put there is gone.
    fn exchange(&mut self, attempt: &AttemptId, after: Option<Booking>, from: Time) -> Option<Booking> {
        let from = from.max(self.forgotten);
        let before = self.bookings.0.remove(attempt);
        self.exchange_owed(before.as_ref(), after.as_ref(), from);
        before.iter().for_each(|booking| self.uncount(booking));
        after.iter().for_each(|booking| self.count(booking));
        if let Some(steps) = &mut self.trial.0 {
            steps.push(Step { attempt: attempt.clone(), before: before.clone(), from });
        }
        self.bookings.0.extend(after.map(|booking| (attempt.clone(), booking)));
        before
    }

    /// Puts the grants of one state in the place of those of another, on the books and in the shares of users.
    fn exchange_owed(&mut self, before: Option<&Booking>, after: Option<&Booking>, from: Time) {
        let [old, new] = [before, after].map(|booking| booking.map(|booking| self.owed_by(booking)));
        if old.is_none() || new.is_none() || !grants_of(&old).map(use_of).eq(grants_of(&new).map(use_of)) {
            if let Some((booking, owed)) = before.zip(old.as_ref()) {
                self.shares.remove(&self.site, booking, &owed.taken);
            }
            if let Some((booking, owed)) = after.zip(new.as_ref()) {
                self.shares.add(&self.site, booking, &owed.taken);
            }
        }
        let shown = [&old, &new].map(|owed| owed.as_ref().is_some_and(|owed| owed.is_shown));
        let (mut olds, mut news) = (grants_of(&old), grants_of(&new));
        loop {
            match (olds.next(), news.next()) {
                (None, None) => break,
                pair => self.exchange_one(pair, shown, from),
            }
        }
    }

    fn owed_by<'b>(&self, booking: &'b Booking) -> Owed<'b> {
        Owed { taken: self.taken_by(booking), is_shown: self.is_shown(booking) }
    }

    /// Puts one grant on the books in the place of another, from a time on. The sums do not depend on which grants are paired.
    fn exchange_one(
        &mut self,
        (old, new): (Option<&Grant>, Option<&Grant>),
        [was_shown, is_shown]: [bool; 2],
        from: Time,
    ) {
        let rest = |grant: &Grant| Window { start: grant.window.start.max(from), ..grant.window };
        let past = |grant: &Grant| Window { end: grant.window.end.min(from), ..grant.window };
        let alike = old.zip(new).filter(|(old, new)| old.host() == new.host() && old.amounts == new.amounts);
        if alike.is_none_or(|(old, new)| past(old) != past(new)) {
            let over = [old, new].into_iter().flatten().map(past).filter(|past| past.start < past.end);
            self.settled_before = over.fold(self.settled_before, |before, past| before.max(past.end));
        }
        let stays = was_shown <= is_shown && alike.is_some_and(|(old, new)| rest(old) == rest(new));
        if stays && was_shown == is_shown {
            return;
        }
        let with_rest = |grant| Some((grant, rest(grant))).filter(|(_, rest)| rest.start < rest.end);
        if let Some((grant, rest)) = old.filter(|_| !stays).and_then(with_rest) {
            if was_shown {
                self.told.unpin(&grant.place, rest.start);
            }
            if let Some(books) = self.unit_mut(grant.host()) {
                books.release(rest, &grant.amounts, was_shown);
            }
        }
        if let Some((grant, rest)) = new.and_then(with_rest) {
            if is_shown {
                self.told.pin(&grant.place, rest.start, self.present());
            }
            if let Some(books) = self.unit_mut(grant.host()) {
                if !stays {
                    books.hold(rest, &grant.amounts);
                }
                if is_shown {
                    books.confirm(rest, &grant.amounts);
                }
            }
        }
    }

    fn unit_mut(&mut self, id: &HostId) -> Option<&mut B> {
        if id.is_uplink() { self.uplink.0.as_mut() } else { self.hosts.0.get_mut(id) }
    }

    fn count(&mut self, booking: &Booking) {
        if let Some(at) = booking.state.wakes_at() {
            self.timers.insert((at, booking.attempt.clone()));
        }
        if booking.is_held() {
            *self.held_by.entry(booking.attempt.entry_point.clone()).or_default() += 1;
        }
        self.accounts.add(booking);
        self.floating.insert(booking);
    }

    fn uncount(&mut self, booking: &Booking) {
        self.accounts.remove(booking);
        self.floating.take(booking);
        if let Some(at) = booking.state.wakes_at() {
            self.timers.remove(&(at, booking.attempt.clone()));
        }
        if booking.is_held()
            && let Some(count) = self.held_by.get_mut(&booking.attempt.entry_point)
        {
            *count -= 1;
            if *count == 0 {
                self.held_by.remove(&booking.attempt.entry_point);
            }
        }
    }
}

/// Window and amounts of a grant, whatever its host.
fn use_of(grant: &Grant) -> (Window, &Amounts) {
    (grant.window, &grant.amounts)
}

fn grants_of<'o>(owed: &'o Option<Owed<'_>>) -> impl Iterator<Item = &'o Grant> {
    owed.iter().flat_map(|owed| owed.taken.iter())
}

#[cfg(test)]
#[path = "promises_tests.rs"]
pub(super) mod tests;
