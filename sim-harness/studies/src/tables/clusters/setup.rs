//! The source's set-ups: clusters, and jobs as they are drawn.
//!
//! Source: the dissertation on multi-clusters, tables 3.1 to 3.3. What it leaves open: sizes are powers of two of a gamma draw, rounded to
//! whole powers for three jobs in four ("prevalence of powers of two"; taken as numbers of tasks the draws would load the 64 hosts by 7 %);
//! links bear 1 GB/s (its curves bend between 0.6 and 0.7 GB/s, where two halved jobs meet on a link); the share of computation is 50 to 90 %
//! (its examples have 50 and 70 %). Invariant: a seed and a number give the same jobs, whatever the clusters and the bandwidth.

use rand::RngExt;
use rand_distr::{Distribution, Exp, Gamma, Weibull};
use rand_xoshiro::{
    SplitMix64, Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

use crate::clusters::world::{Cluster, Job};

/// Jobs of a workload.
pub(super) const JOBS: usize = 100;
/// What a link bears, in GB/s.
const LINK: f64 = 1.0;
/// Hosts of the clusters.
const HOSTS: [u32; 4] = [24, 16, 16, 8];
/// Jobs of a batch on the small clusters, and their largest number of tasks.
const BATCH: usize = 8;
const BATCH_TASKS: u32 = 12;
/// Mean base time of a batch's job, in seconds.
const BATCH_BASE: f64 = 670_000.0;
/// Of jobs, those of a whole power of two.
const POWERS: f64 = 0.75;

/// Heterogeneity in per cent, with the least and the greatest power (table 3.1).
pub(super) const HETEROGENEITY: [(u32, f64, f64); 3] = [(10, 0.9, 1.0), (50, 0.8, 1.2), (90, 0.6, 1.4)];

/// The four clusters, the largest the slowest.
pub(super) fn clusters((_, least, greatest): (u32, f64, f64)) -> Vec<Cluster> {
    let step = (greatest - least) / 3.0;
    let cluster = |(at, hosts)| Cluster { hosts, power: least + step * f64::from(at), link: LINK };
    (0..).zip(HOSTS).map(cluster).collect()
}

/// The three small clusters (table 3.3).
pub(super) fn small() -> Vec<Cluster> {
    [1.0, 0.75, 0.5].map(|power| Cluster { hosts: 4, power, link: LINK }).into()
}

fn random(seed: u64, number: u64) -> Xoshiro256PlusPlus {
    let mut seeds = SplitMix64::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64())
}

/// What a task sends of a job whose halves send each other so much, in GB/s.
fn bandwidth(tasks: u32, bisection: f64) -> f64 {
    bisection * 4.0 * f64::from(tasks - 1) / f64::from(tasks * tasks)
}

/// A workload, of jobs whose halves send each other `bisection` GB/s.
///
/// # Errors
/// Never for these figures.
pub(super) fn workload(seed: u64, number: u64, bisection: f64) -> anyhow::Result<Vec<Job>> {
    let mut random = random(seed, number);
    let (gaps, sizes) = (Weibull::new(82.6_f64, 0.6)?, Gamma::new(4.04_f64, 0.77)?);
    let times = Weibull::new(200.0_f64, 1.0)?;
    let mut arrival = 0.0;
    let job = |_| {
        arrival += gaps.sample(&mut random);
        let log: f64 = sizes.sample(&mut random);
        let log = if random.random_bool(POWERS) { log.round() } else { log };
        let tasks = log.exp2().round().clamp(1.0, f64::from(HOSTS.iter().sum::<u32>())) as u32;
        Job {
            tasks,
            compute: random.random_range(0.5..0.9),
            base: times.sample(&mut random).max(1.0),
            bandwidth: bandwidth(tasks, bisection),
            arrival,
        }
    };
    Ok((0..JOBS).map(job).collect())
}

/// A batch for the small clusters, all there at once.
///
/// # Errors
/// Never for these figures.
pub(super) fn batch(seed: u64, number: u64, bisection: f64) -> anyhow::Result<Vec<Job>> {
    let mut random = random(!seed, number);
    let times = Exp::new(1.0_f64)?;
    let job = |_| {
        let tasks = random.random_range(1..=BATCH_TASKS);
        let base = BATCH_BASE * times.sample(&mut random);
        let compute = random.random_range(0.5..0.9);
        Job { tasks, compute, base: base.max(BATCH_BASE / 20.0), bandwidth: bandwidth(tasks, bisection), arrival: 0.0 }
    };
    Ok((0..BATCH).map(job).collect())
}
