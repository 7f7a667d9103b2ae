//! `qos-plan`: a plan of all jobs that wait and run, kept by [`broker::quality`], which this policy drives.
//!
//! Without a search it is the source's algorithm. With one the plan is improved whenever it may have become worse than it could be and a job
//! that waits could start. A job that runs past its plan is planned to end a minute later, then two, and so on.
//! Invariant: a job starts on the hosts that the plan says.

use std::collections::BTreeMap;

use anyhow::Context;
use broker::quality::{Amounts, Arrivals, Job, JobKey, RESOURCES_MAX, Timetable};
use sim_kit::virtual_time::Moment;

use super::view::{Policy, Setup, Start, View};
use crate::replay::{
    cluster::ClusterSpec,
    job::{ClusterIndex, JobIndex, Known},
};

/// By how much a job that runs past its plan is planned longer at first, in seconds.
const OVERRUN_S: i64 = 60;

/// See the module.
#[derive(Debug)]
pub struct QosPlan {
    plan: Timetable,
    /// Plans to look at in a search.
    search: u32,
    seed: u64,
    /// Searches so far.
    searches: u64,
    /// Whether the plan has changed since the last search.
    is_stale: bool,
    /// By cluster: the number of its first host.
    firsts: Vec<usize>,
    /// By job: by how much it was planned longer.
    overruns: BTreeMap<JobKey, i64>,
}

fn key(job: JobIndex) -> JobKey {
    JobKey(u64::from(job.0))
}

fn index(key: JobKey) -> JobIndex {
    // Made from an index.
    JobIndex(u32::try_from(key.0).unwrap_or(u32::MAX))
}

fn amounts(processors: u32, memory_kib: u64) -> Amounts {
    let mut amounts = [0; RESOURCES_MAX];
    [amounts[0], amounts[1]] = [u64::from(processors), memory_kib];
    amounts
}

impl QosPlan {
    /// An empty plan.
    pub fn new(setup: &Setup<'_>) -> QosPlan {
        let hosts =
            |spec: &ClusterSpec| vec![amounts(spec.processors_per_host, spec.memory_per_host_kib); spec.hosts as usize];
        let clusters: Vec<Vec<Amounts>> = setup.clusters.iter().map(hosts).collect();
        let firsts = clusters.iter().scan(0, |next, cluster| {
            let first = *next;
            *next += cluster.len();
            Some(first)
        });
        let arrivals = if setup.search == 0 { Arrivals::Source } else { Arrivals::Earliest };
        QosPlan {
            firsts: firsts.collect(),
            plan: Timetable::new(&clusters, arrivals),
            search: setup.search,
            seed: setup.seed,
            searches: 0,
            is_stale: false,
            overruns: BTreeMap::new(),
        }
    }

    fn job(&self, known: &Known) -> Job {
        let clusters = (0_u32..).map(ClusterIndex).take(self.firsts.len());
        Job {
            arrival_s: known.submit_s,
            length_s: known.planned_s,
            deadline_s: Some(known.deadline_s),
            hosts: known.shape.hosts as usize,
            amounts: amounts(known.shape.processors_per_host, known.shape.memory_per_host_kib),
            starts_alone: known.shape.is_exclusive,
            not_before_s: i64::MIN,
            clusters: clusters.filter(|cluster| known.may_run_on(*cluster)).map(ClusterIndex::at).collect(),
        }
    }

    /// The plan at this moment.
    fn advance(&mut self, now: Moment) {
        self.plan.advance(now.second());
        for late in self.plan.overdue().collect::<Vec<_>>() {
            let more_s = self.overruns.entry(late).and_modify(|more_s| *more_s *= 2).or_insert(OVERRUN_S);
            self.plan.overrun(late, now.second().saturating_add(*more_s));
            self.is_stale = true;
        }
    }

    fn improve(&mut self, view: &View<'_>) {
        let could_start = |(key, _)| view.cluster_for(index(key)).is_some();
        if self.search > 0 && self.is_stale && self.plan.waiting().any(could_start) {
            self.plan.improve(self.search, self.seed.wrapping_add(self.searches));
            self.searches += 1;
            self.is_stale = false;
        }
    }
}

impl Policy for QosPlan {
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        self.advance(view.now);
        self.plan.arrive(key(job), self.job(view.job(job))).context("the plan has no place for it")?;
        self.is_stale = true;
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        self.advance(view.now);
        self.improve(view);
        let due = self.plan.waiting().take_while(|(_, place)| place.start_s <= view.now.second());
        let start = due.filter_map(|(key, place)| {
            let (job, cluster) = (index(key), &view.clusters[place.cluster]);
            let first = self.firsts[place.cluster];
            let hosts: Box<[u32]> = place.hosts.iter().filter_map(|host| u32::try_from(host - first).ok()).collect();
            let shape = &view.job(job).shape;
            let fits = cluster.holds_on(&hosts, shape) && (!shape.is_exclusive || cluster.are_empty(&hosts));
            let cluster = ClusterIndex(u32::try_from(place.cluster).ok()?);
            fits.then_some(Start { job, cluster, hosts: Some(hosts) })
        });
        let start = { start }.next()?;
        self.plan.begin(key(start.job));
        Some(start)
    }

    fn ended(&mut self, job: JobIndex, view: &View<'_>) {
        self.advance(view.now);
        self.plan.end(key(job));
        self.overruns.remove(&key(job));
        self.is_stale = true;
    }

    fn wake_after(&self, now: Moment) -> Option<Moment> {
        self.plan.next_after(now.second()).filter(|second| *second < i64::MAX).map(Moment::of_second)
    }
}
