//! Bookings that wait for own jobs: where a job would be stopped for seats that are about to begin and whose user has granted slack, all seats
//! of the booking begin later, so that the job ends whole.
//!
//! Source: algorithm 2 of "Dynamic grid resource reservation mechanism based on resource-reservation graph" (2011): a reservation that can
//! wait for what runs costs nothing. Here it waits as short as it can, once. Invariants: only a confirmed booking of all seats of its
//! request waits, never longer than its user, the request's window and the owner's rules at the time of the hold allow; it and the jobs
//! that end whole by that are on disk together; no other promise gives way.

use super::preempt::{is_on, lost_of};
use crate::{
    ledger::{
        Booking, Books, Ledger,
        floating::{Arrangement, Wanted},
    },
    protocol::{AttemptId, ChangeKind, Grant, HoldRequest, hull},
    request::StartWindow,
    time::{Now, Span, Time},
    trust::Permit,
};

/// Most jobs that one booking would stop and that are looked at: those of which most would be lost.
const JOBS_MAX: usize = 8;
/// Most waits that are tried, the shortest first, beside those until one of the jobs ends: each is a look for room on a class of hosts.
const WAITS_MAX: usize = 16;

/// How a booking can begin later.
struct Later {
    wait: Span,
    /// The jobs that then end whole.
    spared: Vec<AttemptId>,
    /// What these had not, and have again.
    rests: Vec<Grant>,
    /// The booking's seats.
    seats: Vec<Grant>,
    /// What moves for that.
    moves: Option<Arrangement>,
}

impl<B: Books> Ledger<B> {
    /// How much later all seats of a hold may begin: what their user grants, as far as the request's window, the owner's hours and the reach of
    /// promises go; nothing where not all of the request is held here.
    pub(in crate::ledger) fn slack_of(&self, now: Now, hold: &HoldRequest, permit: &Permit) -> Span {
        let request = &permit.statement.request;
        let is_whole = hold.participants == [self.site.clone()] && hold.grants.len() == request.demand().seats();
        let Some(window) = hull(&hold.grants).filter(|_| is_whole) else { return Span::default() };
        let StartWindow { latest, deadline, .. } = request.window();
        let left = [
            latest.map(|latest| latest.since(window.start)),
            deadline.map(|deadline| deadline.since(window.end)),
            Some((now.utc + self.limits.farthest_future).since(window.end)),
            Some(self.gate.lock().may_be_later(permit, window, now.utc)),
        ];
        left.into_iter().flatten().fold(request.demand().slack(), Span::min)
    }

    /// Bookings that are to be bound by then begin later, where jobs end whole by that which would be stopped for them.
    pub(super) fn wait_for_own_jobs(&mut self, now: Now, until: Time) {
        for attempt in self.floating.due(until) {
            let may_wait = |booking: &&Booking| !booking.is_held() && !booking.slack.is_zero();
            let Some(booking) = self.bookings.get(&attempt).filter(may_wait) else { continue };
            let near = self.near(&booking.grants);
            let is_in_way = |job: &AttemptId| {
                let rest = hull(&self.rest_of_job(job));
                let is_at_time = rest.is_some_and(|rest| rest.overlaps(booking.window));
                is_at_time && self.bookings.get(job).is_some_and(|job| is_on(job, &near))
            };
            let mut jobs = self.cut_until(now.utc, until);
            jobs.retain(is_in_way);
            jobs.truncate(JOBS_MAX);
            if jobs.is_empty() {
                continue;
            }
            let waits = self.waits_of(booking, &jobs, until);
            // Its own seats are in nobody's way.
            let Some(booking) = self.end(&attempt) else { continue };
            let taken = self.rest_of(now, &booking);
            self.release(&taken, true);
            let later = self.best_of(&booking, &waits, &jobs);
            match later.filter(|later| later.moves.as_ref().is_none_or(|moves| self.may_move(moves))) {
                Some(later) => self.begin_later(booking, &taken, later),
                None => {
                    self.promise(&taken);
                    self.reserve(&taken);
                    self.begin(booking);
                    // Its seats may have moved since it was written.
                    self.note_unwritten(&attempt);
                }
            }
        }
    }

    /// For how long a booking may wait: until something ends near it.
    fn waits_of(&self, booking: &Booking, jobs: &[AttemptId], until: Time) -> Vec<Span> {
        let start = booking.window.start;
        let wait = |end: Time| {
            let wait = end.since(start);
            (end > until && wait <= booking.slack).then_some(wait)
        };
        let near = self.near(&booking.grants);
        let schedules = near.iter().filter_map(|host| self.hosts.get(host)).map(Books::promised);
        let steps = schedules.flat_map(|schedule| schedule.occupancies()).flat_map(|(_, used)| used.steps());
        let mut waits: Vec<Span> = steps.filter_map(|(time, _)| wait(time)).collect();
        waits.sort_unstable();
        waits.dedup();
        waits.truncate(WAITS_MAX);
        waits.extend(jobs.iter().filter_map(|job| wait(hull(&self.rest_of_job(job))?.end)));
        waits.sort_unstable();
        waits.dedup();
        waits
    }

