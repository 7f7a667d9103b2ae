//! FCFS and EASY once more, slow and obvious, on random traces and on files: everything is counted anew at every event.

use std::{collections::BTreeMap, path::Path};

use super::{cluster, random, replay, traces};
use crate::replay::{
    args::{Overrun, Rules, Runtimes},
    cluster::ClusterSpec,
    job::{Job, Shape},
    trace,
};

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// What is free on the hosts of one cluster: processors and memory.
type Free = Vec<(u64, u64)>;

/// A job that runs.
struct Running {
    job: usize,
    /// In microseconds.
    at: i64,
    cluster: usize,
    hosts: Vec<usize>,
}

/// A decision: a job and its cluster, and its hosts if they are not to be chosen when it really starts.
type Decision = (usize, usize, Option<Vec<usize>>);

/// The model once more: events one by one, and everything counted anew at each.
struct Slow<'a> {
    jobs: &'a [Job],
    clusters: &'a [ClusterSpec],
    submitted: usize,
    /// In the order of their starts.
    running: Vec<Running>,
    /// When, in microseconds, and where each job started.
    starts: Vec<Option<(i64, usize)>>,
    /// When each first job was to start at the latest when it did not fit for the first time, in microseconds.
    promised: BTreeMap<usize, i64>,
}

fn holds((processors, memory): (u64, u64), shape: &Shape) -> bool {
    processors >= u64::from(shape.processors_per_host) && memory >= shape.memory_per_host_kib
}

/// The first hosts that fit, if enough are empty for a job that asks for that.
fn first_fit(spec: &ClusterSpec, free: &Free, shape: &Shape) -> Option<Vec<usize>> {
    let empty = free.iter().filter(|(processors, _)| *processors == u64::from(spec.processors_per_host)).count();
    if shape.is_exclusive && empty < shape.hosts as usize {
        return None;
    }
    let hosts: Vec<usize> = (0..free.len()).filter(|host| holds(free[*host], shape)).collect();
    (hosts.len() >= shape.hosts as usize).then(|| hosts[..shape.hosts as usize].to_vec())
}

fn take(free: &mut Free, hosts: &[usize], shape: &Shape) {
    for host in hosts {
        free[*host].0 -= u64::from(shape.processors_per_host);
        free[*host].1 -= shape.memory_per_host_kib;
    }
}

impl Slow<'_> {
    fn shape(&self, job: usize) -> &Shape {
        &self.jobs[job].known.shape
    }

    /// When a job that runs is planned to be gone.
    fn planned_end(&self, running: &Running) -> i64 {
        running.at + self.jobs[running.job].known.planned_s * SECOND
    }

    /// What is free on a cluster while those of the running jobs are there that `stays` names.
    fn free_while(&self, cluster: usize, stays: impl Fn(&Running) -> bool) -> Free {
        let spec = &self.clusters[cluster];
        let mut free = vec![(u64::from(spec.processors_per_host), spec.memory_per_host_kib); spec.hosts as usize];
        for running in self.running.iter().filter(|running| running.cluster == cluster && stays(running)) {
            take(&mut free, &running.hosts, self.shape(running.job));
        }
        free
    }

    fn allowed(&self, job: usize) -> Vec<usize> {
        let excluded = &self.jobs[job].known.excluded;
        (0..self.clusters.len()).filter(|cluster| excluded.iter().all(|index| index.0 as usize != *cluster)).collect()
    }

    /// Submitted jobs that have not started, in order.
    fn waiting(&self) -> Vec<usize> {
        (0..self.submitted).filter(|job| self.starts[*job].is_none()).collect()
    }

    fn fcfs(&self) -> Option<Decision> {
        let head = *self.waiting().first()?;
        let fits = |cluster: &usize| {
            first_fit(&self.clusters[*cluster], &self.free_while(*cluster, |_| true), self.shape(head)).is_some()
        };
        self.allowed(head).into_iter().find(fits).map(|cluster| (head, cluster, None))
    }

    fn easy(&mut self, now: i64) -> Option<Decision> {
        if let Some(start) = self.fcfs() {
            return Some(start);
        }
        let waiting = self.waiting();
        let head = *waiting.first()?;
        let ends = self.running.iter().map(|running| self.planned_end(running).max(now));
        let mut times: Vec<i64> = ends.chain([now]).collect();
        times.sort_unstable();
        times.dedup();
        let free_then = |cluster, at| self.free_while(cluster, |running| self.planned_end(running) > at);
        let is_free =
            |cluster, at| first_fit(&self.clusters[cluster], &free_then(cluster, at), self.shape(head)).is_some();
        let reservations = times.iter().flat_map(|at| self.allowed(head).into_iter().map(|cluster| (*at, cluster)));
        let (at, reserved) = reservations.into_iter().find(|(at, cluster)| is_free(*cluster, *at)).unwrap();
        let then = free_then(reserved, at);
        let free: Vec<Free> = (0..self.clusters.len()).map(|cluster| self.free_while(cluster, |_| true)).collect();
        let start = waiting[1..].iter().find_map(|job| {
            let (known, shape) = (&self.jobs[*job].known, self.shape(*job));
            self.allowed(*job).into_iter().find_map(|cluster| {
                let hosts = first_fit(&self.clusters[cluster], &free[cluster], shape)?;
                let delays = cluster == reserved && now + known.planned_s * SECOND >= at && {
                    let mut beside = then.clone();
                    take(&mut beside, &hosts, shape);
                    first_fit(&self.clusters[cluster], &beside, self.shape(head)).is_none()
                };
                (!delays).then_some((*job, cluster, Some(hosts)))
            })
        });
        self.promised.entry(head).or_insert(at);
        start
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Fcfs,
    Easy,
}

