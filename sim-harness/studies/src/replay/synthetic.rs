//! A made-up trace, drawn from a seed, with more jobs than any published one.
//!
//! Jobs come as a Poisson process at the rate that loads the clusters to [`LOAD`]. A job has a power of two processors,
//! up to an eighth of the largest cluster; it runs for a log-normal time, and its user asks for a round multiple of that.
//! Invariant: pure; the first jobs of a longer trace are those of a shorter one.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{cluster::ClusterSpec, metrics::processors_of, record::Record};

/// Part of all processors that the jobs need on average: queues form and empty again.
const LOAD: f64 = 0.7;
/// Median run time, in seconds.
const RUN_MEDIAN_S: f64 = 600.0;
/// Deviation of the run time's logarithm.
const RUN_SIGMA: f64 = 1.8;
/// Longest run, in seconds.
const RUN_S_MAX: f64 = 86_400.0;
/// A limit is the run time times one to this.
const LIMIT_FACTOR_MAX: f64 = 8.0;
/// Limits are whole multiples of this, in seconds.
const LIMIT_STEP_S: i64 = 300;
/// Jobs that are drawn to learn how much work a job is on average.
const SAMPLE: usize = 20_000;

/// The records of the first `jobs` jobs, in the order of submission.
pub fn records(seed: u64, jobs: usize, clusters: &[ClusterSpec]) -> impl Iterator<Item = Record> {
    let widest = clusters.iter().map(ClusterSpec::processors).max().unwrap_or(1);
    let width_power_max = (widest / 8).max(1).ilog2();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let sample = (0..SAMPLE).map(|_| draw(&mut random, width_power_max));
    let work: f64 = sample.map(|record| record.run_s as f64 * record.processors as f64).sum();
    let gap_s = work / SAMPLE as f64 / (LOAD * processors_of(clusters) as f64);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(1));
    let mut submit_s = 0.0;
    (1..=jobs).map(move |number| {
        let record = draw(&mut random, width_power_max);
        let waited: f64 = Exp1.sample(&mut random);
        submit_s += gap_s * waited;
        Record { id: i64::try_from(number).unwrap_or(i64::MAX), submit_s: submit_s as i64, ..record }
    })
}

/// A job without its place in the trace.
fn draw(random: &mut Xoshiro256PlusPlus, width_power_max: u32) -> Record {
    // Both parameters are constants of the kind that the distribution takes.
    let run = LogNormal::new(RUN_MEDIAN_S.ln(), RUN_SIGMA).map_or(RUN_MEDIAN_S, |run| run.sample(random));
    let run_s = run.clamp(1.0, RUN_S_MAX) as i64;
    let asked_s = run_s as f64 * random.random_range(1.0..LIMIT_FACTOR_MAX);
    Record {
        id: 0,
        submit_s: 0,
        run_s,
        processors: 1 << random.random_range(0..=width_power_max),
        limit_s: (asked_s as i64 / LIMIT_STEP_S + 1) * LIMIT_STEP_S,
        memory: -1,
        nodes: None,
        is_part: false,
        has_run: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::cluster;

    #[test]
    fn a_longer_trace_begins_like_a_shorter_one_and_loads_the_clusters_as_promised() {
        let clusters = [cluster(100, 4, 0), cluster(10, 4, 0)];
        let long: Vec<Record> = records(3, 20_000, &clusters).collect();
        assert!(records(3, 500, &clusters).eq(long[..500].iter().cloned()));
        assert!(!records(4, 500, &clusters).eq(long[..500].iter().cloned()));
        assert!(long.is_sorted_by_key(|record| record.submit_s));
        assert!(
            long.iter().all(|record| record.run_s >= 1 && record.limit_s > record.run_s && record.processors <= 50)
        );
        let work: f64 = long.iter().map(|record| record.run_s as f64 * record.processors as f64).sum();
        let load = work / (long.last().unwrap().submit_s as f64 * 440.0);
        assert!((load - LOAD).abs() < 0.05, "{load}");
    }
}
