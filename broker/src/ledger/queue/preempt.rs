//! Own jobs that run and that their owner allows to be stopped: a user's hold that finds no room otherwise *cuts* one, which then ends where the
//! hold begins, and begins anew later. As long as it runs and what it was cut for is gone again, it gets its time back; at the latest when
//! seats are bound, they go to free hosts of their class, or to those of a job of which less is lost.
//!
//! Source: algorithm 2 of "Dynamic grid resource reservation mechanism based on resource-reservation graph" (2011): what a host costs is how
//! long the job there has run, here since it first began, times its hosts. Invariants: only a job that may be stopped is cut, and only for
//! what was found to fit then; what is not confirmed may cut a job but stops none; others see such a job as free room, so that they ask; one
//! that is cut is in the plan, as if it waited, so what it loses counts as what a hold costs; its booking is shorter than it, by which it is
//! known after a restart.

use std::collections::BTreeSet;

use super::{OwnPlan, QueuedJob};
use crate::{
    ids::HostId,
    ledger::{
        Booking, Books, Ledger, Output, Record, admission::Room, floating::Wanted, own_plan::Cause,
        substitutes::Substitutes,
    },
    protocol::{AttemptId, Grant, RefusalReason, hull},
    quality::PlanError,
    schedule::Schedule,
    time::{Millis, Now, Span, Time, Window},
    traffic::Talk,
};

/// Most jobs that are cut for one hold, and most that are looked at when something has become free.
const CUTS_MAX: usize = 8;
/// Most times in a row that a job whose time is over is given more: each time it has at least a second more.
const SPARED_MAX: usize = 64;
/// A hold lapses so long before the seats are bound for which a job is stopped: the clock shows whole seconds.
const LAPSES_BEFORE: Span = Span(1);

/// An own job that is to end early.
#[derive(Debug)]
pub(in crate::ledger) struct Cut {
    attempt: AttemptId,
    /// What it leaves: the last part of each of its grants.
    pub freed: Vec<Grant>,
    end: Time,
    /// When it would end otherwise.
    whole: Time,
}