/// When, in microseconds, and where the jobs start. A start takes a microsecond, in which there is no decision; of events of one
/// microsecond submissions come first, then ends in the order of their starts, then the start.
fn slow<'a>(jobs: &'a [Job], clusters: &'a [ClusterSpec], rule: Rule) -> (Vec<(i64, usize)>, Slow<'a>) {
    let starts = vec![None; jobs.len()];
    let mut state = Slow { jobs, clusters, submitted: 0, running: Vec::new(), starts, promised: BTreeMap::new() };
    let mut under_way: Option<(i64, Decision)> = None;
    loop {
        let submission = jobs.get(state.submitted).map(|job| (job.known.submit_s * SECOND, 0, state.submitted));
        let ends = state.running.iter().enumerate();
        let end = ends.map(|(order, running)| (running.at + jobs[running.job].held_s * SECOND, 1, order)).min();
        let start = under_way.as_ref().map(|(at, _)| (*at, 2, 0));
        let Some((now, kind, which)) = [submission, end, start].into_iter().flatten().min() else {
            return (state.starts.iter().map(|start| start.unwrap()).collect(), state);
        };
        match kind {
            0 => state.submitted += 1,
            1 => drop(state.running.remove(which)),
            _ => {
                let (_, (job, cluster, hosts)) = under_way.take().unwrap();
                let choose =
                    || first_fit(&clusters[cluster], &state.free_while(cluster, |_| true), state.shape(job)).unwrap();
                let hosts = hosts.unwrap_or_else(choose);
                state.running.push(Running { job, at: now, cluster, hosts });
                state.starts[job] = Some((now, cluster));
            }
        }
        if under_way.is_none() {
            let decision = if rule == Rule::Fcfs { state.fcfs() } else { state.easy(now) };
            under_way = decision.map(|decision| (now + 1, decision));
        }
    }
}

/// Both policies against the slow method, start by start; the number of promises made. With true run times they are kept: up
/// to two starts of other jobs, a microsecond each, may be under way at the promised moment.
fn check(jobs: &[Job], clusters: &[ClusterSpec], is_exact: bool, what: &str) -> usize {
    let fast = |policy| -> Vec<(i64, usize)> {
        replay(policy, jobs, clusters).iter().map(|run| (run.start.0, run.cluster.at())).collect()
    };
    assert_eq!(fast("fcfs"), slow(jobs, clusters, Rule::Fcfs).0, "fcfs, {what}");
    let (starts, state) = slow(jobs, clusters, Rule::Easy);
    assert_eq!(fast("easy"), starts, "easy, {what}");
    for (job, at) in state.promised.iter().filter(|_| is_exact) {
        assert!(starts[*job].0 <= at + 2, "{what}: job {job} starts at {}, was promised {at}", starts[*job].0);
    }
    state.promised.len()
}

#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds() {
    let (mut plain, mut varied, mut exact) = (0, 0, 0);
    for seed in 0..60 {
        plain += check(&random::plain(seed), &[cluster(random::HOSTS, 1, 0)], false, &format!("plain, seed {seed}"));
        let (jobs, clusters) = random::varied(seed);
        varied += check(&jobs, &clusters, false, &format!("varied, seed {seed}"));
        let (jobs, clusters) = random::exact(seed);
        exact += check(&jobs, &clusters, true, &format!("exact, seed {seed}"));
    }
    assert!(plain.min(varied).min(exact) > 500, "only {plain}, {varied} and {exact} first jobs had to wait");
}

/// The jobs of a trace under all rules: what is known of run times, what happens at limits, with and without teardown.
fn check_file(path: &Path, clusters: &[ClusterSpec], jobs_max: u32, waiting_min: usize) {
    let mut waiting = 0;
    for runtimes in [Runtimes::True, Runtimes::Estimates] {
        for (overrun, teardown_s) in [(Overrun::Kill, 1), (Overrun::Extend, 0)] {
            let rules = Rules { runtimes, overrun, teardown_s, ignores_tags: false, jobs_max: Some(jobs_max) };
            let trace = trace::read(path, clusters, &rules).unwrap();
            assert!(trace.jobs.len() > 250, "{} jobs", trace.jobs.len());
            waiting += check(&trace.jobs, clusters, runtimes == Runtimes::True, &format!("{rules:?}"));
        }
    }
    assert!(waiting >= waiting_min, "only {waiting} first jobs had to wait");
}

/// Made up, but as logs are: bursts in one second, round limits, jobs that overrun, jobs that never ran, fractions.
#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds_on_a_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/replay/tests/made-up.swf");
    check_file(&path, &[cluster(64, 1, 0)], 1000, 40);
}

#[test]
fn fcfs_and_easy_are_what_a_slow_method_finds_on_real_prefixes() {
    let Some(folder) = traces::folder("fcfs_and_easy_are_what_a_slow_method_finds_on_real_prefixes") else { return };
    for (name, jobs_max) in [("hpc2n", 400), ("wagap-2013", 4000)] {
        let clusters = traces::clusters(&folder, name);
        check_file(&folder.join(format!("{name}.swf")), &clusters, jobs_max, 40);
    }
}

#[test]
fn every_policy_ends_every_random_trace() {
    for seed in 0..40 {
        let (mut jobs, clusters) = random::varied(seed);
        // Some run past what was planned.
        jobs.iter_mut().step_by(5).for_each(|job| job.held_s += 3_000);
        for policy in crate::replay::policy::names() {
            let first = replay(policy, &jobs, &clusters);
            assert_eq!(first, replay(policy, &jobs, &clusters), "{policy}, seed {seed}");
        }
    }
}
