//! The site's plan of its owner's jobs that wait: when and where each would begin, around all that the site has promised.
//!
//! A plan is no promise: nothing of it is on disk, and what waits moves when something is promised, ends early or comes. What a user's
//! hold costs the owner is what it moves jobs behind the earliest start that they have had without it.
//!
//! Invariant ([`OwnPlan::check`]): beside what is promised no host has more planned than it has; every job that waits has a place.

use std::collections::{BTreeMap, BTreeSet};

use super::{Books, booking::QueuedJob};
use crate::{
    ids::HostId,
    protocol::{AttemptId, Grant},
    quality::{Amounts, Arrivals, Job, JobKey, Place, PlanError, Quality, RESOURCES_MAX, Taken, Timetable},
    resources::{self, ResourceName, amount_of},
    schedule::Schedule,
    time::Time,
};

/// A plan.
#[derive(Debug, Clone)]
pub(super) struct OwnPlan {
    /// The resources that count: those that jobs ask for.
    names: Vec<ResourceName>,
    /// In the order of their numbers, which is that of their names.
    hosts: Vec<HostId>,
    table: Timetable,
    waiting: BTreeMap<JobKey, Waiting>,
    keys: BTreeMap<AttemptId, JobKey>,
    next_key: u64,
}

#[derive(Debug, Clone)]
struct Waiting {
    attempt: AttemptId,
    /// When it would begin without what users have come to hold since.
    fair_s: i64,
}

/// Who takes, or gives back, what others can or cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The owner: what that moves is the owner's own affair.
    Owner,
    /// A user.
    User,
}

/// What holds of users cost the jobs of the owner that would begin within some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// How many jobs these are.
    pub jobs: u64,
    /// What their plan would be worth without the holds.
    pub without: Quality,
    /// What it is worth.
    pub with: Quality,
}

/// Where and when a job of the owner is planned to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedJob {
    /// When it begins; none when nothing is known to become free for it.
    pub start: Option<Time>,
    /// Its hosts.
    pub hosts: Vec<HostId>,
    /// Whether it ends after its deadline.
    pub is_late: bool,
}

