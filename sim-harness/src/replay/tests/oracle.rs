//! FCFS and EASY once more, slow and obvious, on random traces and on a file: everything is counted anew at every event.

use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{cluster, job, starts};
use crate::replay::{
    args::{Overrun, Runtimes},
    job::Job,
    trace::{self, Rules},
};

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

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// The model once more: events one by one, and everything counted anew at each.
struct Slow<'a> {
    jobs: &'a [Job],
    processors: u32,
    submitted: usize,
    /// In microseconds.
    starts: Vec<Option<i64>>,
    /// Started jobs in the order of their starts, and whether they have ended.
    started: Vec<(usize, bool)>,
}

impl Slow<'_> {
    fn running(&self) -> impl Iterator<Item = &Job> {
        self.started.iter().filter(|(_, has_ended)| !has_ended).map(|(index, _)| &self.jobs[*index])
    }

    fn free(&self) -> u32 {
        self.processors - self.running().map(|job| job.shape.hosts).sum::<u32>()
    }

    fn waiting(&self) -> Vec<usize> {
        (0..self.submitted).filter(|index| self.starts[*index].is_none()).collect()
    }

    fn fits(&self, index: usize) -> bool {
        self.jobs[index].shape.hosts <= self.free()
    }

    /// When, as far as is known at `now`, enough processors are free for `needed`, and how many are left over then.
    fn shadow(&self, now: i64, needed: u32) -> (i64, u32) {
        let running = self.started.iter().filter(|(_, has_ended)| !has_ended);
        let expected: Vec<(i64, u32)> = running
            .map(|(index, _)| {
                let end = self.starts[*index].unwrap() + self.jobs[*index].expected_s() * SECOND;
                (end.max(now), self.jobs[*index].shape.hosts)
            })
            .collect();
        let mut times: Vec<i64> = expected.iter().map(|(end, _)| *end).chain([now]).collect();
        times.sort_unstable();
        let busy_at = |at: i64| expected.iter().filter(|(end, _)| *end > at).map(|(_, width)| width).sum::<u32>();
        let at = times.into_iter().find(|at| self.processors - busy_at(*at) >= needed).unwrap();
        (at, self.processors - busy_at(at) - needed)
    }
}

fn fcfs(state: &Slow<'_>, _: i64) -> Option<usize> {
    state.waiting().first().copied().filter(|head| state.fits(*head))
}

fn easy(state: &Slow<'_>, now: i64) -> Option<usize> {
    let waiting = state.waiting();
    let head = *waiting.first()?;
    if state.fits(head) {
        return Some(head);
    }
    let (at, extra) = state.shadow(now, state.jobs[head].shape.hosts);
    let harmless = |job: &Job| now + job.expected_s() * SECOND < at || job.shape.hosts <= extra;
    waiting[1..].iter().copied().find(|index| state.fits(*index) && harmless(&state.jobs[*index]))
}

/// The seconds in which the jobs start, when `rule` says who is next. A start takes a microsecond, in which nobody is asked; of
/// events of one microsecond submissions come first, then ends in the order of their starts, then the start.
fn slow_starts(jobs: &[Job], processors: u32, rule: fn(&Slow<'_>, i64) -> Option<usize>) -> Vec<i64> {
    let mut state = Slow { jobs, processors, submitted: 0, starts: vec![None; jobs.len()], started: Vec::new() };
    let mut under_way = None;
    loop {
        let submission = jobs.get(state.submitted).map(|job| (job.submit_s * SECOND, 0, state.submitted));
        let ends = state.started.iter().enumerate().filter(|(_, (_, has_ended))| !has_ended);
        let end = ends
            .map(|(order, (index, _))| (state.starts[*index].unwrap() + jobs[*index].held_s * SECOND, 1, order))
            .min();
        let start = under_way.map(|(at, index)| (at, 2, index));
        let Some((now, kind, which)) = [submission, end, start].into_iter().flatten().min() else {
            return state.starts.into_iter().map(|start| start.unwrap() / SECOND).collect();
        };
        match kind {
            0 => state.submitted += 1,
            1 => state.started[which].1 = true,
            _ => {
                state.starts[which] = Some(now);
                state.started.push((which, false));
                under_way = None;
            }
        }
        if under_way.is_none() {
            under_way = rule(&state, now).map(|index| (now + 1, index));
        }
    }
}

/// Both policies against the slow method, on one cluster of `processors` hosts with a processor each.
fn check(jobs: &[Job], processors: u32, what: &str) {
    let clusters = [cluster(processors, 1, 0)];
    assert_eq!(starts("fcfs", jobs, &clusters), slow_starts(jobs, processors, fcfs), "fcfs, {what}");
    assert_eq!(starts("easy", jobs, &clusters), slow_starts(jobs, processors, easy), "easy, {what}");
}

#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds() {
    for seed in 0..150 {
        check(&random_trace(seed), PROCESSORS, &format!("seed {seed}"));
    }
}

/// The jobs of a trace under all rules: what is known of run times, what happens at limits, with and without teardown.
pub fn check_file(path: &Path, processors: u32, jobs_max: usize) {
    for runtimes in [Runtimes::True, Runtimes::Estimates] {
        for overrun in [Overrun::Kill, Overrun::Extend] {
            for teardown_s in [0, 1] {
                let rules = Rules { runtimes, overrun, teardown_s, jobs_max: Some(jobs_max) };
                let trace = trace::read(path, &[cluster(processors, 1, 0)], &rules).unwrap();
                assert!(trace.jobs.len() > 250, "{} jobs", trace.jobs.len());
                check(&trace.jobs, processors, &format!("{rules:?}"));
            }
        }
    }
}

/// Made up, but as logs are: bursts in one second, round limits, jobs that overrun, jobs that never ran, fractions.
#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds_on_a_trace() {
    check_file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/replay/tests/made-up.swf"), 64, 1000);
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
