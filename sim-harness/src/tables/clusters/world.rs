//! Clusters that are joined by links, and jobs that run on them at the speed that hosts and links leave them.
//!
//! Source: the dissertation on multi-clusters, chapter 2: execution time (2.2, 2.3), slowdown by slow hosts (2.4, 2.5), load of a link (2.6),
//! its saturation (2.7) and the slowdown by it (2.8, 2.9). A job's slowdown is computed anew whenever a job begins or ends.
//! Invariant: a host runs one job at a time; a job keeps its hosts from its start to its end.

use std::cmp::Ordering;

/// A cluster of like hosts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cluster {
    pub(super) hosts: u32,
    /// Effective power of each, of the reference host's.
    pub(super) power: f64,
    /// Bandwidth of its link, in GB/s.
    pub(super) link: f64,
}

/// A parallel job: one task a host, all at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) tasks: u32,
    /// The share of its time that it computes; the rest it communicates.
    pub(super) compute: f64,
    /// Its time on reference hosts, in seconds.
    pub(super) base: f64,
    /// What a task sends, in GB/s.
    pub(super) bandwidth: f64,
    /// When it comes, in seconds.
    pub(super) arrival: f64,
}

/// How many tasks of a job each cluster has.
pub(super) type Counts = Vec<u32>;

impl Job {
    /// What it loads the link of a cluster with that has so many of its tasks, in GB/s (2.6).
    pub(super) fn load(&self, tasks: u32) -> f64 {
        if self.tasks < 2 {
            return 0.0;
        }
        f64::from(tasks) * self.bandwidth * f64::from(self.tasks - tasks) / f64::from(self.tasks - 1)
    }

    /// Its execution time where no link is saturated, in seconds (2.2 to 2.5).
    pub(super) fn time(&self, counts: &[u32], clusters: &[Cluster]) -> f64 {
        self.base * self.slowdown(counts, clusters, 1.0)
    }

    fn slowdown(&self, counts: &[u32], clusters: &[Cluster], by_links: f64) -> f64 {
        let used = counts.iter().zip(clusters).filter(|(tasks, _)| **tasks > 0);
        let by_hosts = used.map(|(_, cluster)| 1.0 / cluster.power).fold(0.0, f64::max);
        self.compute * by_hosts + (1.0 - self.compute) * by_links
    }
}

/// Whether a job lies in more than one cluster.
pub(super) fn is_spread(counts: &[u32]) -> bool {
    counts.iter().filter(|tasks| **tasks > 0).count() > 1
}

/// A job that runs.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) job: usize,
    pub(super) counts: Counts,
    /// What is left of it, of 1.
    left: f64,
    start: f64,
    was_saturated: bool,
}

/// What runs where.
#[derive(Debug)]
pub(super) struct State<'a> {
    pub(super) clusters: &'a [Cluster],
    pub(super) jobs: &'a [Job],
    pub(super) running: Vec<Running>,
}

impl State<'_> {
    /// Free hosts of each cluster.
    pub(super) fn free(&self) -> Counts {
        let taken = |at: usize| self.running.iter().map(|running| running.counts[at]).sum::<u32>();
        self.clusters.iter().enumerate().map(|(at, cluster)| cluster.hosts - taken(at)).collect()
    }

    /// Load of each link, in GB/s.
    pub(super) fn loads(&self) -> Vec<f64> {
        let load = |at: usize| self.running.iter().map(|run| self.jobs[run.job].load(run.counts[at])).sum();
        (0..self.clusters.len()).map(load).collect()
    }

    /// How much of a job is done a second, and whether a link slows it down (2.7 to 2.9).
    fn rate(&self, running: &Running, loads: &[f64]) -> (f64, bool) {
        let job = &self.jobs[running.job];
        let saturation = |(at, load): (usize, &f64)| {
            if job.load(running.counts[at]) > 0.0 { load / self.clusters[at].link } else { 0.0 }
        };
        let by_links = loads.iter().enumerate().map(saturation).fold(1.0, f64::max);
        (1.0 / (job.base * job.slowdown(&running.counts, self.clusters, by_links)), by_links > 1.0)
    }
}

/// Decides which jobs start now, and where.
pub(super) trait Policy {
    /// The next job to start, of those `waiting` (in the order of arrival); none when nothing starts now.
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)>;
}

/// What became of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) job: usize,
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) is_spread: bool,
    pub(super) was_saturated: bool,
}

