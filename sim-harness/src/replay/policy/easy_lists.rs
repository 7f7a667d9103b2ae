//! EASY with the books of the simulator that the figures in docs/dev/replay.md come from. It is here to show why those figures
//! differ from `easy`'s, not to be used: its reservations are wrong.
//!
//! There, every running job has a list of processors, which is made up when the first reservation after its start is
//! computed: those that seem to be free earliest. All but the last of them are then marked with a time long past. In that
//! computation they count as free, and lists that are made up later take them first, so the lists of two jobs overlap and
//! their times add up. Some reservations are too early, others too late, and more jobs are let past than by the book.
//! Invariant: a job starts only where it fits, and the first one as soon as it does.

use std::cmp::Reverse;

use super::{Policy, Setup, Start, View};
use crate::replay::{
    cluster::ClusterIndex,
    job::JobIndex,
    moment::{Moment, SECOND_US, START_US},
};

/// The mark, in microseconds.
const MARK_US: i64 = -999 * SECOND_US;
/// What counts as marked.
const MARKED_US_MAX: i64 = -998 * SECOND_US;
/// A job that should end so soon makes all ends be computed anew.
const SOON_US: i64 = SECOND_US / 10;

/// A job that runs.
#[derive(Debug)]
struct Running {
    job: JobIndex,
    start: Moment,
    /// Made up, ascending; empty until the first reservation after the start.
    processors: Vec<usize>,
    expected_end_us: i64,
}

/// The reservation of the first job.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    cluster: ClusterIndex,
    start_us: i64,
    extra_processors: u64,
}

/// See the module.
#[derive(Debug)]
pub struct EasyLists {
    waiting: Vec<JobIndex>,
    /// By cluster, in the order of their starts.
    running: Vec<Vec<Running>>,
}

/// The processors that seem to be free earliest, in this order; all but the last are marked.
fn earliest(free_at_us: &mut [i64], count: u64) -> Vec<usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut order: Vec<usize> = (0..free_at_us.len()).filter(|at| free_at_us[*at] > MARKED_US_MAX).collect();
    order.sort_by_key(|at| free_at_us[*at]);
    // When no more are left the last one is named again.
    let last = order.last().copied().unwrap_or(0);
    order.resize(count.min(free_at_us.len()), last);
    if let Some((_, marked)) = order.split_last() {
        marked.iter().for_each(|at| free_at_us[*at] = MARK_US);
    }
    order
}

impl EasyLists {
    /// Nobody waits, nobody runs.
    pub fn new(setup: &Setup<'_>) -> EasyLists {
        EasyLists { waiting: Vec::new(), running: setup.clusters.iter().map(|_| Vec::new()).collect() }
    }

    /// When each processor of a cluster seems to be free.
    fn free_at_us(&mut self, cluster: ClusterIndex, view: &View<'_>) -> Vec<i64> {
        let count = usize::try_from(view.clusters[cluster.at()].spec.processors()).unwrap_or(usize::MAX);
        let mut free_at_us = vec![view.now.0; count];
        for running in &mut self.running[cluster.at()] {
            let job = view.job(running.job);
            let left_us = (running.start.plus_seconds(job.expected_s()).0 - view.now.0).max(0);
            if running.processors.is_empty() {
                running.processors = earliest(&mut free_at_us, job.shape.processors());
                running.processors.sort_unstable();
            }
            for processor in &running.processors {
                free_at_us[*processor] = free_at_us[*processor].saturating_add(left_us);
            }
            if let Some(first) = running.processors.first() {
                running.expected_end_us = free_at_us[*first];
            }
        }
        free_at_us
    }

    fn reserve(&mut self, head: JobIndex, view: &View<'_>) -> Option<Reservation> {
        let processors = view.job(head).shape.processors();
        let mut best: Option<Reservation> = None;
        for (cluster, state) in view.clusters_with_index() {
            if state.spec.processors() < processors {
                continue;
            }
            let mut free_at_us = self.free_at_us(cluster, view);
            let Some(last) = earliest(&mut free_at_us, processors).last().copied() else { continue };
            let start_us = std::mem::replace(&mut free_at_us[last], MARK_US);
            let extra_processors = free_at_us.iter().filter(|at| **at == start_us).count() as u64;
            let found = Reservation { cluster, start_us, extra_processors };
            // Of two equal ones the later cluster's.
            let rank = |one: &Reservation| (one.start_us, Reverse(one.cluster));
            best = best.into_iter().chain([found]).min_by_key(rank);
        }
        best
    }

    /// The next job behind the first, its position and where it starts.
    fn backfill(&self, reserved: &Reservation, view: &View<'_>) -> Option<(usize, Start)> {
        self.waiting.iter().enumerate().skip(1).find_map(|(position, index)| {
            let job = view.job(*index);
            let is_harmless = view.now.plus_seconds(job.expected_s()).0 < reserved.start_us
                || job.shape.processors() <= reserved.extra_processors;
            let mut clusters = view.clusters_with_index();
            let (cluster, _) = clusters
                .find(|(cluster, state)| (*cluster != reserved.cluster || is_harmless) && state.fits_now(&job.shape))?;
            Some((position, Start { job: *index, cluster, hosts: None }))
        })
    }
}

impl Policy for EasyLists {
    fn submitted(&mut self, job: JobIndex, _: &View<'_>) {
        self.waiting.push(job);
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        for (cluster, _) in view.clusters_with_index() {
            let soon_us = view.now.0 + SOON_US;
            if self.running[cluster.at()].iter().any(|running| running.expected_end_us <= soon_us) {
                self.free_at_us(cluster, view);
            }
        }
        let head = *self.waiting.first()?;
        let (position, start) = match view.cluster_for(head) {
            Some(cluster) => (0, Start { job: head, cluster, hosts: None }),
            None if view.clusters.iter().all(|cluster| cluster.free_processors() == 0) => return None,
            None => {
                let reserved = self.reserve(head, view)?;
                self.backfill(&reserved, view)?
            }
        };
        self.waiting.remove(position);
        let job = view.job(start.job);
        self.running[start.cluster.at()].push(Running {
            job: start.job,
            start: Moment(view.now.0.saturating_add(START_US)),
            processors: Vec::new(),
            expected_end_us: Moment::of_second(job.submit_s.saturating_add(job.limit_s)).0,
        });
        Some(start)
    }

    fn ended(&mut self, job: JobIndex, _: &View<'_>) {
        self.running.iter_mut().for_each(|running| running.retain(|running| running.job != job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_are_taken_in_order_and_all_but_the_last_are_marked() {
        let mut free_at_us = [5, 3, MARK_US, 3, 9];
        assert_eq!(earliest(&mut free_at_us, 3), [1, 3, 0]);
        assert_eq!(free_at_us, [5, MARK_US, MARK_US, MARK_US, 9]);
        assert_eq!(earliest(&mut free_at_us, 3), [0, 4, 4], "no more are left");
    }
}
