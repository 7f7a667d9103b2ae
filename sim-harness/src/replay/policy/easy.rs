//! Aggressive backfilling (EASY): first come, first served, but while the first job waits, later ones may start if they
//! do not delay it.
//!
//! The first job has a reservation on one cluster: the time at which enough processors will be free there, if running
//! jobs end as planned (the earliest over the clusters; of two equal ones the later). A later job starts if it fits and
//! is on another cluster, or is planned to end before that time, or needs no more processors than the first job leaves
//! over then. Like the original, the reservation counts processors: neither on which hosts they are nor how much memory
//! is there. Invariant: a job that starts out of order satisfies one of these three conditions.

use super::{
    Policy, Setup, Start, View,
    backlog::{Backlog, Room},
};
use crate::replay::{
    cluster::{Cluster, ClusterIndex},
    job::JobIndex,
    moment::{Moment, SECOND_US},
};

/// The reservation of the first job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reservation {
    cluster: ClusterIndex,
    start: Moment,
    /// Processors that are free at the start beside those of the job.
    extra_processors: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Easy {
    backlog: Backlog,
}

impl Easy {
    /// Nobody waits.
    pub fn new(setup: &Setup<'_>) -> Easy {
        Easy { backlog: Backlog::new(setup.jobs.len()) }
    }

    /// The next job behind `head` that may start without delaying it.
    fn backfill(&self, head: JobIndex, reservation: &Reservation, view: &View<'_>) -> Option<Start> {
        let reserved = &view.clusters[reservation.cluster.at()];
        let elsewhere = view.clusters_with_index().filter(|(index, _)| *index != reservation.cluster);
        let free_elsewhere = elsewhere.map(|(_, cluster)| cluster.free_processors()).max().unwrap_or(0);
        let free_here = reserved.free_processors();
        let room = Room {
            any_processors: free_elsewhere.max(free_here.min(reservation.extra_processors)),
            short_processors: free_here,
            // A job that ends in the second of the reservation is looked at below, to the microsecond.
            short_s: (reservation.start.0 - view.now.0).div_euclid(SECOND_US).saturating_add(1),
        };
        let mut after = head;
        while let Some(job) = self.backlog.next_after(after, &room) {
            if let Some(cluster) = cluster_beside(job, reservation, view) {
                return Some(Start { job, cluster, hosts: None });
            }
            after = job;
        }
        None
    }
}

impl Policy for Easy {
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) {
        self.backlog.insert(job, view.job(job));
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let head = self.backlog.first()?;
        let start = match view.cluster_for(head) {
            Some(cluster) => Start { job: head, cluster, hosts: None },
            None if view.clusters.iter().all(|cluster| cluster.free_processors() == 0) => return None,
            None => self.backfill(head, &reserve(head, view)?, view)?,
        };
        self.backlog.remove(start.job);
        Some(start)
    }
}

/// The first cluster on which `job` may start beside the reservation.
fn cluster_beside(job: JobIndex, reservation: &Reservation, view: &View<'_>) -> Option<ClusterIndex> {
    let job = view.job(job);
    let is_harmless = |index: ClusterIndex| {
        index != reservation.cluster
            || view.now.plus_seconds(job.expected_s()) < reservation.start
            || job.shape.processors() <= reservation.extra_processors
    };
    view.clusters_with_index()
        .find(|(index, cluster)| is_harmless(*index) && cluster.fits_now(&job.shape))
        .map(|(index, _)| index)
}

/// The earliest reservation for `job`; of equally early ones the last cluster's.
fn reserve(job: JobIndex, view: &View<'_>) -> Option<Reservation> {
    let processors = view.job(job).shape.processors();
    view.clusters_with_index()
        .filter(|(_, cluster)| cluster.spec.processors() >= processors)
        .map(|(index, cluster)| reserve_on(index, cluster, processors, view.now))
        .min_by_key(|reservation| (reservation.start, std::cmp::Reverse(reservation.cluster)))
}

fn reserve_on(index: ClusterIndex, cluster: &Cluster, processors: u64, now: Moment) -> Reservation {
    let mut free = cluster.free_processors();
    let mut start = now;
    let mut ends = cluster.expected_ends().map(|(end, freed)| (end.max(now), freed)).peekable();
    while let Some((end, freed)) = ends.next_if(|(end, _)| free < processors || *end <= start) {
        start = end;
        free += freed;
    }
    Reservation { cluster: index, start, extra_processors: free.saturating_sub(processors) }
}
