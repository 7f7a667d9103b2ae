//! MESD in virtual time: all that waits is put into an order by `broker`, the job that loses least against the empty grid first; the next
//! order is made when all of this one has begun.
//!
//! Source: the dissertation on multi-clusters, 3.3. Carried hosts are counted here: a job may have more ways to be spread than the product
//! looks at, and none of the product's demands besides. Invariant: what is chosen fits the free hosts; carried jobs saturate no link but by
//! one that no links bear alone.

use std::collections::{BTreeMap, VecDeque};

use broker::batch::multicluster::{Choice, Grid, allocated, least_slowdown_first};

use super::{
    policies::by_power,
    world::{Cluster, Counts, Job, Policy, Running, State},
};

/// A job with its hosts, and whether they are to be waited for until the links bear it.
struct Chosen {
    job: usize,
    counts: Counts,
    is_carried: bool,
}

/// The policy.
pub(crate) struct LeastSlowdown {
    choice: Choice,
    planned: VecDeque<Chosen>,
}

impl LeastSlowdown {
    pub(crate) fn new(choice: Choice) -> LeastSlowdown {
        LeastSlowdown { choice, planned: VecDeque::new() }
    }
}

impl Policy for LeastSlowdown {
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)> {
        if self.planned.is_empty() {
            self.planned = chosen(waiting, state, self.choice).into();
        }
        let Chosen { job, counts, is_carried } = self.planned.front()?;
        let has_hosts = counts.iter().zip(state.free()).all(|(tasks, free)| *tasks <= free);
        let job = &state.jobs[*job];
        let bears = |((tasks, load), cluster): ((&u32, f64), &Cluster)| bears(cluster, load + job.load(*tasks));
        let has_links = !is_carried || counts.iter().zip(state.loads()).zip(state.clusters).all(bears);
        let next = self.planned.pop_front_if(|_| has_hosts && has_links)?;
        Some((next.job, next.counts))
    }
}

/// Whether a link bears so much; what is left after rounding is nothing.
fn bears(cluster: &Cluster, load: f64) -> bool {
    load <= cluster.link + 1e-9
}

/// The order of all that waits, each with its hosts.
pub(crate) fn ordered(waiting: &[usize], state: &State, choice: Choice) -> Vec<(usize, Counts)> {
    chosen(waiting, state, choice).into_iter().map(|Chosen { job, counts, .. }| (job, counts)).collect()
}

/// The grid as it will be when what is chosen has begun.
struct Foreseen<'a> {
    jobs: &'a [Job],
    clusters: &'a [Cluster],
    /// What each has on the empty grid, and whether links bear it there.
    ideal: BTreeMap<usize, (f64, bool)>,
    free: Counts,
    loads: Vec<f64>,
    /// What is in use, with its end: what runs already counts as begun now.
    in_use: Vec<(f64, usize, Counts)>,
    now: f64,
    order: Vec<Chosen>,
}

fn chosen(waiting: &[usize], state: &State, choice: Choice) -> Vec<Chosen> {
    let (jobs, clusters) = (state.jobs, state.clusters);
    let begun =
        |running: &Running| (jobs[running.job].time(&running.counts, clusters), running.job, running.counts.clone());
    let mut grid = Foreseen {
        jobs,
        clusters,
        ideal: BTreeMap::new(),
        free: clusters.iter().map(|cluster| cluster.hosts).collect(),
        loads: vec![0.0; clusters.len()],
        in_use: state.running.iter().map(begun).collect(),
        now: 0.0,
        order: Vec::new(),
    };
    let ideal = |job: &usize| {
        let carried = if choice == Choice::Carried { grid.carried(*job) } else { None };
        let is_carried = carried.is_some();
        let time = jobs[*job].time(&carried.or_else(|| grid.moved(*job))?, clusters);
        Some((*job, (time, is_carried)))
    };
    let ideal: BTreeMap<usize, (f64, bool)> = waiting.iter().filter_map(ideal).collect();
    // A job that does not fit the empty grid is never placed.
    let left = waiting.iter().copied().filter(|job| ideal.contains_key(job)).collect();
    (grid.ideal, grid.free, grid.loads) = (ideal, state.free(), state.loads());
    least_slowdown_first(left, &mut grid);
    grid.order
}

