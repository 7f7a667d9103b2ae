//! FCFS and EASY once more, slow and obvious, on random traces: processors are counted anew from all intervals at every
//! question. Seconds are drawn from a wide range, so that hardly two events share one.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{cluster, job, starts};
use crate::replay::job::Job;

pub const PROCESSORS: u32 = 16;

pub fn random_trace(seed: u64) -> Vec<Job> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at = 0;
    let next = |_| {
        at += random.random_range(0..40_000);
        let planned_s = random.random_range(1..200_000);
        let held_s = if random.random_range(0..3) == 0 { planned_s } else { random.random_range(1..=planned_s) };
        Job { held_s, planned_s, ..job(at, held_s, random.random_range(1..=PROCESSORS), 1) }
    };
    (0..60).map(next).collect()
}

/// Processors in use at `at` by jobs whose start is known.
pub fn used(jobs: &[Job], starts: &[Option<i64>], at: i64) -> u32 {
    let is_running =
        |(job, start): &(&Job, &Option<i64>)| start.is_some_and(|start| start <= at && at < start + job.held_s);
    jobs.iter().zip(starts).filter(is_running).map(|(job, _)| job.shape.hosts).sum()
}

fn slow_fcfs(jobs: &[Job]) -> Vec<i64> {
    let mut starts = vec![None; jobs.len()];
    let mut earliest = 0;
    for index in 0..jobs.len() {
        earliest = earliest.max(jobs[index].submit_s);
        while used(jobs, &starts, earliest) + jobs[index].shape.hosts > PROCESSORS {
            let ends = jobs.iter().zip(&starts).filter_map(|(job, start)| Some((*start)? + job.held_s));
            earliest = ends.filter(|end| *end > earliest).min().unwrap();
        }
        starts[index] = Some(earliest);
    }
    starts.into_iter().flatten().collect()
}

/// When, as far as is known at `now`, enough processors are free for `needed`, and how many are left over then.
fn shadow(jobs: &[Job], starts: &[Option<i64>], now: i64, needed: u32) -> (i64, u32) {
    let running = |job: &Job, start: i64| start <= now && now < start + job.held_s;
    let expected: Vec<(i64, u32)> = jobs
        .iter()
        .zip(starts)
        .filter_map(|(job, start)| Some((job, (*start)?)))
        .filter(|(job, start)| running(job, *start))
        .map(|(job, start)| ((start + job.planned_s).max(now), job.shape.hosts))
        .collect();
    let mut times: Vec<i64> = expected.iter().map(|(end, _)| *end).chain([now]).collect();
    times.sort_unstable();
    let free_at =
        |at: i64| PROCESSORS - expected.iter().filter(|(end, _)| *end > at).map(|(_, width)| width).sum::<u32>();
    let at = times.into_iter().find(|at| free_at(*at) >= needed).unwrap();
    (at, free_at(at) - needed)
}

fn slow_easy(jobs: &[Job]) -> Vec<i64> {
    let mut starts: Vec<Option<i64>> = vec![None; jobs.len()];
    let mut now = 0;
    loop {
        let waiting: Vec<usize> =
            (0..jobs.len()).filter(|index| starts[*index].is_none() && jobs[*index].submit_s <= now).collect();
        let free = PROCESSORS - used(jobs, &starts, now);
        let chosen = waiting.first().copied().and_then(|head| {
            if jobs[head].shape.hosts <= free {
                return Some(head);
            }
            let (at, extra) = shadow(jobs, &starts, now, jobs[head].shape.hosts);
            let harmless = |job: &Job| now + job.planned_s < at || job.shape.hosts <= extra;
            waiting[1..].iter().copied().find(|index| jobs[*index].shape.hosts <= free && harmless(&jobs[*index]))
        });
        if let Some(index) = chosen {
            starts[index] = Some(now);
            continue;
        }
        let ends = jobs.iter().zip(&starts).filter_map(|(job, start)| Some((*start)? + job.held_s));
        let next = ends.chain(jobs.iter().map(|job| job.submit_s)).filter(|at| *at > now).min();
        match next {
            Some(at) => now = at,
            None => return starts.into_iter().flatten().collect(),
        }
    }
}

#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds() {
    let clusters = [cluster(PROCESSORS, 1, 0)];
    for seed in 0..150 {
        let jobs = random_trace(seed);
        assert_eq!(starts("fcfs", &jobs, &clusters), slow_fcfs(&jobs), "seed {seed}");
        assert_eq!(starts("easy", &jobs, &clusters), slow_easy(&jobs), "seed {seed}");
    }
}

#[test]
fn every_policy_ends_every_random_trace() {
    let clusters = [cluster(4, 3, 0), cluster(2, 2, 0)];
    for seed in 0..40 {
        let mut jobs = random_trace(seed);
        for (index, job) in jobs.iter_mut().enumerate() {
            job.shape.hosts = job.shape.hosts % 4 + 1;
            job.shape.processors_per_host = index as u32 % 3 + 1;
            // Some run past what was planned.
            job.held_s += if index % 5 == 0 { 3_000 } else { 0 };
        }
        for policy in crate::replay::policy::names() {
            let first = starts(policy, &jobs, &clusters);
            assert_eq!(first, starts(policy, &jobs, &clusters), "{policy}, seed {seed}");
        }
    }
}
