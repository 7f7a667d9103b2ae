//! The jobs of the own queue whose time has come.
//!
//! Invariant: a job that cannot begin at its time keeps no other from beginning.

use super::OwnPlan;
use crate::{
    ledger::{Books, Ledger, QueuedJob, local::own_grant},
    protocol::{AttemptId, Grant},
    time::{Millis, Now, Span, Window},
};

/// The clock shows whole seconds, so from so long before a start on the queue is looked at each [`LOOK_AGAIN`]: a job that begins late may
/// not fit into its gap.
const LOOK_EARLY: Millis = Millis(900);
/// See [`LOOK_EARLY`].
const LOOK_AGAIN: Millis = Millis(100);
/// How much later a job is planned that could not begin although its time had come.
const TRY_LATER: Span = Span(1);
/// How much later a job of a feed is planned that has not begun although its time had come.
const FED_LATER: Span = Span(60);

impl<B: Books> Ledger<B> {
    /// Notes the jobs that are on disk, before the bookings are taken in: some are such jobs.
    pub(in crate::ledger) fn know_jobs(&mut self, jobs: Vec<QueuedJob>) {
        self.queue.jobs = jobs.into_iter().map(|job| (job.attempt.clone(), job)).collect();
    }

    /// Plans what is on disk and waits. What begins at once does so with the next call: nobody knows the ledger's first version yet, and
    /// what begins is published as a change of it.
    pub(in crate::ledger) fn take_in_queue(&mut self, now: Now) {
        self.note_cut();
        self.queue.plan = self.plan_from_nothing(now.utc, &[]).unwrap_or_default();
        self.queue.wakes_at = self.queue.plan.as_ref().map(|_| now.monotonic);
    }

    /// Plans what waits from nothing. A job that no hosts could hold any more waits without a place, until the owner removes it or
    /// hosts come.
    pub(in crate::ledger) fn replan_queue(&mut self, now: Now) {
        self.note_cut();
        self.queue.plan = self.plan_from_nothing(now.utc, &[]).unwrap_or_default();
        self.run_queue(now);
    }

    /// Begins the jobs whose time has come.
    pub(in crate::ledger) fn run_queue(&mut self, now: Now) {
        self.look_at_cut(now);
        // One that cannot begin gets a later place, so each is looked at once.
        for _ in 0..self.queue.jobs.len() {
            let Some(plan) = &mut self.queue.plan else { break };
            plan.advance(now.utc);
            let Some((attempt, start)) = plan.first() else { break };
            if start > now.utc {
                break;
            }
            let attempt = attempt.clone();
            if self.queue.fed.contains(&attempt) {
                plan.replan(&attempt, now.utc + FED_LATER);
                continue;
            }
            if start < now.utc {
                // The site did not run then: it may only begin where it disturbs no other.
                plan.replan(&attempt, now.utc);
            }
            if plan.planned(&attempt).is_some_and(|planned| planned.start == Some(now.utc)) {
                self.begin_job(now, &attempt);
            }
        }
        if self.queue.plan.as_ref().is_some_and(OwnPlan::is_empty) {
            self.queue.plan = None;
        }
        let next = self.queue.plan.as_ref().and_then(OwnPlan::first).map(|(_, start)| start);
        self.queue.wakes_at = next.into_iter().chain(self.first_cut_end()).min().map(|start| {
            let left = Millis(start.since(now.utc).0.saturating_mul(1_000));
            now.monotonic + Millis(left.0.saturating_sub(LOOK_EARLY.0)).max(LOOK_AGAIN)
        });
    }

    fn begin_job(&mut self, now: Now, attempt: &AttemptId) {
        let (Some(job), Some(plan)) = (self.queue.jobs.get(attempt).cloned(), &mut self.queue.plan) else { return };
        let hosts = plan.planned(attempt).map(|planned| planned.hosts).unwrap_or_default();
        plan.withdraw(attempt);
        let window = Window::starting(now.utc, job.length);
        let grants: Vec<Grant> = (0..).zip(hosts).map(|seat| own_grant(seat, window, job.amounts.clone())).collect();
        if self.book_own(attempt.clone(), grants, None).is_err()
            && let Some(plan) = &mut self.queue.plan
        {
            // A place that it had is one that it can have.
            let _ = plan.arrive(&job);
            plan.replan(attempt, now.utc + TRY_LATER);
        }
    }
}