impl Grid for Foreseen<'_> {
    type Loss = f64;
    type Hosts = Counts;

    fn allocate(&mut self, job: usize) -> Option<(f64, Counts)> {
        let (ideal, is_carried) = *self.ideal.get(&job)?;
        let counts = if is_carried { self.carried(job) } else { self.moved(job) }?;
        Some((self.jobs[job].time(&counts, self.clusters) - ideal, counts))
    }

    fn begin(&mut self, job: usize, counts: Counts) {
        take(&self.jobs[job], &counts, (&mut self.free, &mut self.loads), false);
        self.in_use.push((self.now + self.jobs[job].time(&counts, self.clusters), job, counts.clone()));
        let is_carried = self.ideal.get(&job).is_some_and(|ideal| ideal.1);
        self.order.push(Chosen { job, counts, is_carried });
    }

    fn free_next(&mut self) -> bool {
        let first = self.in_use.iter().enumerate().min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
        let Some((at, _)) = first else { return false };
        let (end, job, counts) = self.in_use.swap_remove(at);
        self.now = end.max(self.now);
        take(&self.jobs[job], &counts, (&mut self.free, &mut self.loads), true);
        if self.in_use.is_empty() {
            // Nothing is left of rounding.
            self.loads.fill(0.0);
        }
        true
    }
}

impl Foreseen<'_> {
    /// The hosts of a job, whatever the links.
    fn moved(&self, job: usize) -> Option<Counts> {
        allocated(self.jobs[job].tasks, &by_power(self.clusters), &self.free, |cluster| cluster)
    }

    /// The hosts of a job within what links bear.
    fn carried(&self, job: usize) -> Option<Counts> {
        carried(&self.jobs[job], &self.free, &self.loads, self.clusters)
    }
}

fn take(job: &Job, counts: &[u32], (free, loads): (&mut Counts, &mut [f64]), is_back: bool) {
    for ((free, load), tasks) in free.iter_mut().zip(loads).zip(counts) {
        let sent = job.load(*tasks);
        *free = if is_back { *free + tasks } else { *free - tasks };
        *load += if is_back { -sent } else { sent };
    }
}

/// The free hosts on which the job is shortest over links that bear it, as many as can be on the slowest of them. What t of n tasks put on
/// a link rises up to n / 2 and falls behind it in the same way, so each bears up to some number, or all but so many: the home's.
fn carried(job: &Job, free: &[u32], loads: &[f64], clusters: &[Cluster]) -> Option<Counts> {
    let (tasks, order) = (job.tasks, by_power(clusters));
    let most = |at: &usize| {
        let (mut fits, mut over) = (0, tasks / 2 + 1);
        while fits + 1 < over {
            let middle = u32::midpoint(fits, over);
            if bears(&clusters[*at], loads[*at] + job.load(middle)) { fits = middle } else { over = middle }
        }
        if fits == tasks / 2 { tasks } else { fits }
    };
    let most: Counts = (0..clusters.len()).map(|at| most(&at)).collect();
    let usable = |at: usize| free[at].min(most[at]);
    (1..=order.len()).find_map(|fast| {
        let slowest_first = || order[..fast].iter().rev().copied();
        let all: u32 = slowest_first().map(usable).sum();
        let is_home = |at: &usize| {
            most[*at] < tasks && free[*at].min(tasks) >= tasks - most[*at] && all - usable(*at) + free[*at] >= tasks
        };
        let home = slowest_first().find(is_home);
        if home.is_none() && all < tasks {
            return None;
        }
        let (mut counts, mut left) = (vec![0; free.len()], tasks);
        for at in home.into_iter().chain(slowest_first().filter(|at| Some(*at) != home)) {
            counts[at] = if Some(at) == home { free[at] } else { usable(at) }.min(left);
            left -= counts[at];
        }
        Some(counts)
    })
}
