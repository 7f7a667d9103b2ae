//! OAS by Kolo's own planner: what waits is planned as one batch of requests with traffic, for the least makespan.
//!
//! Source: the dissertation on multi-clusters, 3.2. A batch is planned anew whenever something has changed, around what runs, within a limit of
//! work. Invariant: its plans saturate no link, so that a job lasts as long as its slowest host makes it; the job that waits longest begins as
//! was first planned for it, or a little later, and where that cannot be nobody overtakes it.

use std::collections::VecDeque;

use anyhow::Context;
use broker::{
    amount::Amount,
    batch::{self, Options, Watch, policy_named},
    offline::{Asked, OfflinePlanner},
    phases::Settings,
    request::Effort,
    snapshot::GridSnapshot,
    time::{Time, Window},
};
use serde_json::json;

use super::{
    policies::fastest,
    world::{Cluster, Counts, Ended, Job, Policy, State},
};

/// The policy that looks at every second.
pub(crate) const EXACT: &str = "oas";
/// Mbit/s of a GB/s.
const MBPS: f64 = 8_000.0;
/// Behind any batch, and a time that requests may have, in seconds.
const NEVER_S: i64 = 100_000_000_000;
/// Most jobs that are planned together: as many as the planner may find a proof for.
const BATCH_MAX: usize = 16;
/// How much later than promised the job that waits longest may begin, in seconds: planned times are whole seconds.
const SLACK_S: i64 = 60;

/// What becomes of the jobs, all there at once, when order and hosts are chosen together.
///
/// # Errors
/// Never for jobs that fit the clusters.
pub(crate) fn ordered_and_assigned(clusters: &[Cluster], jobs: &[Job]) -> anyhow::Result<Vec<Ended>> {
    let state = State::empty(clusters, jobs);
    let batch: Vec<usize> = (0..jobs.len()).collect();
    let planned = Grid::of(clusters, EXACT)?.plan(&state, &batch, NEVER_S, Effort::Balanced)?;
    let ended = |(job, planned): (usize, Option<Planned>)| {
        let Planned { start, end, counts } = planned.with_context(|| format!("job {job} has no place"))?;
        Ok(Ended { job, start: start as f64, end: end as f64, counts, was_saturated: false, restarts: 0 })
    };
    planned.into_iter().enumerate().map(ended).collect()
}

/// When and where a job is to run, in seconds from now.
struct Planned {
    start: i64,
    end: i64,
    counts: Counts,
}

/// The clusters as a snapshot with nothing on it, and by which policy batches are planned there.
struct Grid {
    idle: GridSnapshot,
    policy: &'static str,
}

impl Grid {
    fn of(clusters: &[Cluster], policy: &'static str) -> anyhow::Result<Grid> {
        let name = |at: usize| format!("c{at:03}");
        let site = |(at, cluster): (usize, &Cluster)| json!({"id": name(at), "uplink": {"mbps": (cluster.link * MBPS) as u64, "occupancy": []}});
        let host = |at: usize, speed: u64, number: u32| json!({"id": format!("{}-{number:06}", name(at)), "site": name(at), "resources": {"cpu": 1000}, "speed": speed});
        let hosts = clusters.iter().enumerate().flat_map(|(at, cluster)| {
            let speed = (cluster.power * 1000.0).round() as u64;
            (0..cluster.hosts).map(move |number| host(at, speed, number))
        });
        let hosts: Vec<_> = hosts.collect();
        let sites: Vec<_> = clusters.iter().enumerate().map(site).collect();
        let text = json!({"format": "kolo-grid/2", "sites": sites, "hosts": hosts}).to_string();
        Ok(Grid { idle: GridSnapshot::read(&text).context("clusters as a snapshot")?, policy })
    }

    /// What is taken of it: hosts of what runs until its end, and for ever those that have failed.
    fn in_use(&self, state: &State) -> GridSnapshot {
        let mut grid = self.idle.clone();
        let mut first = 0;
        for (at, cluster) in state.clusters.iter().enumerate() {
            let mut host = first;
            first += cluster.hosts as usize;
            let failed = (state.failed[at], NEVER_S, 0.0);
            let runs = state.running.iter().map(|running| {
                let tasks = running.counts[at];
                (tasks, state.seconds_left(running).ceil() as i64, state.jobs[running.job].load(tasks))
            });
            for (taken, seconds, load) in std::iter::once(failed).chain(runs) {
                let window = Window { start: Time::ZERO, end: Time(seconds.max(1)) };
                for host in grid.hosts.iter_mut().skip(host).take(taken as usize) {
                    host.schedule.add(window, &host.host.capacity);
                }
                host += taken as usize;
                if let Some(uplink) = grid.sites[at].uplink.as_mut().filter(|_| load > 0.0) {
                    uplink.occupancy.add(window, Amount((load * MBPS).ceil() as u64));
                }
            }
        }
        grid
    }