    /// The shortest wait after which all these jobs end whole; else one after which of those that are stopped least is lost. The booking is
    /// not in the books.
    fn best_of(&mut self, booking: &Booking, waits: &[Span], jobs: &[AttemptId]) -> Option<Later> {
        let all = waits.iter().find_map(|wait| self.room_after(*wait, booking, jobs));
        if all.is_some() || jobs.len() == 1 {
            return all;
        }
        let lost = |job: &AttemptId| {
            let (job, booking) = (self.queue.jobs.get(job), self.bookings.get(job));
            job.zip(booking).map_or(0, |(job, booking)| lost_of(job, booking, booking.window.end))
        };
        let jobs: Vec<(u64, &AttemptId)> = jobs.iter().map(|job| (lost(job), job)).collect();
        let mut best: Option<(u64, Later)> = None;
        for wait in waits {
            let (mut spared, mut kept, mut found) = (Vec::new(), 0, None);
            for (lost, job) in &jobs {
                spared.push((*job).clone());
                match self.room_after(*wait, booking, &spared) {
                    Some(later) => (kept, found) = (kept + lost, Some(later)),
                    None => drop(spared.pop()),
                }
            }
            if best.as_ref().is_none_or(|(most, _)| kept > *most) {
                best = found.map(|later| (kept, later)).or(best);
            }
        }
        best.map(|(_, later)| later)
    }

    /// How a booking that is not in the books begins after this wait, when these jobs end whole.
    fn room_after(&mut self, wait: Span, booking: &Booking, spared: &[AttemptId]) -> Option<Later> {
        let rests: Vec<Grant> = spared.iter().flat_map(|job| self.rest_of_job(job)).collect();
        let seats = later_by(&booking.grants, wait);
        let request = Some(&booking.attempt.request);
        let both = [rests.as_slice(), &seats].concat();
        let room = self.room_for((&Wanted { grants: &both, request, floats: false }, None), None).ok()?;
        let seats = room.given.into_iter().skip(rests.len()).collect::<Vec<_>>();
        let load = self.load_of(booking.talk, seats.len(), booking.window.later(wait));
        self.check_room(load.as_slice()).ok()?;
        if let Some((user, account)) = booking.user_key.zip(booking.account) {
            let through = (&booking.attempt.entry_point, booking.network.as_ref());
            let taken: Vec<&Grant> = seats.iter().chain(&load).collect();
            self.check_share(&seats, account).ok()?;
            self.check_use((user, account), through, &taken).ok()?;
        }
        let moves = room.moves.map(|(moves, _)| moves);
        Some(Later { wait, spared: spared.to_vec(), rests, seats, moves })
    }

    /// A booking that had this, and is not in the books, begins later; on disk together with the jobs that end whole by that.
    fn begin_later(&mut self, mut booking: Booking, taken: &[Grant], later: Later) {
        let Later { wait, spared, rests, seats, moves } = later;
        booking.grants = seats;
        booking.window = booking.window.later(wait);
        booking.wait = wait;
        booking.slack = Span::default();
        let taken_later = self.taken_by(&booking).into_owned();
        let (mut before, mut after) = moves.as_ref().map(|moves| self.moved(moves)).unwrap_or_default();
        before.extend_from_slice(taken);
        after.extend(rests.iter().chain(&taken_later).cloned());
        // What that moves of the queue is the owner's own affair.
        self.queue.exchange(&before, &after);
        if let Some(moves) = &moves {
            self.make_moves(moves);
        }
        self.promise(&rests);
        self.promise(&taken_later);
        self.reserve(&taken_later);
        self.publish(taken, ChangeKind::Removed);
        self.publish(&taken_later, ChangeKind::Added);
        for job in spared {
            self.end_whole(&job);
        }
        self.persist(&booking);
        self.begin(booking);
    }

    /// A job that was cut has all its time again, which is promised already.
    fn end_whole(&mut self, attempt: &AttemptId) {
        let rest = hull(&self.rest_of_job(attempt));
        let (Some(rest), Some(mut job)) = (rest, self.end(attempt)) else { return };
        job.grants.iter_mut().for_each(|grant| grant.window.end = rest.end);
        job.window.end = rest.end;
        self.begin(job);
        self.note_unwritten(attempt);
        self.queue.cut.remove(attempt);
        if let Some(plan) = &mut self.queue.plan {
            plan.remove(attempt);
        }
    }
}

/// The same grants, so much later.
fn later_by(grants: &[Grant], wait: Span) -> Vec<Grant> {
    let later = |grant: &Grant| Grant { window: grant.window.later(wait), ..grant.clone() };
    grants.iter().map(later).collect()
}
