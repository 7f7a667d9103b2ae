//! Clusters that are joined by links, and jobs that run on them at the speed that hosts and links leave them.
//!
//! Source: the dissertation on multi-clusters, chapter 2: execution time (2.2, 2.3), slowdown by slow hosts (2.4, 2.5), load of a link (2.6),
//! its saturation (2.7) and the slowdown by it (2.8, 2.9). A job's slowdown is computed anew whenever a job begins or ends.
//! Invariant: a host runs one job at a time; a job keeps its hosts from its start to its end, or until one of them fails: then it waits
//! again and begins anew.

use std::cmp::Ordering;

/// A cluster of like hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cluster {
    pub(crate) hosts: u32,
    /// Effective power of each, of the reference host's.
    pub(crate) power: f64,
    /// Bandwidth of its link, in GB/s.
    pub(crate) link: f64,
}

/// A parallel job: one task a host, all at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) tasks: u32,
    /// The share of its time that it computes; the rest it communicates.
    pub(crate) compute: f64,
    /// Its time on reference hosts, in seconds.
    pub(crate) base: f64,
    /// What a task sends, in GB/s.
    pub(crate) bandwidth: f64,
    /// When it comes, in seconds.
    pub(crate) arrival: f64,
}

/// How many tasks of a job each cluster has.
pub(crate) type Counts = Vec<u32>;

impl Job {
    /// What it loads the link of a cluster with that has so many of its tasks, in GB/s (2.6).
    pub(crate) fn load(&self, tasks: u32) -> f64 {
        if self.tasks < 2 {
            return 0.0;
        }
        f64::from(tasks) * self.bandwidth * f64::from(self.tasks - tasks) / f64::from(self.tasks - 1)
    }

    /// Its execution time where no link is saturated, in seconds (2.2 to 2.5).
    pub(crate) fn time(&self, counts: &[u32], clusters: &[Cluster]) -> f64 {
        self.base * self.slowdown(counts, clusters, 1.0)
    }

    fn slowdown(&self, counts: &[u32], clusters: &[Cluster], by_links: f64) -> f64 {
        let used = counts.iter().zip(clusters).filter(|(tasks, _)| **tasks > 0);
        let by_hosts = used.map(|(_, cluster)| 1.0 / cluster.power).fold(0.0, f64::max);
        self.compute * by_hosts + (1.0 - self.compute) * by_links
    }
}

/// Whether a job lies in more than one cluster.
pub(crate) fn is_spread(counts: &[u32]) -> bool {
    counts.iter().filter(|tasks| **tasks > 0).count() > 1
}

/// A job that runs.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) job: usize,
    pub(crate) counts: Counts,
    /// What is left of it, of 1.
    left: f64,
    start: f64,
    was_saturated: bool,
}

/// What runs where.
#[derive(Debug)]
pub(crate) struct State<'a> {
    /// The time, in seconds.
    pub(crate) now: f64,
    pub(crate) clusters: &'a [Cluster],
    pub(crate) jobs: &'a [Job],
    pub(crate) running: Vec<Running>,
    /// Failed hosts of each cluster.
    pub(crate) failed: Counts,
}

/// A host that fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) cluster: usize,
    /// Which of those that work, from 0 on; those in use come first.
    pub(crate) host: u32,
    /// When, in seconds, and when it works again.
    pub(crate) at: f64,
    pub(crate) until: f64,
}

impl<'a> State<'a> {
    /// Nothing runs, and all hosts work.
    pub(crate) fn empty(clusters: &'a [Cluster], jobs: &'a [Job]) -> State<'a> {
        State { now: 0.0, clusters, jobs, running: Vec::new(), failed: vec![0; clusters.len()] }
    }

    /// How long a job still runs where no link is saturated, in seconds.
    pub(crate) fn seconds_left(&self, running: &Running) -> f64 {
        running.left * self.jobs[running.job].time(&running.counts, self.clusters)
    }

    /// Free hosts of each cluster.
    pub(crate) fn free(&self) -> Counts {
        let taken = |at: usize| self.running.iter().map(|running| running.counts[at]).sum::<u32>();
        self.clusters.iter().enumerate().map(|(at, cluster)| cluster.hosts - self.failed[at] - taken(at)).collect()
    }

    /// Load of each link, in GB/s.
    pub(crate) fn loads(&self) -> Vec<f64> {
        let load = |at: usize| self.running.iter().map(|run| self.jobs[run.job].load(run.counts[at])).sum();
        (0..self.clusters.len()).map(load).collect()
    }

    /// Takes a failing host away, and tells which job ran on it; nothing happens to a cluster without hosts that work.
    fn fail(&mut self, fault: &Fault) -> Option<usize> {
        let working = self.clusters[fault.cluster].hosts - self.failed[fault.cluster];
        let mut host = fault.host.checked_rem(working)?;
        self.failed[fault.cluster] += 1;
        let hit = self.running.iter().position(|running| {
            let tasks = running.counts[fault.cluster];
            let is_hit = host < tasks;
            host = host.saturating_sub(tasks);
            is_hit
        });
        hit.map(|at| self.running.remove(at).job)
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
pub(crate) trait Policy {
    /// The next job to start, of those `waiting` (in the order of arrival); none when nothing starts now.
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)>;
}

