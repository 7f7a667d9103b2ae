//! Clusters of equal hosts: what is free on each host now, and what will be free when running jobs end as expected.
//!
//! A job takes the first hosts that fit, in the order of their numbers. Invariant: the jobs on a host never take more than
//! it has, and a job gives everything back when it ends.

use std::collections::BTreeMap;

use sim_kit::virtual_time::Moment;

use super::job::{JobIndex, Known, Shape};

/// What a machines file says of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Its name.
    pub name: String,
    /// Number of hosts, at least 1.
    pub hosts: u32,
    /// Processors of a host, at least 1.
    pub processors_per_host: u32,
    /// Memory of a host, in KiB.
    pub memory_per_host_kib: u64,
    /// Speed of a host, in thousandths of the reference host's.
    pub speed_thousandths: u32,
}

impl ClusterSpec {
    /// Processors of all hosts.
    pub fn processors(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.processors_per_host)
    }

    /// Whether a job of this shape fits here when nothing runs.
    pub fn could_ever_run(&self, shape: &Shape) -> bool {
        shape.hosts <= self.hosts
            && shape.processors_per_host <= self.processors_per_host
            && shape.memory_per_host_kib <= self.memory_per_host_kib
    }
}

/// What is free on one host.
#[derive(Debug, Clone, Copy)]
struct Free {
    processors: u32,
    memory_kib: u64,
}

impl Free {
    fn is_empty(&self, spec: &ClusterSpec) -> bool {
        self.processors == spec.processors_per_host
    }

    fn holds(&self, shape: &Shape) -> bool {
        self.processors >= shape.processors_per_host && self.memory_kib >= shape.memory_per_host_kib
    }

    fn take(&mut self, shape: &Shape) {
        self.processors -= shape.processors_per_host;
        self.memory_kib -= shape.memory_per_host_kib;
    }

    fn give_back(&mut self, shape: &Shape) {
        self.processors += shape.processors_per_host;
        self.memory_kib += shape.memory_per_host_kib;
    }
}

/// A job that runs.
#[derive(Debug, Clone)]
struct Running {
    shape: Shape,
    hosts: Box<[u32]>,
    /// What follows its end before its hosts are free, in seconds.
    teardown_s: i64,
}

/// A cluster in use.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// What it is.
    pub spec: ClusterSpec,
    free: Vec<Free>,
    free_processors: u64,
    /// Running jobs by the end that the scheduler expects, without the teardown.
    running: BTreeMap<(Moment, JobIndex), Running>,
}

impl Cluster {
    /// An empty cluster.
    pub fn new(spec: ClusterSpec) -> Cluster {
        let free = Free { processors: spec.processors_per_host, memory_kib: spec.memory_per_host_kib };
        let free_processors = spec.processors();
        Cluster { free: vec![free; spec.hosts as usize], free_processors, running: BTreeMap::new(), spec }
    }

    /// Processors that no job holds.
    pub fn free_processors(&self) -> u64 {
        self.free_processors
    }

    /// Whether a job of this shape can start here now.
    pub fn fits_now(&self, shape: &Shape) -> bool {
        if shape.processors() > self.free_processors || !self.is_empty_enough(shape) {
            return false;
        }
        let mut missing = shape.hosts;
        self.free.iter().any(|free| {
            missing -= u32::from(free.holds(shape));
            missing == 0
        })
    }

    /// Whether enough hosts are empty for an exclusive job of this shape; always for any other.
    fn is_empty_enough(&self, shape: &Shape) -> bool {
        let empty = || self.free.iter().filter(|free| free.is_empty(&self.spec)).count();
        !shape.is_exclusive || empty() >= shape.hosts as usize
    }

    /// The first hosts that hold a job of this shape, if it can start now.
    pub fn first_fit(&self, shape: &Shape) -> Option<Box<[u32]>> {
        if !self.is_empty_enough(shape) {
            return None;
        }
        let holding = (0_u32..).zip(&self.free).filter(|(_, free)| free.holds(shape)).map(|(host, _)| host);
        let hosts: Box<[u32]> = holding.take(shape.hosts as usize).collect();
        (hosts.len() == shape.hosts as usize).then_some(hosts)
    }

    /// Whether each of these hosts holds its part of such a job now.
    pub fn holds_on(&self, hosts: &[u32], shape: &Shape) -> bool {
        hosts.iter().all(|host| self.free.get(*host as usize).is_some_and(|free| free.holds(shape)))
    }

