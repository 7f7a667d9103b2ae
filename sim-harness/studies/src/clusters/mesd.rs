//! MESD: all that waits is put into an order, the job that loses least against the empty grid first; the next order is made when all of
//! this one has begun.
//!
//! Source: the dissertation on multi-clusters, 3.3 (algorithms 2 and 3; of line 11 the text counts, which takes the smallest difference).
//! Invariant: what is chosen fits the free hosts; carried jobs saturate no link but by one that no links bear alone.

use std::collections::VecDeque;

use super::{
    policies::{by_power, fastest},
    world::{Cluster, Counts, Job, Policy, Running, State},
};

/// How hosts are chosen, as `kolo plan --batch mesd` and `mesd:literal` do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The fastest ones on which the job puts no more on links than they bear, of those the slowest ones. A job that no links bear alone
    /// gets its hosts literally.
    Carried,
    /// Algorithm 3: links are no limit.
    Literal,
}

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

fn chosen(waiting: &[usize], state: &State, choice: Choice) -> Vec<Chosen> {
    let (jobs, clusters) = (state.jobs, state.clusters);
    let all: Counts = clusters.iter().map(|cluster| cluster.hosts).collect();
    let idle = vec![0.0; clusters.len()];
    // What each has on the empty grid, and whether links bear it there.
    let ideal = |job: &usize| {
        let carried = if choice == Choice::Carried { carried(&jobs[*job], &all, &idle, clusters) } else { None };
        let is_carried = carried.is_some();
        let time = jobs[*job].time(&carried.or_else(|| moved(&jobs[*job], &all, clusters))?, clusters);
        Some((*job, time, is_carried))
    };
    // A job that does not fit the empty grid is never placed.
    let mut left: Vec<(usize, f64, bool)> = waiting.iter().filter_map(ideal).collect();
    let (mut free, mut loads) = (state.free(), state.loads());
    // What is in use, with its end: what runs already counts as begun now.
    let begun =
        |running: &Running| (jobs[running.job].time(&running.counts, clusters), running.job, running.counts.clone());
    let mut in_use: Vec<(f64, usize, Counts)> = state.running.iter().map(begun).collect();
    let (mut now, mut order) = (0.0, Vec::new());
    while !left.is_empty() {
        let loss = |(at, (job, ideal, is_carried)): (usize, &(usize, f64, bool))| {
            let counts = match is_carried {
                true => carried(&jobs[*job], &free, &loads, clusters),
                false => moved(&jobs[*job], &free, clusters),
            }?;
            Some((jobs[*job].time(&counts, clusters) - ideal, at, counts))
        };
        let best = left.iter().enumerate().filter_map(loss).min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, at, counts)) = best {
            let (job, _, is_carried) = left.remove(at);
            take(&jobs[job], &counts, (&mut free, &mut loads), false);
            in_use.push((now + jobs[job].time(&counts, clusters), job, counts.clone()));
            order.push(Chosen { job, counts, is_carried });
            continue;
        }
        let first = in_use.iter().enumerate().min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
        let Some((at, _)) = first else { break };
        let (end, job, counts) = in_use.swap_remove(at);
        now = end.max(now);
        take(&jobs[job], &counts, (&mut free, &mut loads), true);
        if in_use.is_empty() {
            // Nothing is left of rounding.
            loads.fill(0.0);
        }
    }
    order
}

fn take(job: &Job, counts: &[u32], (free, loads): (&mut Counts, &mut [f64]), is_back: bool) {
    for ((free, load), tasks) in free.iter_mut().zip(loads).zip(counts) {
        let sent = job.load(*tasks);
        *free = if is_back { *free + tasks } else { *free - tasks };
        *load += if is_back { -sent } else { sent };
    }
}

/// The fastest free hosts, then as many tasks as fit moved from faster clusters to the slowest one that is used (algorithm 3).
fn moved(job: &Job, free: &[u32], clusters: &[Cluster]) -> Option<Counts> {
    let mut counts = fastest(job, free, clusters)?;
    let order = by_power(clusters);
    let used: Vec<usize> = order.into_iter().filter(|at| counts[*at] > 0).collect();
    let (slowest, faster) = used.split_last()?;
    let mut room = free[*slowest] - counts[*slowest];
    for at in faster {
        let tasks = counts[*at].min(room);
        counts[*at] -= tasks;
        counts[*slowest] += tasks;
        room -= tasks;
    }
    Some(counts)
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