impl OwnPlan {
    /// The plan of these jobs, made from nothing: each in the order given where it begins first.
    ///
    /// # Errors
    /// When a job could never be planned, with its place in the order.
    pub fn new<'a, B: Books + 'a>(
        books: impl Iterator<Item = &'a B>,
        jobs: &[&QueuedJob],
        now: Time,
    ) -> Result<OwnPlan, (usize, PlanError)> {
        let names: BTreeSet<&ResourceName> = jobs.iter().flat_map(|job| job.amounts.keys()).collect();
        let names: Vec<ResourceName> = names.into_iter().cloned().collect();
        if names.len() > RESOURCES_MAX {
            return Err((jobs.len() - 1, PlanError::Invalid));
        }
        let (mut hosts, mut capacities, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for (host, books) in books.enumerate() {
            hosts.push(books.host().id.clone());
            capacities.push(amounts_of(&names, &books.host().capacity));
            taken.extend(steps_of(&names, host, books.promised(), now));
        }
        let mut table = Timetable::new(&[capacities], Arrivals::Earliest);
        table.advance(now.0);
        table.reserve(&taken);
        let (waiting, keys) = (BTreeMap::new(), BTreeMap::new());
        let mut plan = OwnPlan { names, hosts, table, waiting, keys, next_key: 0 };
        for (place, job) in jobs.iter().enumerate() {
            plan.arrive(job).map_err(|error| (place, error))?;
        }
        Ok(plan)
    }

    /// Whether it counts every resource of these amounts.
    pub fn counts(&self, amounts: &resources::Amounts) -> bool {
        amounts.keys().all(|name| self.names.contains(name))
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Time) {
        self.table.advance(now.0);
    }

    /// A job comes, or one that was stopped comes again, and disturbs no other.
    ///
    /// # Errors
    /// When it could never be given a place.
    pub fn arrive(&mut self, job: &QueuedJob) -> Result<(), PlanError> {
        self.arrive_from(job, i64::MIN)
    }

    /// A job that runs is to stop then, and to begin anew at that time or later. It is late by users' doing.
    ///
    /// # Errors
    /// When it could never be given a place.
    pub fn requeue(&mut self, job: &QueuedJob, began: Time, stops: Time) -> Result<(), PlanError> {
        self.remove(&job.attempt);
        let first_begun = job.first_begun.or(Some(began));
        self.arrive_from(&QueuedJob { first_begun, ..job.clone() }, stops.0)
    }

    fn arrive_from(&mut self, job: &QueuedJob, not_before_s: i64) -> Result<(), PlanError> {
        let key = JobKey(self.next_key);
        let hosts = usize::try_from(job.hosts).unwrap_or(usize::MAX);
        let planned = Job {
            arrival_s: job.arrival.0,
            length_s: i64::try_from(job.length.0).unwrap_or(i64::MAX),
            deadline_s: job.deadline.map(|deadline| deadline.0),
            hosts,
            amounts: amounts_of(&self.names, &job.amounts),
            starts_alone: false,
            not_before_s,
            clusters: Box::new([0]),
        };
        let start_s = self.table.arrive(key, planned)?.start_s;
        let fair_s = job.first_begun.map_or(start_s, |begun| begun.0.min(start_s));
        self.next_key += 1;
        self.waiting.insert(key, Waiting { attempt: job.attempt.clone(), fair_s });
        self.keys.insert(job.attempt.clone(), key);
        Ok(())
    }

    /// What the jobs of another plan have lost by then, they have lost in this one.
    pub fn take_over_losses(&mut self, other: &OwnPlan) {
        for (attempt, key) in &self.keys {
            let before = other.keys.get(attempt).and_then(|key| other.waiting.get(key));
            if let (Some(before), Some(waiting)) = (before, self.waiting.get_mut(key)) {
                waiting.fair_s = waiting.fair_s.min(before.fair_s);
            }
        }
    }

    /// A job leaves its place to what comes next.
    pub fn withdraw(&mut self, attempt: &AttemptId) {
        let Some(key) = self.keys.remove(attempt) else { return };
        self.waiting.remove(&key);
        self.table.withdraw(key);
    }

    /// A job that waits goes where it begins first from a time on. The delay is none that users have caused.
    pub fn replan(&mut self, attempt: &AttemptId, from: Time) {
        let Some(key) = self.keys.get(attempt).copied() else { return };
        let before_s = self.start_s(key);
        self.table.replan(key, from.0);
        self.note_delay(key, before_s);
    }

    /// Whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// A job is gone. What waits moves forward.
    pub fn remove(&mut self, attempt: &AttemptId) {
        let Some(key) = self.keys.remove(attempt) else { return };
        self.waiting.remove(&key);
        self.table.end(key);
        self.note_forward();
    }

    /// What was promised is free, and what is promised from now on is not, all at one time: no start between the two counts.
    pub fn exchange(&mut self, before: &[Grant], after: &[Grant], cause: Cause) {
        let starts: BTreeMap<JobKey, i64> = match cause {
            Cause::Owner => self.table.waiting().map(|(key, place)| (key, place.start_s)).collect(),
            Cause::User => BTreeMap::new(),
        };
        // In this order what is in nobody's way stays where it is planned.
        self.table.reserve(&self.taken(after));
        self.table.release(&self.taken(before));
        for (key, start_s) in starts {
            self.note_delay(key, start_s);
        }
        self.note_forward();
    }

    /// A job began at this second in the plan before the owner moved it: what it begins later now is no loss.
    fn note_delay(&mut self, key: JobKey, before_s: i64) {
        let delay_s = self.start_s(key).saturating_sub(before_s).max(0);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.fair_s = waiting.fair_s.saturating_add(delay_s);
        }
    }

    /// What begins earlier than ever before would so without any hold.
    fn note_forward(&mut self) {
        for (key, place) in self.table.waiting() {
            if let Some(waiting) = self.waiting.get_mut(&key) {
                waiting.fair_s = waiting.fair_s.min(place.start_s);
            }
        }
    }

    /// What holds of users cost the jobs that would begin by then.
    pub fn loss(&self, until: Time) -> Loss {
        let mut loss = Loss::default();
        for (key, place) in self.table.waiting() {
            let (Some(Waiting { fair_s, .. }), Some(job)) = (self.waiting.get(&key), self.table.job(key)) else {
                continue;
            };
            if *fair_s <= until.0 {
                loss.jobs += 1;
                loss.without += job.quality_at(*fair_s);
                loss.with += job.quality_at(place.start_s);
            }
        }
        loss
    }