/// Runs all jobs (in the order of arrival) and says what became of each. Jobs that never start are left out.
pub(super) fn simulate(clusters: &[Cluster], jobs: &[Job], policy: &mut impl Policy) -> Vec<Ended> {
    let mut state = State { clusters, jobs, running: Vec::new() };
    let (mut now, mut arrived) = (0.0, 0);
    let (mut waiting, mut ended) = (Vec::new(), Vec::with_capacity(jobs.len()));
    loop {
        while arrived < jobs.len() && jobs[arrived].arrival <= now {
            waiting.push(arrived);
            arrived += 1;
        }
        while let Some((job, counts)) = policy.next(&waiting, &state) {
            waiting.retain(|known| *known != job);
            state.running.push(Running { job, counts, left: 1.0, start: now, was_saturated: false });
        }
        let loads = state.loads();
        let rates: Vec<(f64, bool)> = state.running.iter().map(|running| state.rate(running, &loads)).collect();
        let end = |(running, rate): (&Running, &(f64, bool))| now + running.left / rate.0;
        let first_end = state.running.iter().zip(&rates).map(end).min_by(f64::total_cmp);
        let arrival = jobs.get(arrived).map(|job| job.arrival);
        let Some(next) = first_end.into_iter().chain(arrival).min_by(f64::total_cmp) else { return ended };
        for (running, (rate, is_saturated)) in state.running.iter_mut().zip(rates) {
            running.left -= (next - now) * rate;
            running.was_saturated |= is_saturated;
        }
        now = next;
        // What is left after rounding is done.
        state.running.retain(|Running { job, counts, left, start, was_saturated }| {
            let is_over = *left <= 1e-9;
            if is_over {
                let (is_spread, was_saturated) = (is_spread(counts), *was_saturated);
                ended.push(Ended { job: *job, start: *start, end: now, is_spread, was_saturated });
            }
            !is_over
        });
    }
}

/// Figures of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub(super) struct Figures {
    /// From the first arrival to the last end, in seconds.
    pub(super) makespan: f64,
    /// Mean time from arrival to start, and from start to end, in seconds.
    pub(super) wait: f64,
    pub(super) execution: f64,
    /// Mean of the execution time over the base time, less one.
    pub(super) slowdown: f64,
    /// Host time in use, of all.
    pub(super) compaction: f64,
    /// Jobs in more than one cluster, and jobs that a link has slowed down, of all.
    pub(super) spread: f64,
    pub(super) saturated: f64,
}

impl Figures {
    /// Of what became of the jobs.
    pub(super) fn of(clusters: &[Cluster], jobs: &[Job], ended: &[Ended]) -> Figures {
        let mean = |figure: &dyn Fn(&Ended) -> f64| ended.iter().map(figure).sum::<f64>() / ended.len().max(1) as f64;
        let first = jobs.first().map_or(0.0, |job| job.arrival);
        let makespan = ended.iter().map(|ended| ended.end - first).max_by(f64::total_cmp).unwrap_or_default();
        let hosts: u32 = clusters.iter().map(|cluster| cluster.hosts).sum();
        let used: f64 = ended.iter().map(|ended| (ended.end - ended.start) * f64::from(jobs[ended.job].tasks)).sum();
        Figures {
            makespan,
            wait: mean(&|ended| ended.start - jobs[ended.job].arrival),
            execution: mean(&|ended| ended.end - ended.start),
            slowdown: mean(&|ended| (ended.end - ended.start) / jobs[ended.job].base - 1.0),
            compaction: used / (makespan * f64::from(hosts)).max(f64::MIN_POSITIVE),
            spread: mean(&|ended| f64::from(u8::from(ended.is_spread))),
            saturated: mean(&|ended| f64::from(u8::from(ended.was_saturated))),
        }
    }

    /// The mean of several runs.
    pub(super) fn mean(runs: &[Figures]) -> Figures {
        let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64;
        Figures {
            makespan: of(|run| run.makespan),
            wait: of(|run| run.wait),
            execution: of(|run| run.execution),
            slowdown: of(|run| run.slowdown),
            compaction: of(|run| run.compaction),
            spread: of(|run| run.spread),
            saturated: of(|run| run.saturated),
        }
    }

    /// Mean time from arrival to end, in seconds.
    pub(super) fn response(&self) -> f64 {
        self.wait + self.execution
    }
}

/// The greatest first; what is no number last.
pub(super) fn descending(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}
