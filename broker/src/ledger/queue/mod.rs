//! The owner's own queue: jobs that the site may move, with a plan of them around what it has promised.
//!
//! A job that waits takes nothing. When it begins it becomes own work, a booking of the site itself, through the one admission
//! function, and never again moves. `due` begins it; `loss` says what holds of users may cost what waits.
//!
//! Invariants: a job that was acknowledged is on disk until it has ended or was removed, and begins once; what is booked under
//! its name is the job that runs. The owner's jobs never take what is promised.

mod due;
mod loss;
mod preempt;
#[cfg(test)]
mod preempt_properties;
#[cfg(test)]
mod preempt_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod wait;
#[cfg(test)]
mod wait_tests;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use self::preempt::Cut;
use super::{
    Booking, Books, Ledger, Output, Record, ReplyToken,
    booking::QueuedJob,
    floating::Wanted,
    own_plan::{Cause, OwnPlan, PlannedJob},
};
use crate::{
    ids::RequestId,
    protocol::{AttemptId, Grant, RefusalReason},
    quality::{PlanError, RESOURCES_MAX},
    time::{Millis, Now, Span, Time, Window},
};

/// Most jobs of the queue, those that run included. A further one is refused.
pub const QUEUE_JOBS_MAX: usize = 2_000;

/// What the owner wants of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueOrder {
    /// Take these jobs in, all or none. Their arrival is the present.
    Add(Vec<QueuedJob>),
    /// Take a job out, whether it waits or runs.
    Remove(RequestId),
    /// A job that runs has ended, early or not: its hosts are free.
    Done(RequestId),
    /// A job takes so much longer.
    Extend(RequestId, Span),
}

/// Why an order is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// There is none of this name.
    #[error("there is no own job {0}")]
    Unknown(RequestId),
    /// There is one of this name.
    #[error("there is an own job {0} already")]
    Known(RequestId),
    /// It is still to begin.
    #[error("own job {0} has not begun; remove takes it out")]
    HasNotBegun(RequestId),
    /// It is what its feed says.
    #[error("own job {0} is of the feed, which says how long it takes")]
    OfFeed(RequestId),
    /// It ends too late even if it begins at once.
    #[error("own job {0}: its deadline would be missed even by a start now")]
    TooLate(RequestId),
    /// No hosts, no amounts, or a length that no booking can have.
    #[error("own job {id}: expected at least one host, amounts above zero, and 1 s to {longest_s} s")]
    Malformed {
        /// Its name.
        id: RequestId,
        /// The longest length, in seconds.
        longest_s: u64,
    },
    /// No set of hosts would do.
    #[error("own job {id}: this site does not have {hosts} hosts with that much for each")]
    NeverFits {
        /// Its name.
        id: RequestId,
        /// How many hosts it asks for.
        hosts: u32,
    },
    /// The plan counts a few resources only.
    #[error("own job {0}: own jobs together ask for more than {RESOURCES_MAX} kinds of resources")]
    TooManyResources(RequestId),
    /// The queue is full.
    #[error("the queue has {QUEUE_JOBS_MAX} own jobs at most")]
    Full,
    /// What a running job would need longer is promised.
    #[error("own job {id} cannot run longer: {reason}")]
    Promised {
        /// Its name.
        id: RequestId,
        /// What is in the way.
        reason: RefusalReason,
    },
}

/// An own job as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnJob<'a> {
    /// What the owner has said of it.
    pub job: &'a QueuedJob,
    /// Where it is.
    pub stage: JobStage<'a>,
}

/// Where a job of the queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobStage<'a> {
    /// It waits, and is planned there.
    Waits(PlannedJob),
    /// It runs, and this is what it has.
    Runs(&'a Booking),
}

/// The queue of a ledger.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// All, by what they are booked under when they run.
    jobs: BTreeMap<AttemptId, QueuedJob>,
    /// Those of them that a feed reports: it begins them, and they are not on disk, since it reports them again.
    fed: BTreeSet<AttemptId>,
    /// Those of them that run and are to end early.
    cut: BTreeSet<AttemptId>,
    /// Whether something has become free since those were looked at.
    is_freed: bool,
    /// Of those that wait, or are cut; none when there is none.
    plan: Option<OwnPlan>,
    /// When the next one may begin.
    wakes_at: Option<Millis>,
}

