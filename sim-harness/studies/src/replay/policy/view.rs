//! What a scheduling policy is, and what it sees.
//!
//! Invariant: a policy sees jobs that have been submitted, and of these what a scheduler knows: with estimates the limit and not
//! the true run time (one exception: [`Known::length_s`]).

use sim_kit::virtual_time::Moment;

use crate::replay::{
    cluster::{Cluster, ClusterSpec},
    job::{ClusterIndex, Job, JobIndex, Known},
};

/// What a policy sees: the time, the jobs submitted so far, the clusters.
#[derive(Debug)]
pub struct View<'a> {
    /// The present moment.
    pub now: Moment,
    /// The clusters, those with the most processors first.
    pub clusters: &'a [Cluster],
    pub(in crate::replay) submitted: &'a [Job],
}

impl<'a> View<'a> {
    /// What is known of a job that has been submitted.
    pub fn job(&self, job: JobIndex) -> &'a Known {
        &self.submitted[job.at()].known
    }

    /// The clusters that could run the job when empty: large enough, and allowed by its tags.
    pub fn clusters_for(&self, job: JobIndex) -> impl Iterator<Item = (ClusterIndex, &'a Cluster)> {
        let known = self.job(job);
        let clusters = (0_u32..).map(ClusterIndex).zip(self.clusters);
        clusters.filter(|(index, cluster)| known.may_run_on(*index) && cluster.spec.could_ever_run(&known.shape))
    }

    /// The first cluster that can start the job now.
    pub fn cluster_for(&self, job: JobIndex) -> Option<ClusterIndex> {
        let shape = &self.job(job).shape;
        self.clusters_for(job).find(|(_, cluster)| cluster.fits_now(shape)).map(|(index, _)| index)
    }
}

/// A job that is to start now.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub job: JobIndex,
    /// Its cluster.
    pub cluster: ClusterIndex,
    /// Its hosts; without them the first that fit.
    pub hosts: Option<Box<[u32]>>,
}

/// Decides which waiting job starts, and when.
pub trait Policy {
    /// A job was submitted.
    ///
    /// # Errors
    /// When the policy cannot handle the job; the replay then ends.
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) -> anyhow::Result<()>;

    /// The next job to start at this moment; it is no longer waiting afterwards. `None` until something happens.
    fn next(&mut self, view: &View<'_>) -> Option<Start>;

    /// A job that this policy started has ended, perhaps earlier than expected.
    fn ended(&mut self, _job: JobIndex, _view: &View<'_>) {}

    /// When, after `now`, the policy is to be asked even if nothing happens before.
    fn wake_after(&self, _now: Moment) -> Option<Moment> {
        None
    }
}

/// What a policy knows before the first job arrives.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The clusters, in the order of [`View::clusters`].
    pub clusters: &'a [ClusterSpec],
    /// Seed of all random choices.
    pub seed: u64,
    /// Other plans that `qos-plan` looks at in a search; 0 is the source's algorithm.
    pub search: u32,
}