/// What became of a job.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) job: usize,
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) counts: Counts,
    pub(crate) was_saturated: bool,
    /// How often a host of it failed.
    pub(crate) restarts: u32,
}

/// Runs all jobs (in the order of arrival) and says what became of each. Jobs that never start are left out.
pub(crate) fn simulate(clusters: &[Cluster], jobs: &[Job], policy: &mut (impl Policy + ?Sized)) -> Vec<Ended> {
    simulate_with(clusters, jobs, std::iter::empty(), policy)
}

/// The same with these faults, in the order of their times.
pub(crate) fn simulate_with(
    clusters: &[Cluster],
    jobs: &[Job],
    faults: impl Iterator<Item = Fault>,
    policy: &mut (impl Policy + ?Sized),
) -> Vec<Ended> {
    let mut state = State::empty(clusters, jobs);
    let (mut arrived, mut faults) = (0, faults.peekable());
    let (mut waiting, mut ended) = (Vec::new(), Vec::with_capacity(jobs.len()));
    // Failed hosts, and how often each job lost one.
    let (mut repairs, mut restarts) = (Vec::<(f64, usize)>::new(), vec![0; jobs.len()]);
    loop {
        let now = state.now;
        repairs.retain(|(until, cluster)| {
            let is_over = *until <= now;
            state.failed[*cluster] -= u32::from(is_over);
            !is_over
        });
        while let Some(fault) = faults.next_if(|fault| fault.at <= now) {
            let failed = state.failed[fault.cluster];
            if let Some(job) = state.fail(&fault) {
                restarts[job] += 1;
                waiting.insert(waiting.partition_point(|known| *known < job), job);
            }
            repairs.extend((state.failed[fault.cluster] > failed).then_some((fault.until, fault.cluster)));
        }
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
        let repair = repairs.iter().map(|(until, _)| *until).filter(|_| !waiting.is_empty()).min_by(f64::total_cmp);
        let Some(next) = first_end.into_iter().chain(arrival).chain(repair).min_by(f64::total_cmp) else {
            return ended;
        };
        let next = faults.peek().map_or(next, |fault| next.min(fault.at));
        for (running, (rate, is_saturated)) in state.running.iter_mut().zip(rates) {
            running.left -= (next - now) * rate;
            running.was_saturated |= is_saturated;
        }
        state.now = next;
        // What is left after rounding is done.
        state.running.retain(|Running { job, counts, left, start, was_saturated }| {
            let is_over = *left <= 1e-9;
            if is_over {
                let (counts, was_saturated) = (counts.clone(), *was_saturated);
                ended.push(Ended {
                    job: *job,
                    start: *start,
                    end: next,
                    counts,
                    was_saturated,
                    restarts: restarts[*job],
                });
            }
            !is_over
        });
    }
}

/// Figures of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub(crate) struct Figures {
    /// From the first arrival to the last end, in seconds.
    pub(crate) makespan: f64,
    /// Mean time from arrival to start, and from start to end, in seconds.
    pub(crate) wait: f64,
    pub(crate) execution: f64,
    /// Mean of the execution time over the base time, less one.
    pub(crate) slowdown: f64,
    /// Host time in use, of all.
    pub(crate) compaction: f64,
    /// Jobs in more than one cluster, and jobs that a link has slowed down, of all.
    pub(crate) spread: f64,
    pub(crate) saturated: f64,
    /// Jobs that lost a host, of all.
    pub(crate) restarted: f64,
}

impl Figures {
    /// Of what became of the jobs.
    pub(crate) fn of(clusters: &[Cluster], jobs: &[Job], ended: &[Ended]) -> Figures {
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
            spread: mean(&|ended| f64::from(u8::from(is_spread(&ended.counts)))),
            saturated: mean(&|ended| f64::from(u8::from(ended.was_saturated))),
            restarted: mean(&|ended| f64::from(u8::from(ended.restarts > 0))),
        }
    }

    /// The mean of several runs.
    pub(crate) fn mean(runs: &[Figures]) -> Figures {
        let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64;
        Figures {
            makespan: of(|run| run.makespan),
            wait: of(|run| run.wait),
            execution: of(|run| run.execution),
            slowdown: of(|run| run.slowdown),
            compaction: of(|run| run.compaction),
            spread: of(|run| run.spread),
            saturated: of(|run| run.saturated),
            restarted: of(|run| run.restarted),
        }
    }

    /// Jobs an hour, of so many.
    pub(crate) fn throughput(&self, jobs: usize) -> f64 {
        3600.0 * jobs as f64 / self.makespan.max(f64::MIN_POSITIVE)
    }

    /// Mean time from arrival to end, in seconds.
    pub(crate) fn response(&self) -> f64 {
        self.wait + self.execution
    }
}

/// The greatest first; what is no number last.
pub(crate) fn descending(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}
