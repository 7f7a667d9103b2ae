//! EASY as the simulator keeps its books from which the figures in docs/replay.md come: why its figures differ from ours.
//!
//! There, every running job has a list of processors, which is made up when the first reservation after its start is
//! computed: those that seem to be free earliest. All but the last of them are then marked with a time long past. In that
//! computation they count as free, and lists that are made up later take them first, so the lists of two jobs overlap and
//! their times add up. Some reservations are too early, others too late, and more jobs are let past than by the book.

use crate::replay::{
    job::JobIndex,
    moment::{Moment, SECOND_US, START_US},
    policy::{Policy, Start, View},
};

/// The mark, in microseconds.
const MARK_US: i64 = -999 * SECOND_US;
/// What counts as marked.
const MARKED_US_MAX: i64 = -998 * SECOND_US;
/// A job that should end so soon makes all ends be computed anew.
const SOON_US: i64 = SECOND_US / 10;

struct Running {
    job: JobIndex,
    start: Moment,
    processors: Vec<usize>,
    expected_end_us: i64,
}

/// See the module.
#[derive(Default)]
pub struct Lists {
    waiting: Vec<JobIndex>,
    /// By cluster, in the order of their starts.
    running: Vec<Vec<Running>>,
}

/// The processors that seem to be free earliest; all but the last are marked.
fn earliest(free_at_us: &mut [i64], count: u64) -> Vec<usize> {
    let pick = |number| {
        let unmarked = (0..free_at_us.len()).filter(|at| free_at_us[*at] > MARKED_US_MAX);
        let at = unmarked.min_by_key(|at| free_at_us[*at]).unwrap_or(0);
        if number < count {
            free_at_us[at] = MARK_US;
        }
        at
    };
    (1..=count).map(pick).collect()
}

impl Lists {
    /// When each processor of a cluster is free.
    fn free_at_us(&mut self, cluster: usize, view: &View<'_>) -> Vec<i64> {
        let mut free_at_us = vec![view.now.0; view.clusters[cluster].spec.processors() as usize];
        for running in &mut self.running[cluster] {
            let job = view.job(running.job);
            let left_us = (job.expected_s() * SECOND_US - (view.now.0 - running.start.0)).max(0);
            if running.processors.is_empty() {
                running.processors = earliest(&mut free_at_us, job.shape.processors());
            }
            for processor in &running.processors {
                free_at_us[*processor] += left_us;
            }
            running.expected_end_us = free_at_us[*running.processors.iter().min().unwrap()];
        }
        free_at_us
    }

    /// Cluster, start and processors left over of the first job's reservation.
    fn reserve(&mut self, view: &View<'_>) -> (usize, i64, u64) {
        let processors = view.job(self.waiting[0]).shape.processors();
        let able = (0..view.clusters.len()).filter(|at| view.clusters[*at].spec.processors() >= processors);
        let reservations = able.map(|cluster| {
            let mut free_at_us = self.free_at_us(cluster, view);
            let last = *earliest(&mut free_at_us, processors).last().unwrap();
            let start_us = free_at_us[last];
            let extra = free_at_us.iter().filter(|at| **at == start_us).count() as u64 - 1;
            (cluster, start_us, extra)
        });
        reservations.min_by_key(|(cluster, start_us, _)| (*start_us, std::cmp::Reverse(*cluster))).unwrap()
    }

    fn backfill(&mut self, view: &View<'_>) -> Option<(usize, Start)> {
        let (reserved, start_us, extra) = self.reserve(view);
        self.waiting.iter().enumerate().skip(1).find_map(|(position, index)| {
            let job = view.job(*index);
            let harmless = view.now.plus_seconds(job.expected_s()).0 < start_us || job.shape.processors() <= extra;
            let mut clusters = view.clusters_with_index();
            let (cluster, _) = clusters
                .find(|(cluster, state)| (cluster.at() != reserved || harmless) && state.fits_now(&job.shape))?;
            Some((position, Start { job: *index, cluster, hosts: None }))
        })
    }
}

impl Policy for Lists {
    fn submitted(&mut self, job: JobIndex, _: &View<'_>) {
        self.waiting.push(job);
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        self.running.resize_with(view.clusters.len(), Vec::new);
        for cluster in 0..view.clusters.len() {
            if self.running[cluster].iter().any(|running| running.expected_end_us <= view.now.0 + SOON_US) {
                self.free_at_us(cluster, view);
            }
        }
        let head = *self.waiting.first()?;
        let (position, start) = match view.cluster_for(head) {
            Some(cluster) => (0, Start { job: head, cluster, hosts: None }),
            None if view.clusters.iter().all(|cluster| cluster.free_processors() == 0) => return None,
            None => self.backfill(view)?,
        };
        self.waiting.remove(position);
        let job = view.job(start.job);
        self.running[start.cluster.at()].push(Running {
            job: start.job,
            start: Moment(view.now.0 + START_US),
            processors: Vec::new(),
            expected_end_us: Moment::of_second(job.submit_s + job.limit_s).0,
        });
        Some(start)
    }

    fn ended(&mut self, job: JobIndex, _: &View<'_>) {
        self.running.iter_mut().for_each(|running| running.retain(|running| running.job != job));
    }
}