impl<B: Books> Ledger<B> {
    /// What comes of [`Ledger::room_for`]; for a user, at this time, perhaps in the place of own jobs that run, from that time on. They are
    /// cut in the books for as long as `then` looks.
    pub(in crate::ledger) fn room_with_cuts<R>(
        &mut self,
        (wanted, talk): (&Wanted<'_>, Option<Talk>),
        others: Option<&Substitutes<'_>>,
        user: Option<(Now, Time)>,
        then: impl FnOnce(&Ledger<B>, Room, Vec<Cut>) -> R,
    ) -> Result<R, RefusalReason> {
        let reason = match self.room_for((wanted, talk), others) {
            Ok(room) => return Ok(then(self, room, Vec::new())),
            Err(reason) => reason,
        };
        let Some((window, (now, cuts_from))) = hull(wanted.grants).zip(user) else { return Err(reason) };
        let from = window.start.max(now.utc).max(self.forgotten);
        if from < cuts_from || matches!(reason, RefusalReason::UplinkFull { .. } | RefusalReason::UnknownHost(_)) {
            return Err(reason);
        }
        let window = Window { start: from, ..window };
        let found = self.try_out(|ledger| {
            let (room, cuts) = ledger.cut_for((wanted, talk), others, window)?;
            Some(then(ledger, room, cuts))
        });
        found.ok_or(reason)
    }

    /// Cuts jobs in this window until there is room.
    fn cut_for(
        &mut self,
        (wanted, talk): (&Wanted<'_>, Option<Talk>),
        others: Option<&Substitutes<'_>>,
        window: Window,
    ) -> Option<(Room, Vec<Cut>)> {
        let mut cuts = Vec::new();
        let may_move = wanted.floats || others.is_some();
        for (_, attempt) in self.jobs_to_cut((wanted.grants, may_move), window) {
            cuts.extend(self.cut(&attempt, window.start));
            let Ok(mut room) = self.room_for((wanted, talk), others) else { continue };
            // Without the last one there was none. Of the others the dearest are spared first.
            for at in (0..cuts.len().saturating_sub(1)).rev() {
                let Cut { attempt, end, whole, .. } = &cuts[at];
                self.end_at(attempt, *whole);
                match self.room_for((wanted, talk), others) {
                    Ok(without) => {
                        room = without;
                        cuts.remove(at);
                    }
                    Err(_) => drop(self.end_at(attempt, *end)),
                }
            }
            return Some((room, cuts));
        }
        None
    }

    /// Whether an own job may be stopped.
    pub(in crate::ledger) fn may_stop(&self, attempt: &AttemptId) -> bool {
        self.queue.jobs.get(attempt).is_some_and(|job| job.preempt)
    }

    /// Whether others see what a booking takes: holds they do not, nor own jobs that may be stopped.
    pub(in crate::ledger) fn is_shown(&self, booking: &Booking) -> bool {
        !booking.is_held() && !self.may_stop(&booking.attempt)
    }

    /// What is promised of a host, without own jobs that may be stopped.
    pub(in crate::ledger) fn without_stoppable(&self, books: &B) -> Schedule {
        let mut promised = books.promised().clone();
        let jobs = self.queue.jobs.iter().filter(|(_, job)| job.preempt);
        let bookings = jobs.filter_map(|(attempt, _)| self.bookings.get(attempt));
        for grant in bookings.flat_map(|booking| &booking.grants).filter(|grant| *grant.host() == books.host().id) {
            // The books know nothing of what has passed.
            let window = Window { start: grant.window.start.max(self.forgotten), ..grant.window };
            let freed = if window.is_valid() { promised.remove(window, &grant.amounts) } else { Ok(()) };
            debug_assert!(freed.is_ok(), "what runs is in the books");
        }
        promised
    }

    /// The hosts of these grants, and the others of their classes.
    pub(super) fn near(&self, grants: &[Grant]) -> BTreeSet<HostId> {
        let named: BTreeSet<&HostId> = grants.iter().map(Grant::host).collect();
        let classes: BTreeSet<&HostId> = named.iter().filter_map(|host| self.hosts.get(*host)?.class()).collect();
        let of_class = |books: &&B| books.class().is_some_and(|class| classes.contains(class));
        let others = self.hosts.values().filter(of_class).map(|books| &books.host().id);
        others.chain(named.iter().copied()).cloned().collect()
    }

    /// The jobs that may be stopped and that run in this window on hosts that are wanted, or, where seats may move, on others of their
    /// classes, each with what is lost of it: those first of which least is.
    fn jobs_to_cut(&self, (wanted, may_move): (&[Grant], bool), window: Window) -> Vec<(u64, AttemptId)> {
        if !self.queue.jobs.values().any(|job| job.preempt) {
            return Vec::new();
        }
        let near = if may_move { self.near(wanted) } else { wanted.iter().map(Grant::host).cloned().collect() };
        let may_stop = |(attempt, job): (&AttemptId, &QueuedJob)| {
            let booking = self.bookings.get(attempt).filter(|_| job.preempt)?;
            let is_there = booking.window.overlaps(window) && is_on(booking, &near);
            is_there.then(|| (lost_of(job, booking, window.start), attempt.clone()))
        };
        let mut jobs: Vec<(u64, AttemptId)> = self.queue.jobs.iter().filter_map(may_stop).collect();
        jobs.sort_unstable();
        jobs.truncate(CUTS_MAX);
        jobs
    }

    /// A job ends then, in a trial.
    fn cut(&mut self, attempt: &AttemptId, end: Time) -> Option<Cut> {
        let whole = self.end_at(attempt, end)?;
        Some(Cut { attempt: attempt.clone(), freed: self.rest_of(end, &whole), end, whole: whole.window.end })
    }

    /// The jobs end so, on disk.
    pub(in crate::ledger) fn make_cuts(&mut self, cuts: Vec<Cut>) {
        for Cut { attempt, end, .. } in cuts {
            if self.bookings.get(&attempt).is_some_and(|booking| end <= booking.window.start) {
                // It has begun in this second.
                self.stop(&attempt, end);
                continue;
            }
            if self.end_at(&attempt, end).is_some() {
                self.persist(&attempt);
                self.queue.cut.insert(attempt);
            }
        }
    }

    /// A job that has run until then waits again. What it has lost is on disk before its booking goes.
    fn stop(&mut self, attempt: &AttemptId, end: Time) {
        self.queue.cut.remove(attempt);
        let (Some(booking), Some(job)) = (self.end(attempt, end), self.queue.jobs.get_mut(attempt)) else { return };
        self.begun.remove(attempt);
        job.first_begun.get_or_insert(booking.window.start);
        self.outputs.push_back(Output::Persist(Record::Queue(job.clone())));
        self.outputs.push_back(Output::Persist(Record::Remove(attempt.clone())));
    }

    /// A plan from nothing of these jobs too.
    pub(super) fn plan_with_cuts(&self, now: Time, cuts: &[Cut]) -> Option<OwnPlan> {
        let jobs = cuts.iter().filter_map(|cut| self.queue.jobs.get(&cut.attempt)).cloned();
        self.plan_from_nothing(now, &jobs.collect::<Vec<_>>()).ok()?
    }

    /// Puts jobs that are to be cut into a plan as if they waited.
    pub(super) fn plan_cuts(&self, plan: &mut OwnPlan, cuts: &[Cut]) -> Result<(), PlanError> {
        cuts.iter().try_for_each(|cut| {
            let (job, booking) = (self.queue.jobs.get(&cut.attempt), self.bookings.get(&cut.attempt));
            job.zip(booking).map_or(Ok(()), |(job, booking)| plan.requeue(job, booking.window.start, cut.end))
        })
    }

    /// The same of those that are cut.
    pub(super) fn plan_all_cut(&self, plan: &mut OwnPlan) {
        for attempt in &self.queue.cut {
            if let (Some(job), Some(booking)) = (self.queue.jobs.get(attempt), self.bookings.get(attempt)) {
                // One that runs has a place.
                let _ = plan.requeue(job, booking.window.start, booking.window.end);
            }
        }
    }

    /// Notes which jobs are booked for less than their length. One that is booked for longer was about to be given more time when the site
    /// stopped: it has that.
    pub(super) fn note_cut(&mut self) {
        for (attempt, job) in &mut self.queue.jobs {
            let booked = self.bookings.get(attempt).map(|booking| booking.window.duration());
            job.length = booked.map_or(job.length, |booked| booked.max(job.length));
        }
        let is_cut = |job: &&QueuedJob| {
            let booking = self.bookings.get(&job.attempt).filter(|_| job.preempt);
            booking.is_some_and(|booking| booking.window.duration() < job.length)
        };
        self.queue.cut = self.queue.jobs.values().filter(is_cut).map(|job| job.attempt.clone()).collect();
        self.queue.is_freed = true;
    }

    /// The jobs that are cut and end until then: those first of which most would be lost now.
    pub(super) fn cut_until(&self, now: Time, until: Time) -> Vec<AttemptId> {
        let due = |attempt: &AttemptId| {
            let booking = self.bookings.get(attempt).filter(|booking| booking.window.end <= until)?;
            Some((lost_of(self.queue.jobs.get(attempt)?, booking, now), attempt.clone()))
        };
        let mut cut: Vec<(u64, AttemptId)> = self.queue.cut.iter().filter_map(due).collect();
        cut.sort_unstable();
        cut.into_iter().rev().map(|(_, attempt)| attempt).collect()
    }

    /// Jobs that are cut have all their time again where there is room for it; else they wait when it is over.
    pub(in crate::ledger) fn look_at_cut(&mut self, now: Now) {
        if std::mem::take(&mut self.queue.is_freed) {
            for attempt in self.cut_until(now.utc, Time(i64::MAX)).into_iter().take(CUTS_MAX) {
                self.give_time_back(&attempt, Span(u64::MAX));
            }
        }
        // A job that is cut for another here is due itself, and of it less is lost: so each is looked at once.
        for _ in 0..self.queue.jobs.len() {
            let Some(attempt) = self.cut_until(now.utc, now.utc).into_iter().next() else { break };
            self.go_on_or_stop(now, &attempt);
        }
    }

    /// A job whose time is over goes on beyond the present, or stops.
    fn go_on_or_stop(&mut self, now: Now, attempt: &AttemptId) {
        let end_of = |ledger: &Ledger<B>| {
            let booking = ledger.bookings.get(attempt).filter(|_| ledger.queue.cut.contains(attempt))?;
            Some(booking.window.end).filter(|end| *end <= now.utc)
        };
        for _ in 0..SPARED_MAX {
            if end_of(self).is_none() || !self.spare(now, attempt) {
                break;
            }
        }
        let Some(end) = end_of(self) else { return };
        self.stop(attempt, end);
        if self.queue.plan.as_ref().and_then(|plan| plan.planned(attempt)).is_none() {
            self.queue.plan = self.plan_from_nothing(now.utc, &[]).unwrap_or_default();
        }
    }

    /// What a job that is cut has not; nothing when it has all its time.
    pub(super) fn rest_of_job(&self, attempt: &AttemptId) -> Vec<Grant> {
        let (job, booking) = (self.queue.jobs.get(attempt), self.bookings.get(attempt));
        let Some((job, booking)) = job.zip(booking) else { return Vec::new() };
        let window = Window { start: booking.window.end, end: booking.window.start + job.length };
        if !window.is_valid() {
            return Vec::new();
        }
        booking.grants.iter().map(|grant| Grant { window, ..grant.clone() }).collect()
    }

    /// A job that is cut has so much of its time again at most, if there is room or floating seats can move out of the way; whether it has.
    fn give_time_back(&mut self, attempt: &AttemptId, most: Span) -> bool {
        let rest = self.rest_of_job(attempt);
        let more = first_of(&rest, most);
        let wanted = Wanted { grants: &more, request: None, floats: false };
        let Some(window) = hull(&more).filter(|_| self.admit((&wanted, None), None, None).is_ok()) else {
            return false;
        };
        if self.end_at(attempt, window.end).is_some() {
            self.persist(attempt);
        }
        let is_whole = hull(&rest) == Some(window);
        if is_whole {
            self.queue.cut.remove(attempt);
        }
        let (job, booking) = (self.queue.jobs.get(attempt), self.bookings.get(attempt));
        if let (Some(plan), Some(job), Some(booking)) = (&mut self.queue.plan, job, booking) {
            if is_whole {
                plan.remove(attempt);
            } else {
                let _ = plan.requeue(job, booking.window.start, booking.window.end);
            }
        }
        true
    }

    /// A job that is cut has as much of its time again as there is room for; whether there is any.
    fn give_some_time_back(&mut self, attempt: &AttemptId) -> bool {
        let rest = self.rest_of_job(attempt);
        let fits = |ledger: &Ledger<B>, length: u64| {
            let wanted = Wanted { grants: &first_of(&rest, Span(length)), request: None, floats: false };
            ledger.room_for((&wanted, None), None).is_ok()
        };
        let Some(window) = hull(&rest).filter(|_| fits(self, 1)) else { return false };
        let (mut yes, mut no) = (1, window.duration().0 + 1);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            if fits(self, middle) {
                yes = middle;
            } else {
                no = middle;
            }
        }
        self.give_time_back(attempt, Span(yes))
    }

    /// What is not confirmed stops no job: holds in the way of one whose time is over lapse, where by that it has time again; whether it
    /// has. They were told so ([`Ledger::stays_until_stop`]), unless it was within a second, the clock has jumped or a seat has moved.
    fn lapse_for(&mut self, now: Now, attempt: &AttemptId) -> bool {
        let more = self.rest_of_job(attempt);
        let Some(rest) = hull(&more) else { return false };
        let near = self.near(&more);
        let is_in_way = |booking: &&Booking| booking.window.overlaps(rest) && is_on(booking, &near);
        let names: Vec<AttemptId> = self.holds().filter(is_in_way).map(|hold| hold.attempt.clone()).collect();
        let wanted = Wanted { grants: &first_of(&more, Span(1)), request: None, floats: false };
        let free_from = self.free_from(now);
        let is_free = self.try_out(|ledger| {
            names.iter().for_each(|name| drop(ledger.end(name, free_from)));
            ledger.room_for((&wanted, None), None).is_ok()
        });
        if is_free {
            names.iter().for_each(|name| self.give_back(now, name));
        }
        is_free && self.give_some_time_back(attempt)
    }

    /// From when on jobs are cut for a hold: it stays for a second at least, and lapses before they would be stopped.
    pub(in crate::ledger) fn holds_cut_from(&self, now: Now) -> Time {
        now.utc + self.limits.bound_before + LAPSES_BEFORE + Span(1)
    }

    /// How long a hold of these grants stays at most: one that may be what stops a job lapses before,
    /// or, if that is within a second, when the job would be stopped.
    pub(in crate::ledger) fn stays_until_stop(&self, now: Now, grants: &[Grant]) -> Millis {
        if self.queue.cut.is_empty() {
            return Millis(u64::MAX);
        }
        let near = self.near(grants);
        let ends = self.queue.cut.iter().filter_map(|attempt| {
            let rest = hull(&self.rest_of_job(attempt))?;
            let booking = self.bookings.get(attempt).filter(|booking| is_on(booking, &near))?;
            hull(grants).is_some_and(|window| window.overlaps(rest)).then_some(booking.window.end)
        });
        let left = |end: Time| end.since(now.utc + self.limits.bound_before + LAPSES_BEFORE);
        ends.min().map_or(Millis(u64::MAX), |end| Millis(left(end).0.max(1).saturating_mul(1_000)))
    }

    /// Seats that begin until then are about to be bound, and move once more: away from jobs that are cut for them, those first of which most
    /// is lost, to hosts that have become free, to later, or to hosts of jobs of which less is lost.
    pub(in crate::ledger) fn spare_own_jobs(&mut self, now: Now, until: Time) {
        let cut = self.cut_until(now.utc, until).into_iter();
        let stopped = cut.filter(|attempt| !self.give_time_back(attempt, Span(u64::MAX)));
        if stopped.count() > 0 {
            self.wait_for_own_jobs(now, until);
        }
        for attempt in self.cut_until(now.utc, until) {
            self.spare(now, &attempt);
        }
    }

    /// A job that is cut goes on after its end, if it can: another one may be cut for that of which less is lost. Whether it does.
    fn spare(&mut self, now: Now, attempt: &AttemptId) -> bool {
        self.give_time_back(attempt, Span(u64::MAX))
            || self.give_some_time_back(attempt)
            || self.lapse_for(now, attempt)
            || self.cut_another(attempt)
    }

    fn cut_another(&mut self, attempt: &AttemptId) -> bool {
        let more = self.rest_of_job(attempt);
        let (job, booking) = (self.queue.jobs.get(attempt), self.bookings.get(attempt));
        let lost = job.zip(booking).map_or(0, |(job, booking)| lost_of(job, booking, booking.window.end));
        let Some(window) = hull(&more) else { return false };
        let cheaper = self.jobs_to_cut((&more, true), window).into_iter().take_while(|(other, _)| *other < lost);
        for (_, other) in cheaper.collect::<Vec<_>>() {
            let wanted = Wanted { grants: &more, request: None, floats: false };
            let found = self.try_out(|ledger| {
                let one = ledger.cut(&other, window.start)?;
                ledger.room_for((&wanted, None), None).is_ok().then_some(one)
            });
            let Some(one) = found else { continue };
            if let Some(mut plan) = self.queue.plan.take() {
                // The one leaves its place, and the other its hosts, before the other is planned.
                plan.remove(attempt);
                plan.exchange(&one.freed, &[], Cause::Owner);
                let _ = self.plan_cuts(&mut plan, std::slice::from_ref(&one));
                self.queue.plan = Some(plan);
            }
            // On disk the one is cut before the other is not any more.
            self.make_cuts(vec![one]);
            return self.give_time_back(attempt, Span(u64::MAX));
        }
        false
    }

    /// When the first job that is cut is over.
    pub(super) fn first_cut_end(&self) -> Option<Time> {
        let ends = self.queue.cut.iter().filter_map(|attempt| self.bookings.get(attempt));
        ends.map(|booking| booking.window.end).min()
    }
}

/// Whether a booking has something on these hosts.
pub(super) fn is_on(booking: &Booking, hosts: &BTreeSet<HostId>) -> bool {
    booking.grants.iter().any(|grant| hosts.contains(grant.host()))
}

/// What is lost of a job that is stopped then: how long ago it first began, for each host. So one that was stopped before is dear.
pub(super) fn lost_of(job: &QueuedJob, booking: &Booking, end: Time) -> u64 {
    let begun = job.first_begun.unwrap_or(booking.window.start);
    end.since(begun).0.saturating_mul(booking.grants.len() as u64)
}

/// The first part of grants that begin together.
fn first_of(grants: &[Grant], most: Span) -> Vec<Grant> {
    let first = |grant: &Grant| {
        let end = grant.window.start + most.min(grant.window.duration());
        Grant { window: Window { end, ..grant.window }, ..grant.clone() }
    };
    grants.iter().map(first).collect()
}
