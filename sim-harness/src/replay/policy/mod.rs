//! What a scheduling policy is, and the one list of those that there are.
//!
//! The engine tells a policy what happens and asks it, after every event, for the next job to start; the policy answers
//! with one job at a time and is asked again until it has none. A new policy is one file that implements [`Policy`] and
//! one line in [`POLICIES`]; docs/dev/replay.md walks through `widest.rs`. A policy that only answers "when and where" for one
//! request after the other is a [`crate::placement::Placement`] instead, and works here too.
//! Invariant: a policy names a job at most once, and only while the cluster can hold it.

mod backlog;
mod conservative;
mod easy;
mod easy_lists;
mod edf;
mod fcfs;
mod ordered;
mod placed;
mod sjf;
mod widest;

use super::{
    cluster::{Cluster, ClusterIndex, ClusterSpec},
    job::{Job, JobIndex},
    moment::Moment,
};
use crate::placement;

/// What a policy sees: the clock, all jobs (of those not yet submitted it has no business to know), the clusters.
#[derive(Debug)]
pub struct View<'a> {
    /// The present moment.
    pub now: Moment,
    /// The trace.
    pub jobs: &'a [Job],
    /// The clusters, those with the most processors first.
    pub clusters: &'a [Cluster],
}

impl View<'_> {
    /// A job by its index.
    pub fn job(&self, job: JobIndex) -> &Job {
        &self.jobs[job.at()]
    }

    /// The first cluster that can start the job now.
    pub fn cluster_for(&self, job: JobIndex) -> Option<ClusterIndex> {
        let shape = &self.job(job).shape;
        self.clusters_with_index().find(|(_, cluster)| cluster.fits_now(shape)).map(|(index, _)| index)
    }

    /// The clusters with their numbers.
    pub fn clusters_with_index(&self) -> impl Iterator<Item = (ClusterIndex, &Cluster)> {
        (0_u32..).map(ClusterIndex).zip(self.clusters)
    }
}

/// A job that is to start now.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub job: JobIndex,
    /// Where.
    pub cluster: ClusterIndex,
    /// On which hosts; the first that fit when the policy does not care.
    pub hosts: Option<Box<[u32]>>,
}

/// Decides which waiting job starts, and when.
pub trait Policy {
    /// A job was submitted.
    fn submitted(&mut self, job: JobIndex, view: &View<'_>);

    /// The next job to start at this moment; it is no longer waiting afterwards. `None` until something happens.
    fn next(&mut self, view: &View<'_>) -> Option<Start>;

    /// A job that this policy started has ended, perhaps earlier than expected.
    fn ended(&mut self, _job: JobIndex, _view: &View<'_>) {}

    /// When, after `now`, the policy wants to be asked even if nothing happens before.
    fn wake_after(&self, _now: Moment) -> Option<Moment> {
        None
    }
}

/// What a policy may know before the first job arrives.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The trace.
    pub jobs: &'a [Job],
    /// The clusters, in the order of [`View::clusters`].
    pub clusters: &'a [ClusterSpec],
    /// Seed of all random choices.
    pub seed: u64,
}

/// Makes a policy for one replay.
pub type MakePolicy = fn(&Setup<'_>) -> Box<dyn Policy>;

/// Every policy of the queue by its name on the command line.
pub const POLICIES: [(&str, MakePolicy); 7] = [
    ("fcfs", |_| Box::new(fcfs::Fcfs::default())),
    ("easy", |setup| Box::new(easy::Easy::new(setup))),
    ("conservative", |setup| Box::new(conservative::Conservative::new(setup))),
    ("edf", |_| Box::new(edf::edf())),
    ("sjf", |_| Box::new(sjf::sjf())),
    ("widest", |_| Box::new(widest::Widest::default())),
    ("easy-lists", |setup| Box::new(easy_lists::EasyLists::new(setup))),
];

/// The names of all policies: those of the queue, then those that place one job after the other.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(name, _)| *name).chain(placement::PLACEMENTS.iter().map(|(name, _)| *name))
}

/// The policy of that name.
pub fn named(name: &str, setup: &Setup<'_>) -> Option<Box<dyn Policy>> {
    if let Some((_, make)) = POLICIES.iter().find(|(known, _)| *known == name) {
        return Some(make(setup));
    }
    placement::named(name).map(|make| Box::new(placed::Placed::new(setup, make())) as Box<dyn Policy>)
}
