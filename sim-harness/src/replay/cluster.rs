//! Clusters of equal hosts: what is free on each host now, and when the running jobs are expected to end.
//!
//! Hosts are taken in the order of their numbers, the first that fit. Invariant: no host ever has less than nothing
//! free, and everything taken is given back when the job ends.

use std::collections::BTreeSet;

use super::{
    job::{JobIndex, Shape},
    moment::Moment,
};

/// Number of a cluster, in the order in which clusters are tried: most processors first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterIndex(pub u32);

impl ClusterIndex {
    /// The number as a position in an array.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

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
}

impl ClusterSpec {
    /// Processors of all hosts.
    pub fn processors(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.processors_per_host)
    }

    /// Whether a job of this shape runs here when nothing else does.
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
    fn holds(&self, shape: &Shape) -> bool {
        self.processors >= shape.processors_per_host && self.memory_kib >= shape.memory_per_host_kib
    }
}

/// A cluster in use.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// What it is.
    pub spec: ClusterSpec,
    free: Vec<Free>,
    free_processors: u64,
    /// Running jobs by the end that the scheduler expects, with their processors.
    running: BTreeSet<(Moment, JobIndex, u64)>,
}

impl Cluster {
    /// An empty cluster.
    pub fn new(spec: ClusterSpec) -> Cluster {
        let free = Free { processors: spec.processors_per_host, memory_kib: spec.memory_per_host_kib };
        let free_processors = spec.processors();
        Cluster { free: vec![free; spec.hosts as usize], free_processors, running: BTreeSet::new(), spec }
    }

    /// Processors that no job holds.
    pub fn free_processors(&self) -> u64 {
        self.free_processors
    }

    /// Whether a job of this shape can start here now.
    pub fn fits_now(&self, shape: &Shape) -> bool {
        if shape.processors() > self.free_processors {
            return false;
        }
        let mut missing = shape.hosts;
        self.free.iter().any(|free| {
            missing -= u32::from(free.holds(shape));
            missing == 0
        })
    }

    /// The first hosts that hold a job of this shape now.
    pub fn first_fit(&self, shape: &Shape) -> Option<Box<[u32]>> {
        let holding = (0_u32..).zip(&self.free).filter(|(_, free)| free.holds(shape)).map(|(host, _)| host);
        let hosts: Box<[u32]> = holding.take(shape.hosts as usize).collect();
        (hosts.len() == shape.hosts as usize).then_some(hosts)
    }

    /// Whether each of these hosts holds its part of such a job now.
    pub fn holds_on(&self, hosts: &[u32], shape: &Shape) -> bool {
        hosts.iter().all(|host| self.free.get(*host as usize).is_some_and(|free| free.holds(shape)))
    }

    /// The running jobs by expected end: the end, and the processors that it frees. Jobs that run longer than expected
    /// come first.
    pub fn expected_ends(&self) -> impl Iterator<Item = (Moment, u64)> {
        self.running.iter().map(|(end, _, processors)| (*end, *processors))
    }

    /// Takes the hosts for a job. They hold it, which [`Cluster::first_fit`] or [`Cluster::holds_on`] has said.
    pub(super) fn take(&mut self, job: JobIndex, hosts: &[u32], shape: &Shape, expected_end: Moment) {
        for host in hosts {
            let free = &mut self.free[*host as usize];
            free.processors -= shape.processors_per_host;
            free.memory_kib -= shape.memory_per_host_kib;
        }
        self.free_processors -= shape.processors();
        self.running.insert((expected_end, job, shape.processors()));
    }

    /// Gives back what [`Cluster::take`] took with the same arguments.
    pub(super) fn give_back(&mut self, job: JobIndex, hosts: &[u32], shape: &Shape, expected_end: Moment) {
        for host in hosts {
            let free = &mut self.free[*host as usize];
            free.processors += shape.processors_per_host;
            free.memory_kib += shape.memory_per_host_kib;
        }
        self.free_processors += shape.processors();
        self.running.remove(&(expected_end, job, shape.processors()));
    }
}
