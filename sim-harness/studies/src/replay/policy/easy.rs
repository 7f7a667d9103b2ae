//! Aggressive backfilling (EASY): first come, first served, but while the first job waits, later ones may start if they
//! do not delay it.
//!
//! The first job has a reservation: the earliest time at which its hosts, with their processors and memory, are free on one of
//! the clusters that could ever run it, if running jobs end as planned (of two equally early clusters the first). A later job
//! starts on the first hosts that fit it, on another cluster, or if it is planned to end before that time, or if the first
//! job fits beside it at that time. Jobs are planned with their teardown.
//! Invariant: with true run times no job starts later than it was first promised as the first of the queue.

use sim_kit::virtual_time::SECOND_US;

use super::{
    backlog::{Backlog, Room},
    view::{Policy, Start, View},
};
use crate::replay::{
    cluster::{Cluster, EarliestFit},
    job::{ClusterIndex, JobIndex},
};

/// Waiting jobs in the order of submission.
#[derive(Debug, Default)]
pub struct Easy {
    backlog: Backlog,
}

impl Easy {
    /// The next job behind `head` that may start without delaying it.
    fn backfill(
        &self,
        head: JobIndex,
        (reserved, fit): &(ClusterIndex, EarliestFit),
        view: &View<'_>,
    ) -> Option<Start> {
        let elsewhere = (0..).zip(view.clusters).filter(|(index, _)| *index != reserved.0);
        let free_elsewhere = elsewhere.map(|(_, cluster)| cluster.free_processors()).max().unwrap_or(0);
        let free_here = view.clusters[reserved.at()].free_processors();
        let room = Room {
            any_processors: free_elsewhere.max(free_here.min(fit.extra_processors())),
            short_processors: free_here,
            // A job that ends in the second of the reservation is looked at below, to the microsecond.
            short_s: (fit.at.0 - view.now.0).div_euclid(SECOND_US).saturating_add(1),
        };
        let mut after = head;
        while let Some(job) = self.backlog.next_after(after, &room) {
            let known = view.job(job);
            let ends_before = view.now.plus_seconds(known.planned_s) < fit.at;
            let start = view.clusters_for(job).find_map(|(cluster, state)| {
                let hosts = state.first_fit(&known.shape)?;
                let is_harmless =
                    cluster != *reserved || ends_before || fit.is_kept_beside(&known.shape, &hosts, &state.spec);
                is_harmless.then_some(Start { job, cluster, hosts: Some(hosts) })
            });
            if start.is_some() {
                return start;
            }
            after = job;
        }
        None
    }
}

/// The reservation of the first job: its cluster, and what is free there then.
fn reserve(head: JobIndex, view: &View<'_>) -> Option<(ClusterIndex, EarliestFit)> {
    let shape = &view.job(head).shape;
    view.clusters_for(head)
        .filter_map(|(index, cluster)| Some((index, cluster.earliest_fit(shape, view.now)?)))
        .min_by_key(|(index, fit)| (fit.at, *index))
}

impl Policy for Easy {
    fn submitted(&mut self, job: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        self.backlog.insert(job, view.job(job));
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let head = self.backlog.first()?;
        let start = match view.cluster_for(head) {
            Some(cluster) => Start { job: head, cluster, hosts: None },
            None => {
                // Often no later job is narrow enough for any cluster; then no reservation is needed.
                let any_processors = view.clusters.iter().map(Cluster::free_processors).max()?;
                self.backlog.next_after(head, &Room { any_processors, short_processors: 0, short_s: 0 })?;
                self.backfill(head, &reserve(head, view)?, view)?
            }
        };
        self.backlog.remove(start.job);
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::replay::{
        engine::{START_US, replay},
        tests::traces,
    };
    use sim_kit::virtual_time::Moment;

    /// EASY, and what it promised each first job when that did not fit for the first time.
    #[derive(Default)]
    struct Watched {
        easy: Easy,
        promised: BTreeMap<JobIndex, Moment>,
    }

    impl Policy for Watched {
        fn submitted(&mut self, job: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
            self.easy.submitted(job, view)
        }

        fn next(&mut self, view: &View<'_>) -> Option<Start> {
            if let Some(head) = self.easy.backlog.first()
                && view.cluster_for(head).is_none()
                && let Some((_, fit)) = reserve(head, view)
            {
                self.promised.entry(head).or_insert(fit.at);
            }
            self.easy.next(view)
        }
    }

    /// Up to two starts of other jobs may be under way at the promised moment. On random traces the oracle checks the same.
    #[test]
    fn with_true_run_times_no_first_job_of_a_published_trace_starts_later_than_first_promised() {
        let Some(folder) = traces::folder("no_first_job_of_a_published_trace_starts_later") else { return };
        for (name, least) in [("hpc2n", 500), ("wagap-2013", 200)] {
            let (trace, clusters) = traces::load(&folder, name, &traces::RULES);
            let mut watched = Watched::default();
            let runs = replay(&trace.jobs, &clusters, &mut watched, |_| ()).unwrap();
            let is_late = |(job, at): &(&JobIndex, &Moment)| runs[job.at()].start.0 > at.0 + 2 * START_US;
            let (count, late) = (watched.promised.len(), watched.promised.iter().filter(is_late).count());
            assert!(late == 0 && count > least, "{name}: {late} of {count} late");
        }
    }
}
