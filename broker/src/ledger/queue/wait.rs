//! Bookings that wait for own jobs: where a job would be stopped for seats that are about to begin and whose user has granted slack, all seats
//! of the booking begin later, so that the job ends whole.
//!
//! Source: algorithm 2 of "Dynamic grid resource reservation mechanism based on resource-reservation graph" (2011): a reservation that can
//! wait for what runs costs nothing. Here it waits as short as it can, once. Invariants: only a confirmed booking of all seats of its
//! request waits, and not once it has begun, never longer than its user and the request's window allow, nor into time that the owner's rules
//! deny by then; of several that are in the way of one job all wait or none; the jobs behind lose no more by that than those that
//! end whole, and no more than the owner bears; what waits and the jobs that end whole by that are on disk together; no other promise gives way.

use std::collections::BTreeSet;

use super::{OwnPlan, preempt::is_on};
use crate::{
    ids::HostId,
    ledger::{
        Booking, Books, Ledger,
        floating::{Arrangement, Wanted},
    },
    protocol::{AttemptId, Grant, HoldRequest, hull},
    request::StartWindow,
    time::{Now, Span, Time, Window},
    trust::Permit,
};

/// Most jobs that are looked at for a booking, or for bookings that wait together: those of which most would be lost.
const JOBS_MAX: usize = 8;
/// Most bookings that wait together.
const TOGETHER_MAX: usize = 8;
/// Most waits that are tried, the shortest first, beside those until one of the jobs ends: each is a look for room on a class of hosts.
const WAITS_MAX: usize = 16;

/// How bookings can begin later.
struct Later {
    /// The bookings as they then are; of several some may stay as they were.
    bookings: Vec<Booking>,
    /// The jobs that then end whole.
    spared: Vec<AttemptId>,
    /// What moves for that.
    moves: Option<Arrangement>,
    /// The plan of what waits behind.
    plan: Option<OwnPlan>,
}

impl<B: Books> Ledger<B> {
    /// How much later all seats of a hold may begin: what their user grants, as far as the request's window and the user's reach go; nothing
    /// where not all of the request is held here. The owner's rules are looked at when it is to wait.
    pub(in crate::ledger) fn slack_of(&self, now: Now, hold: &HoldRequest, permit: &Permit) -> Span {
        let request = &permit.statement.request;
        let is_whole = hold.participants == [self.site.clone()] && hold.grants.len() == request.demand().seats();
        let Some(window) = hull(&hold.grants).filter(|_| is_whole) else { return Span::default() };
        let StartWindow { latest, deadline, .. } = request.window();
        let left = [
            latest.map(|latest| latest.since(window.start)),
            deadline.map(|deadline| deadline.since(window.end)),
            permit.limits.max_reach_s.map(|reach| (now.utc + reach).since(window.end)),
        ];
        left.into_iter().flatten().fold(request.demand().slack(), Span::min)
    }

    /// Bookings that are to be bound by then begin later, where jobs end whole by that which would be stopped for them: one alone, else
    /// all that are in the way of a job.
    pub(super) fn wait_for_own_jobs(&mut self, now: Now, until: Time) {
        for attempt in self.floating.due(until) {
            self.let_wait(now, until, &[attempt]);
        }
        for job in self.cut_until(now.utc, until).into_iter().take(JOBS_MAX) {
            let all = self.in_way_of(&job);
            if (2..=TOGETHER_MAX).contains(&all.len()) {
                self.let_wait(now, until, &all);
            }
        }
    }

    /// The bookings that may wait and that have something on the hosts of a job that is cut, at a time that it has not.
    fn in_way_of(&self, job: &AttemptId) -> Vec<AttemptId> {
        let rests = self.rest_of_job(job);
        let Some(end) = hull(&rests).map(|rest| rest.end) else { return Vec::new() };
        let crosses =
            |one: &Grant| rests.iter().any(|rest| rest.host() == one.host() && rest.window.overlaps(one.window));
        let mut all = self.floating.due(end);
        all.retain(|attempt| self.with_slack(attempt).is_some_and(|booking| booking.grants.iter().any(crosses)));
        all
    }

    fn with_slack(&self, attempt: &AttemptId) -> Option<&Booking> {
        self.bookings.get(attempt).filter(|booking| !booking.is_held() && !booking.slack.is_zero())
    }