    /// Plans these jobs together beside what runs, the first of them to begin by `latest_first`, in seconds from now.
    fn plan(
        &self,
        state: &State,
        batch: &[usize],
        latest_first: i64,
        effort: Effort,
    ) -> anyhow::Result<Vec<Option<Planned>>> {
        let settings = Settings { effort, ..Settings::default() };
        let planner = OfflinePlanner::new(self.in_use(state), settings, 1, false);
        let line = |(at, job): (usize, &usize)| {
            let latest = if at == 0 { latest_first } else { NEVER_S };
            planner.read_line(at + 1, &request(at, &state.jobs[*job], latest)).context("a job as a request")
        };
        let asked: Vec<Asked> = batch.iter().enumerate().map(line).collect::<anyhow::Result<_>>()?;
        let answer = batch::plan(&*policy_named(self.policy)?, &planner, &asked, &Options::default(), Watch::NOBODY)?;
        let planned = |line: &broker::offline::PlanLine| {
            let plan = line.outcome.plan()?;
            let mut counts = vec![0; state.clusters.len()];
            for seat in &plan.seats {
                counts[self.idle.sites.iter().position(|site| site.id == seat.site)?] += 1;
            }
            Some(Planned { start: plan.start.0, end: plan.end().0, counts })
        };
        Ok(answer.lines.iter().map(planned).collect())
    }
}

fn request(at: usize, job: &Job, latest: i64) -> String {
    json!({"id": format!("j{at:03}"), "hosts": job.tasks, "work": job.base.ceil().max(1.0) as u64, "per_host": {"cpu": 1000},
        "earliest": 0, "latest": latest, "objective": "finish",
        "traffic": {"mbps": (job.bandwidth * MBPS).ceil() as u64, "compute": (job.compute * 1000.0).round() as u64}})
    .to_string()
}

/// What a decision was made for; it stands until one of these is another one.
#[derive(PartialEq)]
struct Asking {
    waiting: Vec<usize>,
    running: Vec<usize>,
    failed: Counts,
}

/// OAS in a replay: at every change those of the batch begin whose planned start is now.
pub(crate) struct Whole {
    grid: Grid,
    /// What is still to begin at this moment.
    beginning: VecDeque<(usize, Counts)>,
    decided: Option<Asking>,
    /// The job that waits longest, and when it was first planned to begin.
    promise: Option<(usize, f64)>,
}

impl Whole {
    /// For these clusters, by `oas` or one of its forms.
    ///
    /// # Errors
    /// When they have more hosts than a snapshot.
    pub(crate) fn new(clusters: &[Cluster], policy: &'static str) -> anyhow::Result<Whole> {
        Ok(Whole { grid: Grid::of(clusters, policy)?, beginning: VecDeque::new(), decided: None, promise: None })
    }

    /// Which of those that wait begin now.
    fn decide(&mut self, waiting: &[usize], state: &State) -> Vec<(usize, Counts)> {
        let batch = &waiting[..waiting.len().min(BATCH_MAX)];
        let Some(first) = batch.first().copied() else { return Vec::new() };
        let free: u32 = state.free().iter().sum();
        if batch.iter().all(|job| state.jobs[*job].tasks > free) {
            return Vec::new();
        }
        let promised = self.promise.filter(|(job, _)| *job == first).map(|(_, at)| at);
        let latest = promised.map_or(NEVER_S, |at| (at - state.now).max(0.0).ceil() as i64 + SLACK_S);
        // A job that the planner refuses is one without a place.
        let plan = |batch: &[usize], latest| self.grid.plan(state, batch, latest, Effort::Fast).unwrap_or_default();
        let mut planned = plan(batch, latest);
        if planned.first().is_none_or(Option::is_none) {
            planned = plan(&[first], NEVER_S);
        }
        match planned.first() {
            Some(Some(of_first)) => {
                let start = state.now + of_first.start as f64;
                let is_kept = |at: &f64| start <= at + SLACK_S as f64 + 1.0;
                self.promise = Some((first, promised.filter(is_kept).unwrap_or(start)));
            }
            // What the links do not bear even alone would wait for ever.
            _ if state.running.is_empty() => {
                let counts = fastest(&state.jobs[first], &state.free(), state.clusters);
                return counts.map(|counts| (first, counts)).into_iter().collect();
            }
            _ => {}
        }
        let begins = |(job, planned): (&usize, Option<Planned>)| {
            planned.filter(|planned| planned.start == 0).map(|planned| (*job, planned.counts))
        };
        batch.iter().zip(planned).filter_map(begins).collect()
    }
}

impl Policy for Whole {
    fn next(&mut self, waiting: &[usize], state: &State) -> Option<(usize, Counts)> {
        let running = || state.running.iter().map(|running| running.job);
        let mut asking =
            Asking { waiting: waiting.to_vec(), running: running().collect(), failed: state.failed.clone() };
        if self.beginning.is_empty() && self.decided.as_ref() != Some(&asking) {
            self.beginning = self.decide(waiting, state).into();
            let begins = |job: &usize| self.beginning.iter().any(|(known, _)| known == job);
            asking.waiting.retain(|job| !begins(job));
            asking.running.extend(self.beginning.iter().map(|(job, _)| *job));
            self.decided = Some(asking);
        }
        self.beginning.pop_front()
    }
}
