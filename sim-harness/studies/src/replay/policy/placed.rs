//! Every job is a request that a [`Strategy`] answers the moment the job is submitted, and the answer is reserved at once
//! on named hosts. With Kolo's own phases this is the policy `kolo`.
//!
//! A job becomes a co-allocation: N hosts of one cluster, its processors and memory on each as per-host minima. Each
//! cluster that could hold it is planned on by itself (all its hosts as candidates, the earliest start
//! in the window); the earliest plan wins, of equally early ones the first cluster's. A job that ends early frees its
//! hosts for requests that come later; plans already made do not move. A request that is refused, or whose answer is no
//! solution, ends the replay with an error. Windows that had passed when hosts became free late (a job ran past its planned
//! time) start as soon as their hosts are free.
//! Invariant: the schedules hold exactly what waiting jobs have reserved and running ones hold.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    host::{Host, Speed},
    ids::{HostId, SiteId},
    phases::{Candidate, Job},
    plan::Seat,
    request::{Effort, Request, RequestDocument, RequestError},
    resources::{Amounts, Attributes, ResourceName},
    schedule::Schedule,
    strategy::Strategy,
    time::{Time, Window},
};

use anyhow::{Context, anyhow, bail};
use sim_kit::virtual_time::Moment;

use super::view::{Policy, Setup, Start, View};
use crate::{
    placement::Asked,
    replay::{
        cluster::ClusterSpec,
        job::{ClusterIndex, JobIndex, Known},
    },
};

/// First reach of a window, in seconds; the next ones are eight times as long each.
const REACH_S: i64 = 3600;
/// How far into the future a host that is held past its planned time counts as taken, in seconds.
const OVERRUN_S: i64 = 60;

/// The hosts of one cluster with their schedules.
struct Pool {
    site: SiteId,
    hosts: Vec<Host>,
    schedules: Vec<Schedule>,
    /// End of everything reserved.
    horizon: Time,
}

/// The reservation of a job: on these hosts of a cluster, these amounts on each.
struct Reserved {
    cluster: ClusterIndex,
    hosts: Box<[u32]>,
    window: Window,
    amounts: Amounts,
}

/// The schedules of all hosts, and the reservations on them.
pub struct Placed {
    strategy: Box<dyn Strategy>,
    pools: Vec<Pool>,
    seed: u64,
    /// Processors and memory.
    resources: [ResourceName; 2],
    reserved: BTreeMap<JobIndex, Reserved>,
    /// Jobs that have not started, by the second of their reservation.
    waiting: BTreeSet<(i64, JobIndex)>,
    /// Running jobs by the end of their window.
    running: BTreeSet<(i64, JobIndex)>,
}

impl Pool {
    fn new(spec: &ClusterSpec, number: usize, capacity: &Amounts) -> Pool {
        let host = |index: u32| Host {
            // Padded, so that the order of the names is that of the numbers.
            id: HostId::new(&format!("h{index:08}")).expect("a letter and a number are a short, plain text"),
            capacity: capacity.clone(),
            attributes: Attributes::new(),
            speed: Speed::REFERENCE,
            tariff: Default::default(),
        };
        Pool {
            site: SiteId::new(&format!("c{number:08}")).expect("a letter and a number are a short, plain text"),
            hosts: (0..spec.hosts).map(host).collect(),
            schedules: vec![Schedule::default(); spec.hosts as usize],
            horizon: Time::ZERO,
        }
    }

    /// The earliest window in which the request fits, and its hosts. The windows looked at grow, so that a request that
    /// can start soon does not read whole schedules.
    fn plan(
        &mut self,
        strategy: &mut dyn Strategy,
        request: &Request,
        now: Time,
        seed: u64,
    ) -> anyhow::Result<(Time, Box<[u32]>)> {
        self.schedules.iter_mut().for_each(|schedule| schedule.forget_before(now));
        let hosts = self.hosts.iter().zip(&self.schedules);
        let candidates: Vec<Candidate<'_>> =
            hosts.map(|(host, schedule)| Candidate { site: &self.site, host, schedule }).collect();
        let last = self.horizon.max(now);
        let (mut earliest, mut reach) = (now, REACH_S);
        while earliest <= last {
            let latest = Time(earliest.0.saturating_add(reach)).min(last);
            let asked = Asked { job: Job::of(request, (earliest, latest)), candidates: &candidates };
            let outcome = strategy.plan(&asked.job, &candidates, Effort::Fast, seed, &mut ());
            if let Some(plan) = outcome.plan() {
                asked.judge(plan)?;
                // Names are in the order of the numbers.
                let place = |seat: &Seat| self.hosts.binary_search_by(|host| host.id.cmp(seat.host()));
                let hosts = plan.seats.iter().map(|seat| place(seat).map(|at| at as u32));
                let hosts = hosts.collect::<Result<_, _>>().map_err(|_| anyhow!("a host that is not there"))?;
                return Ok((plan.start, hosts));
            }
            earliest = Time(latest.0 + 1);
            reach = reach.saturating_mul(8);
        }
        bail!("no start was found even when all hosts are free")
    }