    /// These bookings begin later, if jobs end whole by that.
    fn let_wait(&mut self, now: Now, until: Time, attempts: &[AttemptId]) {
        // One that has begun goes on, also where the clock of the site has jumped.
        let may_wait = |attempt: &AttemptId| self.with_slack(attempt).filter(|booking| now.utc <= booking.window.start);
        let Some(bookings) = attempts.iter().map(may_wait).collect::<Option<Vec<&Booking>>>() else { return };
        let near: Vec<(Window, BTreeSet<HostId>)> =
            bookings.into_iter().map(|booking| (booking.window, self.near(&booking.grants))).collect();
        let is_in_way = |attempt: &AttemptId| {
            let Some((job, rest)) = self.bookings.get(attempt).zip(hull(&self.rest_of_job(attempt))) else {
                return false;
            };
            near.iter().any(|(window, hosts)| rest.overlaps(*window) && is_on(job, hosts))
        };
        let mut jobs = self.cut_until(now.utc, until);
        jobs.retain(is_in_way);
        jobs.truncate(JOBS_MAX);
        if jobs.is_empty() {
            return;
        }
        let free_from = self.free_from(now);
        let later = self.try_out(|ledger| {
            // Their own seats are in nobody's way.
            let bookings: Vec<Booking> = attempts.iter().filter_map(|attempt| ledger.end(attempt, free_from)).collect();
            let later = ledger.best_of((now, until), &bookings, &jobs)?;
            later.moves.as_ref().is_none_or(|moves| ledger.may_move(moves)).then_some(later)
        });
        if let Some(later) = later {
            self.begin_later(now, later);
        }
    }

    /// How bookings that are not in the books begin later so that all these jobs end whole; else as many of them as can, those first of which
    /// most would be lost.
    fn best_of(&mut self, at: (Now, Time), bookings: &[Booking], jobs: &[AttemptId]) -> Option<Later> {
        let all = self.later(at, bookings, jobs);
        if all.is_some() || jobs.len() == 1 {
            return all;
        }
        let (mut spared, mut best) = (Vec::new(), None);
        for job in jobs {
            spared.push(job.clone());
            match self.later(at, bookings, &spared) {
                Some(later) => best = Some(later),
                None => drop(spared.pop()),
            }
        }
        best
    }

    /// How bookings that are not in the books begin later, after the shortest waits, so that these jobs end whole.
    fn later(&mut self, at: (Now, Time), bookings: &[Booking], spared: &[AttemptId]) -> Option<Later> {
        let rests: Vec<Grant> = spared.iter().flat_map(|job| self.rest_of_job(job)).collect();
        let ends: Vec<Time> = rests.iter().map(|rest| rest.window.end).collect();
        let (later, moves) = match bookings {
            [one] => {
                let mut waits = self.waits_of(one, &ends, at.1).into_iter();
                let (later, moves) = waits.find_map(|wait| self.one_later(at.0, wait, one, &rests))?;
                (vec![later], moves)
            }
            all => {
                self.check_room(&rests).ok()?;
                (self.try_out(|ledger| ledger.all_later(at, all, (spared, &ends)))?, None)
            }
        };
        let (mut before, mut after) = moves.as_ref().map(|moves| self.moved(moves)).unwrap_or_default();
        for (booking, later) in bookings.iter().zip(&later).filter(|(_, later)| !later.wait.is_zero()) {
            before.extend(self.rest_of(self.free_from(at.0), booking));
            after.extend(self.taken_by(later).iter().cloned());
        }
        after.extend_from_slice(&rests);
        let plan = self.plan_of_spared(at.0, (&before, &after), spared).ok()?;
        Some(Later { bookings: later, spared: spared.to_vec(), moves, plan })
    }

    /// For how long a booking may wait: until something ends near it, or one of the jobs at its end.
    fn waits_of(&self, booking: &Booking, ends: &[Time], until: Time) -> Vec<Span> {
        let start = booking.window.start;
        let wait = |end: Time| {
            let wait = end.since(start);
            (end > until && !wait.is_zero() && wait <= booking.slack).then_some(wait)
        };
        let near = self.near(&booking.grants);
        let schedules = near.iter().filter_map(|host| self.hosts.get(host)).map(Books::promised);
        let steps = schedules.flat_map(|schedule| schedule.occupancies()).flat_map(|(_, used)| used.steps());
        let mut waits: Vec<Span> = steps.filter_map(|(time, _)| wait(time)).collect();
        waits.sort_unstable();
        waits.dedup();
        waits.truncate(WAITS_MAX);
        waits.extend(ends.iter().filter_map(|end| wait(*end)));
        waits.sort_unstable();
        waits.dedup();
        waits
    }

