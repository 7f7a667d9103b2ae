//! The policies of the source: which job starts next, and on how many hosts of each cluster.
//!
//! Source: the dissertation on multi-clusters, 3.1 (PAS, and its orders and comparators). All but PAS are literal: links are no limit to
//! them, and what saturates one runs slower. Invariant: what is chosen fits the free hosts; PAS saturates no link but by a job that does so
//! alone.

use std::{cmp::Reverse, collections::VecDeque};

use broker::batch::Order;

use super::world::{Cluster, Counts, Job, Policy, State, descending};

/// The orders of the source; the others need deadlines, or several resources.
pub(crate) const ORDERS: [Order; 6] = [Order::Fcfs, Order::Sjf, Order::Bjf, Order::Fpfs, Order::Spt, Order::Lpt];

/// An order's name as in the source.
pub(crate) fn order_name(order: Order) -> String {
    Order::ALL.iter().find(|(_, known)| *known == order).map(|(name, _)| name.to_uppercase()).unwrap_or_default()
}

/// The queue in an order; it comes in the order of arrival. Hosts are all that a job demands, and none has a deadline.
fn sorted(order: Order, waiting: &[usize], jobs: &[Job]) -> Vec<usize> {
    let mut sorted = waiting.to_vec();
    match order {
        Order::File | Order::Fcfs | Order::Fpfs | Order::Edf => {}
        Order::Sjf => sorted.sort_by_key(|job| jobs[*job].tasks),
        Order::Bjf | Order::Hdf => sorted.sort_by_key(|job| Reverse(jobs[*job].tasks)),
        Order::Spt => sorted.sort_by(|a, b| jobs[*a].base.total_cmp(&jobs[*b].base)),
        Order::Lpt => sorted.sort_by(|a, b| descending(jobs[*a].base, jobs[*b].base)),
    }
    sorted
}

/// How a job by itself gets its hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Placement {
    /// The fastest free hosts, whatever the links (JPR, and what the classic orders are combined with).
    Fastest,
    /// At least three quarters of the tasks in one cluster, with the least load of links (CBS).
    Chunk,
}

/// One job after another: the first of the queue starts or is waited for; of FPFS, the first that fits.
pub(crate) struct OneByOne {
    pub(crate) order: Order,
    pub(crate) placement: Placement,
}

impl Policy for OneByOne {
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)> {
        let looked_at = if self.order == Order::Fpfs { usize::MAX } else { 1 };
        let free = state.free();
        sorted(self.order, waiting, state.jobs).into_iter().take(looked_at).find_map(|job| {
            let counts = match self.placement {
                Placement::Fastest => fastest(&state.jobs[job], &free, state.clusters),
                Placement::Chunk => chunk(&state.jobs[job], &free, state.clusters),
            };
            Some((job, counts?))
        })
    }
}

/// Clusters by their power, the fastest first.
pub(super) fn by_power(clusters: &[Cluster]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..clusters.len()).collect();
    order.sort_by(|a, b| descending(clusters[*a].power, clusters[*b].power));
    order
}

/// So many tasks into these clusters, one after the other; none when there is too little room.
fn filled(mut tasks: u32, order: &[usize], free: &[u32]) -> Option<Counts> {
    let mut counts = vec![0; free.len()];
    for at in order {
        counts[*at] = tasks.min(free[*at]);
        tasks -= counts[*at];
    }
    (tasks == 0).then_some(counts)
}

/// The fastest free hosts, whatever the links; none when there are too few.
pub(crate) fn fastest(job: &Job, free: &[u32], clusters: &[Cluster]) -> Option<Counts> {
    filled(job.tasks, &by_power(clusters), free)
}

fn chunk(job: &Job, free: &[u32], clusters: &[Cluster]) -> Option<Counts> {
    let least = (job.tasks * 3).div_ceil(4);
    // A job that is too large for that in the empty grid goes into the largest parts.
    let can_ever = clusters.iter().any(|cluster| cluster.hosts >= least);
    let mut order: Vec<usize> = (0..clusters.len()).collect();
    order.sort_by_key(|at| Reverse(free[*at]));
    // The tightest cluster that takes it whole keeps the larger ones for others.
    let whole = order.iter().rev().find(|at| free[**at] >= job.tasks);
    if let Some(at) = whole {
        return filled(job.tasks, &[*at], free);
    }
    let largest = order.first()?;
    if can_ever && free[*largest] < least { None } else { filled(job.tasks, &order, free) }
}

/// PAS: every job of the queue that still fits goes into a package, which is assigned as a whole: the least sum of slowdowns that
/// saturates no link (3.8).
pub(crate) struct Packages {
    order: Order,
    planned: VecDeque<(usize, Counts)>,
}

/// Steps of the search for a package's assignment; beyond them the best until then counts.
const STEPS_MAX: u32 = 20_000;

impl Packages {
    pub(crate) fn new(order: Order) -> Packages {
        Packages { order, planned: VecDeque::new() }
    }
}

