//! The policies of the source in virtual time: which job starts next, and on how many hosts of each cluster.
//!
//! Source: the dissertation on multi-clusters, 3.1 (PAS, and its orders and comparators). What is decided by `broker` as well is asked there.
//! Not the product's are: links are no limit to all but PAS, and what saturates one runs slower; CBS and JPR place one job after another by
//! what the source says of each (3.1.3), where the product assigns packages exactly, as the source then did; and of a package that links do
//! not bear the last jobs wait, of which the source says nothing.
//! Invariant: what is chosen fits the free hosts; PAS saturates no link but by a job that does so alone.

use std::{
    cmp::{Ordering, Reverse},
    collections::VecDeque,
};

use broker::batch::{
    Order,
    multicluster::{Beside, cheapest, filled, is_chunk, selected},
};

use super::world::{Cluster, Counts, Job, Policy, State, descending};

/// The orders of the source; the others need deadlines, or several resources.
pub(crate) const ORDERS: [Order; 6] = [Order::Fcfs, Order::Sjf, Order::Bjf, Order::Fpfs, Order::Spt, Order::Lpt];

/// An order's name as in the source.
pub(crate) fn order_name(order: Order) -> String {
    Order::ALL.iter().find(|(_, known)| *known == order).map(|(name, _)| name.to_uppercase()).unwrap_or_default()
}

/// The queue in an order; it comes in the order of arrival, which the others of [`ORDERS`] keep.
fn sorted(order: Order, waiting: &[usize], jobs: &[Job]) -> Vec<usize> {
    let mut sorted = waiting.to_vec();
    let turn = |job: usize| order.turn(jobs[job].tasks as usize, jobs[job].base);
    sorted.sort_by(|a, b| turn(*a).partial_cmp(&turn(*b)).unwrap_or(Ordering::Equal));
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

/// The fastest free hosts, whatever the links; none when there are too few.
pub(crate) fn fastest(job: &Job, free: &[u32], clusters: &[Cluster]) -> Option<Counts> {
    filled(job.tasks, &by_power(clusters), free)
}

fn chunk(job: &Job, free: &[u32], clusters: &[Cluster]) -> Option<Counts> {
    // A job that is too large for that in the empty grid goes into the largest parts.
    let can_ever = clusters.iter().any(|cluster| is_chunk(cluster.hosts, job.tasks));
    let mut order: Vec<usize> = (0..clusters.len()).collect();
    order.sort_by_key(|at| Reverse(free[*at]));
    // The tightest cluster that takes it whole keeps the larger ones for others.
    let whole = order.iter().rev().find(|at| free[**at] >= job.tasks);
    if let Some(at) = whole {
        return filled(job.tasks, &[*at], free);
    }
    let largest = order.first()?;
    if can_ever && !is_chunk(free[*largest], job.tasks) { None } else { filled(job.tasks, &order, free) }
}

/// PAS: every job of the queue that still fits goes into a package, which is assigned as a whole: the least sum of slowdowns that
/// saturates no link (3.8).
pub(crate) struct Packages {
    order: Order,
    planned: VecDeque<(usize, Counts)>,
}

/// Modes tried or passed over in the search for a package's assignment; beyond them the best until then counts.
const STEPS_MAX: u32 = 20_000;

impl Packages {
    pub(crate) fn new(order: Order) -> Packages {
        Packages { order, planned: VecDeque::new() }
    }
}

impl Policy for Packages {
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)> {
        if self.planned.is_empty() {
            let queue = sorted(self.order, waiting, state.jobs);
            // In the order of arrival nobody overtakes; that is what tells it from "first that fits".
            let is_strict = self.order == Order::Fcfs;
            let mut package =
                selected(queue, state.free().iter().sum(), is_strict, |job| state.jobs[job].tasks, |_| true);
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

/// What is free: hosts, and what links are loaded with.
type Room = (Counts, Vec<f64>);

/// The jobs of a package, and steps of the search so far.
struct Package<'a> {
    state: &'a State<'a>,
    jobs: Vec<usize>,
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
        modes
    };
    let mut jobs = package.to_vec();
    jobs.sort_by_key(|job| Reverse(state.jobs[*job].tasks));
    let modes: Vec<Vec<(f64, Counts)>> = jobs.iter().map(modes).collect();
    let of: Vec<&[(f64, Counts)]> = modes.iter().map(Vec::as_slice).collect();
    let mut package = Package { state, jobs, steps: 0 };
    let Some(best) = cheapest(&of, &(free, state.loads()), &mut package, false) else { return Vec::new() };
    let counts = modes.iter().zip(best.modes).map(|(modes, mode)| modes[mode].1.clone());
    package.jobs.into_iter().zip(counts).collect()
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

impl Beside<Counts> for Package<'_> {
    type Room = Room;

    fn with(&mut self, (free, loads): &Room, job: usize, counts: &Counts) -> Option<Room> {
        self.steps += 1;
        let job = &self.state.jobs[self.jobs[job]];
        if self.steps > STEPS_MAX || counts.iter().zip(free).any(|(tasks, free)| tasks > free) {
            return None;
        }
        let loads: Vec<f64> = loads.iter().zip(counts).map(|(load, tasks)| load + job.load(*tasks)).collect();
        let bears = |(load, cluster): (&f64, &Cluster)| *load <= cluster.link + 1e-9;
        let free = || free.iter().zip(counts).map(|(free, tasks)| free - tasks).collect();
        loads.iter().zip(self.state.clusters).all(bears).then(|| (free(), loads))
    }

    fn passed_over(&mut self, modes: usize) {
        self.steps = self.steps.saturating_add(u32::try_from(modes).unwrap_or(u32::MAX));
    }
}