    fn add(&mut self, reserved: &Reserved, from: Time) {
        for host in &reserved.hosts {
            self.schedules[*host as usize].add(reserved.window_from(from), &reserved.amounts);
        }
        self.horizon = self.horizon.max(reserved.window.end);
    }

    fn remove(&mut self, reserved: &Reserved, from: Time) {
        for host in &reserved.hosts {
            let removed = self.schedules[*host as usize].remove(reserved.window_from(from), &reserved.amounts);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
    }
}

impl Reserved {
    /// The part of the window from then on; schedules before that are forgotten.
    fn window_from(&self, from: Time) -> Window {
        Window { start: self.window.start.max(from), end: self.window.end.max(from) }
    }
}

impl Placed {
    /// Empty schedules.
    pub fn new(setup: &Setup<'_>, strategy: Box<dyn Strategy>) -> Placed {
        let mut placed = Placed {
            strategy,
            pools: Vec::new(),
            seed: setup.seed,
            resources: ["cpu", "memory"].map(|name| ResourceName::new(name).expect("a plain word")),
            reserved: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
        };
        for (number, spec) in setup.clusters.iter().enumerate() {
            let capacity = placed.amounts(spec.processors_per_host, spec.memory_per_host_kib);
            placed.pools.push(Pool::new(spec, number, &capacity));
        }
        placed
    }

    fn amounts(&self, processors: u32, memory_kib: u64) -> Amounts {
        let amounts = [u64::from(processors), memory_kib].map(Amount);
        self.resources.iter().cloned().zip(amounts).filter(|(_, amount)| *amount > Amount::ZERO).collect()
    }

    /// The job as a request; the planner gets its window apart.
    fn request(&self, job: &Known) -> Result<Request, RequestError> {
        Request::try_from(RequestDocument {
            hosts: job.shape.hosts,
            duration: Some(job.planned_s),
            per_host: self.amounts(job.shape.processors_per_host, job.shape.memory_per_host_kib),
            ..RequestDocument::default()
        })
    }

    /// Moves or lengthens the window of a reservation; its part before now stays as it is.
    fn move_window(&mut self, index: JobIndex, now: Time, window: impl FnOnce(Window) -> Window) {
        let Some(reserved) = self.reserved.get_mut(&index) else { return };
        let pool = &mut self.pools[reserved.cluster.at()];
        pool.remove(reserved, now);
        reserved.window = window(reserved.window);
        pool.add(reserved, now);
    }

    /// Jobs that should have ended already hold their hosts a little longer.
    fn extend_overdue(&mut self, now: Time) {
        while let Some((end_s, index)) = self.running.first().copied().filter(|(end_s, _)| *end_s < now.0) {
            self.running.remove(&(end_s, index));
            let end = Time(now.0 + OVERRUN_S);
            self.move_window(index, now, |window| Window { end, ..window });
            self.running.insert((end.0, index));
        }
    }
}

impl Policy for Placed {
    fn submitted(&mut self, index: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        let now = Time(view.now.second());
        self.extend_overdue(now);
        let request = self.request(view.job(index))?;
        let seed = self.seed.wrapping_add(u64::from(index.0));
        let mut plans = Vec::new();
        for (cluster, _) in view.clusters_for(index) {
            let (start, hosts) = self.pools[cluster.at()].plan(self.strategy.as_mut(), &request, now, seed)?;
            plans.push((start, cluster, hosts));
        }
        let earliest = plans.into_iter().min_by_key(|(start, ..)| *start);
        let (start, cluster, hosts) = earliest.context("no cluster could ever run it")?;
        let window = Window::starting(start, request.demand().length().at_reference());
        let reserved = Reserved { cluster, hosts, window, amounts: request.demand().per_host().clone() };
        self.pools[cluster.at()].add(&reserved, now);
        self.reserved.insert(index, reserved);
        self.waiting.insert((start.0, index));
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let now = Time(view.now.second());
        let due = self.waiting.iter().take_while(|(start_s, _)| *start_s <= now.0);
        let (start_s, job, cluster, hosts) = due.copied().find_map(|(start_s, job)| {
            let Reserved { cluster, hosts, .. } = self.reserved.get(&job)?;
            let holds = view.clusters[cluster.at()].holds_on(hosts, &view.job(job).shape);
            holds.then(|| (start_s, job, *cluster, hosts.clone()))
        })?;
        self.waiting.remove(&(start_s, job));
        let window = Window { start: now, end: Time(now.0 + view.job(job).planned_s) };
        if start_s < now.0 {
            self.move_window(job, now, |_| window);
        }
        self.running.insert((window.end.0, job));
        Some(Start { job, cluster, hosts: Some(hosts) })
    }

    fn ended(&mut self, index: JobIndex, view: &View<'_>) {
        let Some(reserved) = self.reserved.remove(&index) else { return };
        self.running.remove(&(reserved.window.end.0, index));
        self.pools[reserved.cluster.at()].remove(&reserved, Time(view.now.second()));
    }

    fn wake_after(&self, now: Moment) -> Option<Moment> {
        // Those whose second has begun wait for their hosts, whose ends are events.
        let later = self.waiting.range((now.second() + 1, JobIndex(0))..).next();
        later.map(|(start_s, _)| Moment::of_second(*start_s))
    }
}