    /// How one booking begins after this wait, where jobs have these rests; others may move out of the way.
    fn one_later(
        &mut self,
        now: Now,
        wait: Span,
        booking: &Booking,
        rests: &[Grant],
    ) -> Option<(Booking, Option<Arrangement>)> {
        let mut later = later_by(booking, wait);
        let both = [rests, &later.grants].concat();
        let wanted = Wanted { grants: &both, request: Some(&booking.attempt.request), floats: false };
        let room = self.room_for((&wanted, None), None).ok()?;
        later.grants = room.given.into_iter().skip(rests.len()).collect();
        self.may_have(now, &later).then(|| (later, room.moves.map(|(moves, _)| moves)))
    }

    /// Begins several bookings one after another where these jobs end whole, all on the hosts that they have, in a trial.
    fn all_later(
        &mut self,
        (now, until): (Now, Time),
        bookings: &[Booking],
        (jobs, ends): (&[AttemptId], &[Time]),
    ) -> Option<Vec<Booking>> {
        jobs.iter().for_each(|job| self.end_whole(job));
        let mut placed: Vec<Booking> = Vec::new();
        for booking in bookings {
            // What has room as it is stays so.
            let mut waits = std::iter::once(Span::default()).chain(self.waits_of(booking, ends, until));
            let later = waits.find_map(|wait| {
                let later = later_by(booking, wait);
                let taken = self.rest_of(self.free_from(now), &later);
                let fits = self.check_room(&taken).is_ok() && (wait.is_zero() || self.may_have(now, &later));
                fits.then_some(later)
            })?;
            self.begin(later.clone());
            placed.push(later);
        }
        Some(placed)
    }

    /// Whether a booking that is not in the books, and begins later, has room on the uplink, and its user and its time are within the owner's
    /// rules of now.
    fn may_have(&mut self, now: Now, later: &Booking) -> bool {
        let load = self.load_of(later.talk, later.grants.len(), later.window);
        let is_denied = self.window_error(later.window, now.utc).is_some()
            || self.gate.lock().check_time(later.window, now.utc).is_err()
            || self.check_conditions(now.utc, &later.grants).is_err()
            || self.check_room(load.as_slice()).is_err();
        if is_denied {
            return false;
        }
        let Some((user, account)) = later.user_key.zip(later.account) else { return true };
        let through = (&later.attempt.entry_point, later.network.as_ref());
        let taken: Vec<&Grant> = later.grants.iter().chain(&load).collect();
        self.check_share(&later.grants, account).is_ok() && self.check_use((user, account), through, &taken).is_ok()
    }

    /// Bookings begin later; on disk together with the jobs that end whole by that.
    fn begin_later(&mut self, now: Now, Later { bookings, spared, moves, plan }: Later) {
        let free_from = self.free_from(now);
        let before: Vec<Booking> = bookings.iter().filter_map(|later| self.end(&later.attempt, free_from)).collect();
        self.queue.plan = plan;
        self.queue.is_freed = true;
        if let Some(moves) = &moves {
            self.make_moves(moves);
        }
        for job in &spared {
            self.end_whole(job);
            self.note_unwritten(job);
            self.queue.cut.remove(job);
        }
        let last = bookings.iter().rfind(|booking| !booking.wait.is_zero()).map(|booking| booking.attempt.clone());
        let mut changed = Vec::new();
        for (booking, before) in bookings.into_iter().zip(&before) {
            if !booking.wait.is_zero() {
                changed.extend([before, &booking].into_iter().flat_map(|of| self.rest_of(free_from, of)));
            }
            let attempt = booking.attempt.clone();
            self.begin(booking);
            self.note_unwritten(&attempt);
        }
        // Others hear of it when all are in the books: what stays where it was is no news.
        self.tell(&changed);
        if let Some(last) = last {
            self.persist(&last);
        }
    }

    /// A job that was cut has all its time again.
    fn end_whole(&mut self, attempt: &AttemptId) {
        if let Some(rest) = hull(&self.rest_of_job(attempt)) {
            self.end_at(attempt, rest.end);
        }
    }
}

/// A booking that begins so much later, on the same hosts.
fn later_by(booking: &Booking, wait: Span) -> Booking {
    let later = |grant: &Grant| Grant { window: grant.window.later(wait), ..grant.clone() };
    let (grants, slack) =
        (booking.grants.iter().map(later).collect(), if wait.is_zero() { booking.slack } else { Span::default() });
    Booking { grants, window: booking.window.later(wait), wait, slack, ..booking.clone() }
}