    /// What a job that waits would be worth without what users have come to hold since.
    pub fn fair(&self, attempt: &AttemptId) -> Option<Quality> {
        let key = *self.keys.get(attempt)?;
        Some(self.table.job(key)?.quality_at(self.waiting.get(&key)?.fair_s))
    }

    /// The job that begins first, and when; none when none waits whose time is known.
    pub fn first(&self) -> Option<(&AttemptId, Time)> {
        let (key, place) = self.table.waiting().next().filter(|(_, place)| place.start_s < i64::MAX)?;
        Some((&self.waiting.get(&key)?.attempt, Time(place.start_s)))
    }

    /// Where a job is planned.
    pub fn planned(&self, attempt: &AttemptId) -> Option<PlannedJob> {
        let key = *self.keys.get(attempt)?;
        let (place, job) = (self.table.place(key)?, self.table.job(key)?);
        let start = (place.start_s < i64::MAX).then_some(Time(place.start_s));
        Some(PlannedJob { start, hosts: self.names_of(place), is_late: job.quality_at(place.start_s).late > 0 })
    }

    fn names_of(&self, place: &Place) -> Vec<HostId> {
        place.hosts.iter().filter_map(|host| self.hosts.get(*host).cloned()).collect()
    }

    fn start_s(&self, key: JobKey) -> i64 {
        self.table.place(key).map_or(i64::MAX, |place| place.start_s)
    }

    /// What grants take of the hosts; the uplink is none.
    fn taken(&self, grants: &[Grant]) -> Vec<Taken> {
        let one = |grant: &Grant| {
            let host = self.hosts.binary_search(grant.host()).ok()?;
            let (from_s, to_s) = (grant.window.start.0, grant.window.end.0);
            Some(Taken { host, from_s, to_s, amounts: amounts_of(&self.names, &grant.amounts) })
        };
        grants.iter().filter_map(one).collect()
    }

    /// Checks the module's invariant from scratch, against these books.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check<'a, B: Books + 'a>(&self, books: impl Iterator<Item = &'a B>, from: Time) -> Result<(), String> {
        let mut planned: Vec<(&HostId, Schedule, &resources::Amounts)> = Vec::new();
        for books in books {
            planned.push((&books.host().id, books.promised().clone(), &books.host().capacity));
        }
        if !planned.iter().map(|(id, ..)| *id).eq(&self.hosts) || self.keys.len() != self.waiting.len() {
            return Err("the plan of own jobs is of other hosts, or of other jobs".to_owned());
        }
        for (key, place) in self.table.waiting() {
            let job = self.table.job(key).ok_or("a job that waits has no place")?;
            let window = crate::time::Window {
                start: Time(place.start_s).max(from),
                end: Time(place.start_s.saturating_add(job.length_s)),
            };
            if place.hosts.len() != job.hosts && place.start_s < i64::MAX {
                return Err(format!("an own job of {} hosts is planned on {}", job.hosts, place.hosts.len()));
            }
            let amounts: resources::Amounts = (self.names.iter().zip(job.amounts))
                .map(|(name, amount)| (name.clone(), crate::amount::Amount(amount)))
                .collect();
            for host in place.hosts.iter().filter(|_| window.is_valid()) {
                let (id, schedule, capacity) = &mut planned[*host];
                if let Err(short) = schedule.admits(capacity, window, &amounts) {
                    let at = place.start_s;
                    return Err(format!("host {id}: an own job is planned at {at} where {short:?}"));
                }
                schedule.add(window, &amounts);
            }
        }
        Ok(())
    }
}

/// Amounts by the numbers of their names.
fn amounts_of(names: &[ResourceName], of: &resources::Amounts) -> Amounts {
    let mut amounts = Amounts::default();
    for (amount, name) in amounts.iter_mut().zip(names) {
        *amount = amount_of(of, name).0;
    }
    amounts
}

/// What is taken of a host from now on, step by step.
fn steps_of(names: &[ResourceName], host: usize, schedule: &Schedule, now: Time) -> Vec<Taken> {
    let mut taken = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let Some(occupancy) = schedule.occupancy(name) else { continue };
        let steps = occupancy.steps();
        let ends = steps.iter().skip(1).map(|(time, _)| time.0).chain([i64::MAX]);
        for ((from, amount), to_s) in steps.iter().zip(ends) {
            if amount.0 > 0 && to_s > now.0 {
                let mut amounts = Amounts::default();
                amounts[at] = amount.0;
                taken.push(Taken { host, from_s: from.0, to_s, amounts });
            }
        }
    }
    taken
}