impl Policy for Packages {
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)> {
        if self.planned.is_empty() {
            let mut room: u32 = state.free().iter().sum();
            let mut package = sorted(self.order, waiting, state.jobs);
            let mut is_closed = false;
            package.retain(|job| {
                let tasks = state.jobs[*job].tasks;
                let fits = tasks <= room && !is_closed;
                room -= if fits { tasks } else { 0 };
                // In the order of arrival nobody overtakes; that is what tells it from "first that fits".
                is_closed |= !fits && self.order == Order::Fcfs;
                fits
            });
            // Where the links do not bear all of it, the last ones wait.
            while !package.is_empty() && self.planned.is_empty() {
                self.planned = assigned(&package, state).into();
                package.pop();
            }
            // What the links do not bear even alone would wait for ever.
            if self.planned.is_empty() && state.running.is_empty() {
                let first = sorted(self.order, waiting, state.jobs).into_iter().next()?;
                return Some((first, fastest(&state.jobs[first], &state.free(), state.clusters)?));
            }
        }
        self.planned.pop_front()
    }
}

/// A job with its modes and the cost of each, the cheapest first.
type Modes = (usize, Vec<(f64, Counts)>);

struct Search<'a> {
    state: &'a State<'a>,
    jobs: Vec<Modes>,
    /// The least that all jobs from here on cost.
    least: Vec<f64>,
    chosen: Vec<usize>,
    best: Option<(f64, Vec<usize>)>,
    steps: u32,
}

/// The best assignment of a package; empty when there is none.
fn assigned(package: &[usize], state: &State) -> Vec<(usize, Counts)> {
    let (free, clusters) = (state.free(), state.clusters);
    let modes = |job: &usize| {
        let mut modes = Vec::new();
        spread_over(state.jobs[*job].tasks, &free, &mut Vec::new(), &mut modes);
        let cost = |counts: Counts| (state.jobs[*job].time(&counts, clusters), counts);
        let mut modes: Vec<(f64, Counts)> = modes.into_iter().map(cost).collect();
        let load = |counts: &[u32]| counts.iter().map(|tasks| state.jobs[*job].load(*tasks)).sum::<f64>();
        modes.sort_by(|a, b| a.0.total_cmp(&b.0).then(load(&a.1).total_cmp(&load(&b.1))));
        (*job, modes)
    };
    let mut jobs: Vec<Modes> = package.iter().map(modes).collect();
    jobs.sort_by_key(|(job, _)| Reverse(state.jobs[*job].tasks));
    let mut least = vec![0.0; jobs.len() + 1];
    for at in (0..jobs.len()).rev() {
        least[at] = least[at + 1] + jobs[at].1.first().map_or(f64::INFINITY, |mode| mode.0);
    }
    let mut search = Search { state, jobs, least, chosen: Vec::new(), best: None, steps: 0 };
    search.go(0.0, &free, &state.loads());
    let Some((_, chosen)) = search.best else { return Vec::new() };
    let counts = |((job, modes), mode): (&Modes, usize)| (*job, modes[mode].1.clone());
    search.jobs.iter().zip(chosen).map(counts).collect()
}

/// All ways to put so many tasks into the clusters that are left.
fn spread_over(tasks: u32, free: &[u32], counts: &mut Counts, all: &mut Vec<Counts>) {
    let Some((first, rest)) = free.split_first() else {
        if tasks == 0 {
            all.push(counts.clone());
        }
        return;
    };
    let room: u32 = rest.iter().sum();
    for here in tasks.saturating_sub(room)..=tasks.min(*first) {
        counts.push(here);
        spread_over(tasks - here, rest, counts, all);
        counts.pop();
    }
}

impl Search<'_> {
    fn go(&mut self, cost: f64, free: &[u32], loads: &[f64]) {
        let at = self.chosen.len();
        if self.best.as_ref().is_some_and(|(best, _)| cost + self.least[at] >= *best) {
            return;
        }
        if at == self.jobs.len() {
            self.best = Some((cost, self.chosen.clone()));
            return;
        }
        for mode in 0..self.jobs[at].1.len() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return;
            }
            let (job, modes) = &self.jobs[at];
            let (time, counts) = &modes[mode];
            let job = &self.state.jobs[*job];
            let loads: Vec<f64> = loads.iter().zip(counts).map(|(load, tasks)| load + job.load(*tasks)).collect();
            let bears = |(load, cluster): (&f64, &Cluster)| *load <= cluster.link + 1e-9;
            let has_room = counts.iter().zip(free).all(|(tasks, free)| tasks <= free);
            if has_room && loads.iter().zip(self.state.clusters).all(bears) {
                let cost = cost + time;
                let free: Counts = free.iter().zip(counts).map(|(free, tasks)| free - tasks).collect();
                self.chosen.push(mode);
                self.go(cost, &free, &loads);
                self.chosen.pop();
            }
        }
    }
}
