//! Random traces.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{cluster, job, planned, with_memory};
use crate::replay::{
    cluster::ClusterSpec,
    job::{ClusterIndex, Job},
};

/// Hosts of the cluster for [`plain`].
pub const HOSTS: u32 = 16;

/// Jobs for one cluster of [`HOSTS`] hosts with a processor each. A third is planned with its true run time.
pub fn plain(seed: u64) -> Vec<Job> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at = 0;
    let next = |_| {
        at += random.random_range(0..40_000);
        let planned_s = random.random_range(1..200_000);
        let held_s = if random.random_range(0..3) == 0 { planned_s } else { random.random_range(1..=planned_s) };
        planned(planned_s, job(at, held_s, random.random_range(1..=HOSTS), 1))
    };
    (0..60).map(next).collect()
}

/// Jobs with memory and tags, and one to three unequal clusters that could run them.
pub fn varied(seed: u64) -> (Vec<Job>, Vec<ClusterSpec>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = random.random_range(1..=3);
    let mut clusters: Vec<ClusterSpec> = (0..count)
        .map(|_| cluster(random.random_range(1..=6), random.random_range(1..=8), random.random_range(4..=32)))
        .collect();
    clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.processors()));
    let (mut at, mut jobs) = (0, Vec::new());
    while jobs.len() < 60 {
        let target = random.random_range(0..clusters.len());
        let spec = &clusters[target];
        // Wide jobs are rare, and so are jobs that need much memory.
        let hosts = random.random_range(1..=spec.hosts).min(random.random_range(1..=spec.hosts));
        let memory = random.random_range(0..=spec.memory_per_host_kib) * random.random_range(0..=1);
        let length_s = random.random_range(1..2_000);
        at += random.random_range(0..400) * random.random_range(0..=1);
        let plain = job(at, length_s, hosts, random.random_range(1..=spec.processors_per_host));
        let mut job = planned(length_s * random.random_range(1..=3), with_memory(memory, plain));
        job.known.shape.is_exclusive = random.random_range(0..8) == 0;
        if random.random_range(0..3) == 0 {
            // Only the cluster that the shape was drawn for is sure to hold it.
            let others = (0_u32..).take(clusters.len()).filter(|number| *number as usize != target);
            job.known.excluded = others.filter(|_| random.random_range(0..2) == 0).map(ClusterIndex).collect();
        }
        jobs.push(job);
    }
    (jobs, clusters)
}

/// The same with true run times.
pub fn exact(seed: u64) -> (Vec<Job>, Vec<ClusterSpec>) {
    let (jobs, clusters) = varied(seed);
    (jobs.into_iter().map(|job| planned(job.held_s, job)).collect(), clusters)
}