    /// Whether nothing is on any of these hosts.
    pub fn are_empty(&self, hosts: &[u32]) -> bool {
        hosts.iter().all(|host| self.free.get(*host as usize).is_some_and(|free| free.is_empty(&self.spec)))
    }

    /// The running jobs by expected end: the end, and the processors that it frees. Jobs that run longer than expected
    /// come first.
    pub fn expected_ends(&self) -> impl Iterator<Item = (Moment, u64)> {
        self.running.iter().map(|((end, _), running)| (*end, running.shape.processors()))
    }

    /// When a job of this shape fits at the earliest, from `now` on, if all running jobs end as expected and none starts.
    /// `None` when even the empty cluster cannot hold it.
    pub fn earliest_fit(&self, shape: &Shape, now: Moment) -> Option<EarliestFit> {
        let mut fit = EarliestFit {
            at: now,
            shape: *shape,
            free: self.free.clone(),
            free_processors: self.free_processors,
            holding: 0,
            empty: 0,
        };
        fit.holding = fit.free.iter().map(|free| u32::from(free.holds(shape))).sum();
        fit.empty = fit.free.iter().map(|free| u32::from(free.is_empty(&self.spec))).sum();
        let ends = self.running.iter().map(|((end, _), job)| (end.plus_seconds(job.teardown_s).max(now), job));
        for (end, job) in ends {
            if fit.is_enough() && end > fit.at {
                break;
            }
            fit.at = end;
            fit.free_processors += job.shape.processors();
            for host in &job.hosts {
                let free = &mut fit.free[*host as usize];
                let held = free.holds(shape);
                free.give_back(&job.shape);
                fit.holding += u32::from(free.holds(shape)) - u32::from(held);
                // It was not empty while this job was there.
                fit.empty += u32::from(free.is_empty(&self.spec));
            }
        }
        fit.is_enough().then_some(fit)
    }

    /// Takes the hosts for a job. They hold it, as [`Cluster::first_fit`] or [`Cluster::holds_on`] has found.
    pub(super) fn take(&mut self, job: JobIndex, hosts: Box<[u32]>, known: &Known, expected_end: Moment) {
        for host in &hosts {
            self.free[*host as usize].take(&known.shape);
        }
        self.free_processors -= known.shape.processors();
        let running = Running { shape: known.shape, hosts, teardown_s: known.teardown_s };
        self.running.insert((expected_end, job), running);
    }

    /// Gives back what the job took when it started with this expected end.
    pub(super) fn give_back(&mut self, job: JobIndex, expected_end: Moment) {
        let Some(Running { shape, hosts, .. }) = self.running.remove(&(expected_end, job)) else { return };
        for host in &hosts {
            self.free[*host as usize].give_back(&shape);
        }
        self.free_processors += shape.processors();
    }
}

/// When a waiting job fits on a cluster at the earliest, and what is free there then.
#[derive(Debug)]
pub struct EarliestFit {
    /// When.
    pub at: Moment,
    shape: Shape,
    free: Vec<Free>,
    free_processors: u64,
    /// Hosts that hold their part of the waiting job then.
    holding: u32,
    /// Hosts that are empty then.
    empty: u32,
}

impl EarliestFit {
    /// Processors of the cluster that the job leaves over then.
    pub fn extra_processors(&self) -> u64 {
        self.free_processors.saturating_sub(self.shape.processors())
    }

    fn is_enough(&self) -> bool {
        self.holding >= self.shape.hosts && (!self.shape.is_exclusive || self.empty >= self.shape.hosts)
    }

    /// Whether the job still fits then if another one, which fits on these hosts of its cluster now, is still on them.
    pub fn is_kept_beside(&self, other: &Shape, hosts: &[u32], spec: &ClusterSpec) -> bool {
        let is_lost = |host: &&u32| {
            let mut free = self.free[**host as usize];
            let held = free.holds(&self.shape);
            free.take(other);
            held && !free.holds(&self.shape)
        };
        let lost = hosts.iter().filter(is_lost).count();
        let filled = hosts.iter().filter(|host| self.free[**host as usize].is_empty(spec)).count();
        let needed = self.shape.hosts as usize;
        self.holding as usize >= lost + needed && (!self.shape.is_exclusive || self.empty as usize >= filled + needed)
    }
}
