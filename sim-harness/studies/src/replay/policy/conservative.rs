//! Conservative backfilling: every waiting job has a place in the plan of a cluster, given when it is submitted: the
//! first gap that delays no job that is there already.
//!
//! A plan is a list of jobs in the order of their planned starts. It is dealt out like cards: each job in turn gets the
//! processors that are free earliest, and what stays idle before it is a gap. A new job goes in front of the job before
//! which its gap is. The list is dealt out anew whenever a job comes, so that it follows what really happened, and
//! compressed when a job ends earlier than planned: all jobs are taken out and put back one by one, in their order. A plan
//! counts processors, neither hosts nor memory; so its first job may find the processors, but not on the hosts that it needs.
//! Then no job passes it.
//! Invariant: only the first job of a plan starts, and every job is on the plan of one cluster until then.

use std::collections::BTreeMap;

use sim_kit::virtual_time::Moment;

use super::view::{Policy, Setup, Start, View};
use crate::replay::{
    cluster::Cluster,
    job::{ClusterIndex, JobIndex, Known},
};

/// Processors that are idle before a job starts.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: Moment,
    to: Moment,
    processors: u64,
    /// The job for which they wait; none behind the last one.
    before: Option<JobIndex>,
}

/// The plan of one cluster.
#[derive(Debug, Default)]
struct Plan {
    /// Waiting jobs by planned start.
    list: Vec<(Moment, JobIndex)>,
    /// In the order in which they arose.
    gaps: Vec<Gap>,
    /// When how many processors become free of all jobs that run or are planned.
    free_from: BTreeMap<Moment, u64>,
}

impl Plan {
    /// Deals the list out, given what runs on the cluster now.
    fn deal(&mut self, cluster: &Cluster, view: &View<'_>) {
        self.begin(cluster, view.now);
        let mut list = std::mem::take(&mut self.list);
        for (start, index) in &mut list {
            *start = self.place(*index, view.job(*index));
        }
        list.sort_by_key(|(start, _)| *start);
        self.list = list;
    }

    /// Forgets all places: what is left are the jobs that run.
    fn begin(&mut self, cluster: &Cluster, now: Moment) {
        self.gaps.clear();
        self.free_from.clear();
        self.free_from.insert(now, cluster.free_processors());
        for (end, freed) in cluster.expected_ends() {
            *self.free_from.entry(end.max(now)).or_default() += freed;
        }
    }

    /// Takes the processors that are free earliest. Returns when there are enough of them.
    fn place(&mut self, index: JobIndex, job: &Known) -> Moment {
        let processors = job.shape.processors();
        let (mut taken, mut start) = (0, None);
        while let Some(mut earliest) = self.free_from.first_entry().filter(|_| taken < processors) {
            let (from, free) = (*earliest.key(), *earliest.get());
            if let Some(gap_from) = start.filter(|_| taken > 0) {
                self.gaps.push(Gap { from: gap_from, to: from, processors: taken, before: Some(index) });
            }
            start = Some(from);
            let needed = processors - taken;
            taken += free.min(needed);
            if free > needed {
                *earliest.get_mut() = free - needed;
            } else {
                earliest.remove();
            }
        }
        let start = start.unwrap_or_default();
        *self.free_from.entry(start.plus_seconds(job.expected_s())).or_default() += processors;
        start
    }

    /// What is idle behind all jobs of the list.
    fn last_gaps(&self, all: u64) -> [Gap; 2] {
        let (from, processors) =
            self.free_from.first_key_value().map_or((Moment::default(), 0), |(at, free)| (*at, *free));
        let to = self.free_from.last_key_value().map_or(from, |(at, _)| *at);
        [
            Gap { from, to, processors, before: None },
            Gap { from: to, to: Moment(i64::MAX), processors: all, before: None },
        ]
    }

    /// In front of which job the first gap is that is large and long enough; gaps that follow upon each other count as
    /// one.
    fn position_for(&self, job: &Known, all: u64) -> usize {
        let mut found: Option<(Gap, Moment)> = None;
        for gap in self.gaps.iter().copied().chain(self.last_gaps(all)) {
            if gap.processors < job.shape.processors() {
                found = None;
                continue;
            }
            let (first, until) = match found {
                Some((first, until)) if gap.from <= until => (first, until.max(gap.to)),
                _ => (gap, gap.to),
            };
            if first.from.plus_seconds(job.expected_s()) <= until {
                return first.before.map_or(self.list.len(), |before| self.position(before));
            }
            found = Some((first, until));
        }
        self.list.len()
    }

    fn position(&self, index: JobIndex) -> usize {
        self.list.iter().position(|(_, listed)| *listed == index).unwrap_or(self.list.len())
    }

    /// Puts a job into the first gap that holds it. Returns its planned start.
    fn insert(&mut self, index: JobIndex, cluster: &Cluster, view: &View<'_>) -> Moment {
        let job = view.job(index);
        let at = self.position_for(job, cluster.spec.processors());
        if at < self.list.len() {
            self.list.insert(at, (Moment::default(), index));
            self.deal(cluster, view);
            return self.list[self.position(index)].0;
        }
        let start = self.place(index, job);
        let at = self.list.partition_point(|(other, _)| *other <= start);
        self.list.insert(at, (start, index));
        start
    }

    fn compress(&mut self, cluster: &Cluster, view: &View<'_>) {
        let list = std::mem::take(&mut self.list);
        self.begin(cluster, view.now);
        for (_, index) in list {
            self.insert(index, cluster, view);
        }
    }
}

/// The plans of all clusters.
#[derive(Debug)]
pub struct Conservative {
    plans: Vec<Plan>,
    /// Where the running jobs are, and when they are planned to end.
    running: BTreeMap<JobIndex, (ClusterIndex, Moment)>,
}

impl Conservative {
    /// Empty plans.
    pub fn new(setup: &Setup<'_>) -> Conservative {
        Conservative { plans: setup.clusters.iter().map(|_| Plan::default()).collect(), running: BTreeMap::new() }
    }
}

impl Policy for Conservative {
    fn submitted(&mut self, index: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        let place = |(number, cluster): (ClusterIndex, &Cluster)| {
            let plan = &mut self.plans[number.at()];
            plan.deal(cluster, view);
            (plan.insert(index, cluster, view), number)
        };
        let places: Vec<(Moment, ClusterIndex)> = view.clusters_for(index).map(place).collect();
        let best = places.iter().min_by_key(|(start, _)| *start);
        for worse in places.iter().filter(|place| Some(*place) != best) {
            self.plans[worse.1.at()].list.retain(|(_, listed)| *listed != index);
        }
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let mut plans = (0_u32..).map(ClusterIndex).zip(&mut self.plans).zip(view.clusters);
        let (job, cluster) = plans.find_map(|((number, plan), cluster)| {
            let (_, job) = *plan.list.first()?;
            cluster.fits_now(&view.job(job).shape).then(|| (plan.list.remove(0).1, number))
        })?;
        self.running.insert(job, (cluster, view.now.plus_seconds(view.job(job).expected_s())));
        Some(Start { job, cluster, hosts: None })
    }

    fn ended(&mut self, index: JobIndex, view: &View<'_>) {
        if let Some((cluster, planned_end)) = self.running.remove(&index)
            && view.now < planned_end
        {
            self.plans[cluster.at()].compress(&view.clusters[cluster.at()], view);
        }
    }
}
