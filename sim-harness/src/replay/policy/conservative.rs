//! Conservative backfilling: every waiting job has a reservation, given when it is submitted: the earliest start that
//! delays nobody who came before.
//!
//! A cluster's plan is one step function of reserved processors ([`Occupancy`], the same that holds Kolo's schedules);
//! like EASY's reservation it counts processors, neither hosts nor memory. When a job ends earlier than planned, the
//! plan of its cluster is compressed: in the order of their planned starts, all waiting jobs are taken out and put back
//! as early as possible. Only the first job of a plan starts; if its time has come but its hosts are still taken, it
//! waits, and its reservation moves along. Invariant: the plan holds a running job until its planned end and a waiting
//! one for its planned time, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    schedule::Occupancy,
    time::{Span, Time, Window},
};

use super::{Policy, Setup, Start, View};
use crate::replay::{
    cluster::{ClusterIndex, ClusterSpec},
    job::{Job, JobIndex},
    moment::Moment,
};

/// The plan of one cluster.
#[derive(Debug)]
struct Plan {
    spec: ClusterSpec,
    reserved: Occupancy,
    /// Waiting jobs by planned start, in seconds.
    waiting: BTreeSet<(i64, JobIndex)>,
    /// Windows of the running jobs.
    running: BTreeMap<JobIndex, Window>,
}

/// See the module.
#[derive(Debug)]
pub struct Conservative {
    plans: Vec<Plan>,
}

impl Plan {
    fn earliest(&self, job: &Job, now_s: i64) -> Option<i64> {
        let limit = Amount(self.spec.processors().checked_sub(job.shape.processors())?);
        let start = self.reserved.earliest_fit(limit, span(job), Time(now_s), Time::MAX)?;
        Some(start.0)
    }

    fn reserve(&mut self, index: JobIndex, job: &Job, start_s: i64) {
        self.reserved.add(Window::starting(Time(start_s), span(job)), Amount(job.shape.processors()));
        self.waiting.insert((start_s, index));
    }

    /// Takes a window back; what is before `now_s` was forgotten already.
    fn free(&mut self, window: Window, processors: u64, now_s: i64) {
        let left = Window { start: window.start.max(Time(now_s)), end: window.end };
        let removed = self.reserved.remove(left, Amount(processors));
        debug_assert!(removed.is_ok(), "{removed:?}");
    }

    /// Puts every waiting job as early as possible, those first that were planned first.
    fn compress(&mut self, view: &View<'_>) {
        let now_s = view.now.second();
        for (planned_s, index) in std::mem::take(&mut self.waiting) {
            let job = view.job(index);
            self.free(Window::starting(Time(planned_s), span(job)), job.shape.processors(), now_s);
            let start_s = self.earliest(job, now_s).unwrap_or(planned_s);
            self.reserve(index, job, start_s);
        }
    }

    /// The first job, if its time has come and it fits. One that does not fit yet is moved on to the present.
    fn next(&mut self, cluster: ClusterIndex, view: &View<'_>) -> Option<JobIndex> {
        let now_s = view.now.second();
        let (planned_s, index) = *self.waiting.first()?;
        let job = view.job(index);
        if planned_s > now_s {
            return None;
        }
        let fits = view.clusters[cluster.at()].fits_now(&job.shape);
        if fits || planned_s < now_s {
            self.waiting.pop_first();
            self.free(Window::starting(Time(planned_s), span(job)), job.shape.processors(), now_s);
        }
        if fits {
            let window = Window::starting(Time(now_s), span(job));
            self.reserved.add(window, Amount(job.shape.processors()));
            self.running.insert(index, window);
            return Some(index);
        }
        if planned_s < now_s {
            self.reserve(index, job, now_s);
        }
        None
    }
}

fn span(job: &Job) -> Span {
    Span(job.planned_s.unsigned_abs())
}

impl Conservative {
    /// Empty plans.
    pub fn new(setup: &Setup<'_>) -> Conservative {
        let plan = |spec: &ClusterSpec| Plan {
            spec: spec.clone(),
            reserved: Occupancy::default(),
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
        };
        Conservative { plans: setup.clusters.iter().map(plan).collect() }
    }
}

impl Policy for Conservative {
    fn submitted(&mut self, index: JobIndex, view: &View<'_>) {
        let now_s = view.now.second();
        let job = view.job(index);
        for plan in &mut self.plans {
            plan.reserved.forget_before(Time(now_s));
        }
        let best = self
            .plans
            .iter_mut()
            .filter(|plan| plan.spec.could_ever_run(&job.shape))
            .filter_map(|plan| Some((plan.earliest(job, now_s)?, plan)))
            .min_by_key(|(start_s, _)| *start_s);
        if let Some((start_s, plan)) = best {
            plan.reserve(index, job, start_s);
        }
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        (0_u32..).map(ClusterIndex).zip(&mut self.plans).find_map(|(cluster, plan)| {
            let job = plan.next(cluster, view)?;
            Some(Start { job, cluster, hosts: None })
        })
    }

    fn ended(&mut self, index: JobIndex, view: &View<'_>) {
        let now_s = view.now.second();
        let Some(plan) = self.plans.iter_mut().find(|plan| plan.running.contains_key(&index)) else { return };
        plan.reserved.forget_before(Time(now_s));
        let Some(window) = plan.running.remove(&index) else { return };
        if window.end.0 > now_s {
            plan.free(window, view.job(index).shape.processors(), now_s);
            plan.compress(view);
        }
    }

    fn wake_after(&self, now: Moment) -> Option<Moment> {
        let starts = self.plans.iter().filter_map(|plan| plan.waiting.first());
        starts.map(|(start_s, _)| Moment::of_second(*start_s)).filter(|start| *start > now).min()
    }
}
