//! What a site's plan of its own jobs costs with 1,000 jobs in it: a job that comes, and all that moves when one ends early.
//!
//! `cargo bench -p broker --bench quality` prints medians and 99th percentiles, on one cluster and on the source's fourteen, and how much
//! longer it takes to plan all jobs from nothing.

// A benchmark measures time; only the library is free of clocks.
#![allow(clippy::disallowed_methods)]

mod timing;

use broker::quality::{Amounts, Arrivals, Job, JobKey, Timetable};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use timing::{is_bench, median, timed};

const JOBS: usize = 1_000;
/// Answers that are measured.
const ANSWERS: u64 = 2_000;
/// One early end in so many is compared with a plan from nothing.
const COMPARED_EVERY: usize = 40;
/// Of the paper on plan-based scheduling with quality of service, section IV.
const SOURCE_PROCESSORS: [usize; 14] = [152, 148, 92, 80, 70, 64, 64, 44, 32, 20, 16, 10, 8, 6];

fn job(random: &mut Xoshiro256PlusPlus, now_s: i64, clusters: usize) -> Job {
    let power = f64::from(random.random_range(0.0_f32..1.0));
    // 10 s to 28 hours; powers of two hosts, small ones more often.
    let length_s = 10 * 10_f64.powf(4.0 * power) as i64;
    let hosts = 1 << random.random_range(0..6).min(random.random_range(0..6));
    let slack_s = random.random_range(0..50) * length_s;
    Job {
        arrival_s: now_s,
        length_s,
        deadline_s: Some(now_s + length_s + slack_s),
        hosts,
        amounts: [random.random_range(1..3), 0, 0, 0],
        starts_alone: false,
        not_before_s: i64::MIN,
        clusters: (0..clusters).collect(),
    }
}

fn printed(name: &str, mut times_ms: Vec<f64>) {
    times_ms.sort_by(f64::total_cmp);
    let at = |percent: usize| times_ms[(times_ms.len() - 1) * percent / 100];
    println!("  {name}: p99 {:.3} ms, most {:.3} ms, median {:.3} ms", at(99), at(100), median(times_ms.clone()));
}

fn measure(name: &str, clusters: &[Vec<Amounts>]) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut plan = Timetable::new(clusters, Arrivals::Source);
    let (mut now_s, mut arrivals, mut ends, mut ratios) = (0, Vec::new(), Vec::new(), Vec::new());
    let mut key = 0;
    while key < ANSWERS * 2 {
        // As many come as are planned; then the first ends when a tenth of it is over.
        if plan.waiting().count() < JOBS {
            let next = job(&mut random, now_s, clusters.len());
            let is_full = plan.waiting().count() + 1 == JOBS;
            let (_, ms) = timed(|| plan.arrive(JobKey(key), next).map(|place| place.start_s));
            arrivals.extend(is_full.then_some(ms));
            key += 1;
            continue;
        }
        let Some((first, start_s)) = plan.waiting().next().map(|(key, place)| (key, place.start_s)) else { break };
        now_s = now_s.max(start_s);
        plan.advance(now_s);
        plan.begin(first);
        let ((), ms) = timed(|| plan.end(first));
        ends.push(ms);
        if ends.len().is_multiple_of(COMPARED_EVERY) {
            let waiting: Vec<(JobKey, Job)> =
                plan.waiting().filter_map(|(key, _)| Some((key, plan.job(key)?.clone()))).collect();
            let mut anew = Timetable::new(clusters, Arrivals::Earliest);
            anew.advance(now_s);
            let ((), anew_ms) =
                timed(|| waiting.into_iter().for_each(|(key, job)| drop(anew.arrive(key, job).cloned())));
            ratios.push(anew_ms / ms.max(1e-6));
        }
    }
    println!("{name}, {} jobs planned", plan.waiting().count());
    printed("a job comes", arrivals);
    printed("one ends early", ends);
    println!("  all planned from nothing: {:.1} times as long as an early end (median)", median(ratios));
}

fn main() {
    if !is_bench() {
        return;
    }
    measure("one cluster of 120 hosts", &[vec![[2, 0, 0, 0]; 120]]);
    let source: Vec<Vec<Amounts>> =
        SOURCE_PROCESSORS.iter().map(|count| vec![[2, 0, 0, 0]; count.div_ceil(2)]).collect();
    measure("the source's clusters", &source);
}