impl Queue {
    /// When the queue is to be looked at.
    pub(super) fn wakes_at(&self) -> Option<Millis> {
        self.wakes_at
    }

    /// This is free again.
    pub(super) fn release(&mut self, grants: &[Grant]) {
        self.exchange(grants, &[]);
    }

    /// The owner has come to give this for that.
    pub(super) fn exchange(&mut self, before: &[Grant], after: &[Grant]) {
        self.is_freed |= !before.is_empty();
        if let Some(plan) = &mut self.plan {
            plan.exchange(before, after, Cause::Owner);
        }
    }

    /// Hosts or bookings change as a whole; [`Ledger::replan_queue`] makes a plan afterwards.
    pub(super) fn forget_plan(&mut self) {
        self.plan = None;
    }
}

impl<B: Books> Ledger<B> {
    /// The owner's jobs, in the order of their names.
    pub fn own_jobs(&self) -> impl Iterator<Item = OwnJob<'_>> {
        let stage = |attempt: &AttemptId| match self.bookings.get(attempt) {
            Some(booking) => JobStage::Runs(booking),
            None => {
                let planned = self.queue.plan.as_ref().and_then(|plan| plan.planned(attempt));
                JobStage::Waits(planned.unwrap_or(PlannedJob { start: None, hosts: Vec::new(), is_late: false }))
            }
        };
        self.queue.jobs.iter().map(move |(attempt, job)| OwnJob { job, stage: stage(attempt) })
    }

    /// Whether a job of the queue is, or will be, booked under this name.
    pub(super) fn has_job(&self, attempt: &AttemptId) -> bool {
        self.queue.jobs.contains_key(attempt)
    }

    /// Carries an order of the owner out.
    pub(super) fn on_queue(&mut self, now: Now, token: ReplyToken, order: QueueOrder) {
        let result = match order {
            QueueOrder::Add(jobs) => self.queue_up(now, jobs),
            QueueOrder::Remove(id) => self.take_out_job(now, &id, false),
            QueueOrder::Done(id) => self.take_out_job(now, &id, true),
            QueueOrder::Extend(id, longer) => self.extend_job(now, &id, longer),
        };
        self.run_queue(now);
        self.outputs.push_back(Output::QueueChanged { token, result });
    }

    fn queue_up(&mut self, now: Now, mut jobs: Vec<QueuedJob>) -> Result<(), QueueError> {
        if self.queue.jobs.len() + jobs.len() > QUEUE_JOBS_MAX {
            return Err(QueueError::Full);
        }
        let mut names = BTreeSet::new();
        for job in &mut jobs {
            job.arrival = now.utc;
            self.check_job(now.utc, job)?;
            if !names.insert(job.attempt.clone()) {
                return Err(QueueError::Known(job.attempt.request.clone()));
            }
        }
        let plan = self.plan_with(now.utc, &jobs)?;
        self.queue.plan = plan;
        for job in jobs {
            self.outputs.push_back(Output::Persist(Record::Queue(job.clone())));
            self.queue.jobs.insert(job.attempt.clone(), job);
        }
        Ok(())
    }

    fn check_job(&self, now: Time, job: &QueuedJob) -> Result<(), QueueError> {
        let id = job.attempt.request.clone();
        let is_known = self.queue.jobs.contains_key(&job.attempt) || self.bookings.contains_key(&job.attempt);
        if is_known || self.tombstones.is_buried(&job.attempt) || !self.is_local(&job.attempt) {
            return Err(QueueError::Known(id));
        }
        let longest_s = self.limits.farthest_future.0;
        let is_some = !job.amounts.is_empty() && job.amounts.values().all(|amount| amount.0 > 0);
        if job.hosts == 0 || !is_some || !(1..=longest_s).contains(&job.length.0) {
            return Err(QueueError::Malformed { id, longest_s });
        }
        if job.deadline.is_some_and(|deadline| now + job.length > deadline) {
            return Err(QueueError::TooLate(id));
        }
        Ok(())
    }

    /// The plan of what waits with these jobs behind it.
    fn plan_with(&self, now: Time, jobs: &[QueuedJob]) -> Result<Option<OwnPlan>, QueueError> {
        let error_of = |job: &QueuedJob, error: PlanError| {
            let id = job.attempt.request.clone();
            match error {
                PlanError::NeverFits => QueueError::NeverFits { id, hosts: job.hosts },
                PlanError::Invalid => QueueError::TooManyResources(id),
            }
        };
        if let Some(plan) = self.queue.plan.as_ref().filter(|plan| jobs.iter().all(|job| plan.counts(&job.amounts))) {
            let mut plan = plan.clone();
            for job in jobs {
                plan.arrive(job).map_err(|error| error_of(job, error))?;
            }
            return Ok(Some(plan));
        }
        self.plan_from_nothing(now, jobs).map_err(|(job, error)| error_of(job, error))
    }

    /// A plan of what waits and of these new jobs. One that waits and that no hosts could hold any more has no place in it.
    fn plan_from_nothing<'a>(
        &'a self,
        now: Time,
        new: &'a [QueuedJob],
    ) -> Result<Option<OwnPlan>, (&'a QueuedJob, PlanError)> {
        let mut waiting = self.waiting_jobs();
        loop {
            let all: Vec<&QueuedJob> = waiting.iter().copied().chain(new).collect();
            if all.is_empty() {
                return Ok(None);
            }
            match OwnPlan::new(self.hosts.values(), &all, now) {
                Ok(mut plan) => {
                    if let Some(before) = &self.queue.plan {
                        plan.take_over_losses(before);
                    }
                    self.plan_all_cut(&mut plan);
                    return Ok(Some(plan));
                }
                Err((place, error)) if place >= waiting.len() => return Err((all[place], error)),
                Err((place, _)) => drop(waiting.remove(place)),
            }
        }
    }

    /// The jobs that wait or are cut, in the order in which they came.
    fn waiting_jobs(&self) -> Vec<&QueuedJob> {
        let runs = |attempt: &AttemptId| self.bookings.contains_key(attempt) && !self.queue.cut.contains(attempt);
        let waiting = self.queue.jobs.values().filter(|job| !runs(&job.attempt));
        let mut waiting: Vec<&QueuedJob> = waiting.collect();
        waiting.sort_by_key(|job| (job.arrival, &job.attempt));
        waiting
    }

    fn take_out_job(&mut self, now: Now, id: &RequestId, must_run: bool) -> Result<(), QueueError> {
        let attempt = self.own_attempt(id);
        if !self.queue.jobs.contains_key(&attempt) {
            return Err(QueueError::Unknown(id.clone()));
        }
        if self.bookings.contains_key(&attempt) {
            self.give_back(now, &attempt);
            return Ok(());
        }
        if must_run {
            return Err(QueueError::HasNotBegun(id.clone()));
        }
        self.bury(now, &attempt);
        if let Some(plan) = &mut self.queue.plan {
            plan.remove(&attempt);
        }
        self.forget_job(&attempt);
        Ok(())
    }

    /// A job that runs has ended, or one that waits is taken out.
    pub(super) fn forget_job(&mut self, attempt: &AttemptId) {
        let was_cut = self.queue.cut.remove(attempt);
        if let Some(plan) = self.queue.plan.as_mut().filter(|_| was_cut) {
            plan.remove(attempt);
        }
        let is_kept = !self.queue.fed.remove(attempt);
        if self.queue.jobs.remove(attempt).is_some() && is_kept {
            // Before its booking goes: a job without one would begin again.
            self.outputs.push_back(Output::Persist(Record::Dequeue(attempt.clone())));
        }
    }

    fn extend_job(&mut self, now: Now, id: &RequestId, longer: Span) -> Result<(), QueueError> {
        let attempt = self.own_attempt(id);
        let job = self.queue.jobs.get(&attempt).ok_or_else(|| QueueError::Unknown(id.clone()))?;
        let length = Span(job.length.0.saturating_add(longer.0));
        let longest_s = self.limits.farthest_future.0;
        if longer.0 == 0 || length.0 > longest_s {
            return Err(QueueError::Malformed { id: id.clone(), longest_s });
        }
        let job = QueuedJob { length, ..job.clone() };
        if self.queue.cut.contains(&attempt) {
            self.queue.jobs.insert(attempt.clone(), job.clone());
            if let (Some(plan), Some(booking)) = (&mut self.queue.plan, self.bookings.get(&attempt)) {
                // One that runs has a place.
                let _ = plan.requeue(&job, booking.window.start, booking.window.end);
            }
        } else if let Some(booking) = self.bookings.get(&attempt) {
            let more: Vec<Grant> = (booking.grants.iter())
                .map(|grant| Grant {
                    window: Window { start: grant.window.end, end: grant.window.end + longer },
                    ..grant.clone()
                })
                .collect();
            let promised = |reason| QueueError::Promised { id: id.clone(), reason };
            let wanted = Wanted { grants: &more, request: None, floats: false };
            let end = booking.window.end + longer;
            self.admit((&wanted, None), None, None).map_err(promised)?;
            self.end_at(&attempt, end);
            if !self.may_stop(&attempt) {
                self.tell(&more);
            }
            self.persist(&attempt);
        } else if self.queue.fed.contains(&attempt) {
            return Err(QueueError::OfFeed(id.clone()));
        } else if let Some(plan) = &mut self.queue.plan {
            plan.remove(&attempt);
            // Only how long it runs has changed, so there is a place.
            plan.arrive(&job).map_err(|_| QueueError::NeverFits { id: id.clone(), hosts: job.hosts })?;
        }
        self.outputs.push_back(Output::Persist(Record::Queue(job.clone())));
        self.queue.jobs.insert(attempt, job);
        self.run_queue(now);
        Ok(())
    }

    /// How many jobs a feed has reported.
    pub(super) fn fed_jobs(&self) -> usize {
        self.queue.fed.len()
    }

    /// The jobs that wait as a feed reports them, all of them; how many have no place. One that it reports again, alike, stays where it
    /// is planned.
    pub(super) fn feed_queue(&mut self, now: Now, jobs: Vec<QueuedJob>) -> usize {
        let mut wanted: BTreeMap<AttemptId, QueuedJob> =
            jobs.into_iter().map(|job| (job.attempt.clone(), job)).collect();
        let gone: Vec<AttemptId> = self
            .queue
            .fed
            .iter()
            .filter(|attempt| {
                let known = self.queue.jobs.get(*attempt);
                let is_same = |(job, known): (&QueuedJob, &QueuedJob)| {
                    *job == QueuedJob { arrival: job.arrival, ..known.clone() }
                };
                !wanted.get(*attempt).zip(known).is_some_and(is_same)
            })
            .cloned()
            .collect();
        for attempt in gone {
            if let (Some(job), Some(known)) = (wanted.get_mut(&attempt), self.queue.jobs.get(&attempt)) {
                job.arrival = known.arrival;
            }
            if let Some(plan) = &mut self.queue.plan {
                plan.remove(&attempt);
            }
            self.forget_job(&attempt);
        }
        let mut without_place = 0;
        wanted.retain(|attempt, _| !self.queue.fed.contains(attempt));
        for (attempt, job) in wanted {
            // A deadline that cannot be met is the owner's affair.
            let is_sound = self.check_job(now.utc, &QueuedJob { deadline: None, ..job.clone() }).is_ok();
            let one = std::slice::from_ref(&job);
            let plan = if is_sound && self.queue.jobs.len() < QUEUE_JOBS_MAX {
                self.plan_with(now.utc, one).ok()
            } else {
                None
            };
            let Some(plan) = plan else {
                without_place += 1;
                continue;
            };
            self.queue.plan = plan;
            self.queue.jobs.insert(attempt.clone(), job);
            self.queue.fed.insert(attempt);
        }
        self.run_queue(now);
        without_place
    }

    /// Checks the module's invariants from scratch.
    pub(super) fn check_queue(&self) -> Result<(), String> {
        let from = self.forgotten.max(self.settled_before);
        self.queue.plan.as_ref().map_or(Ok(()), |plan| plan.check(self.hosts.values(), from))
    }
}
