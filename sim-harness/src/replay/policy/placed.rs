//! Every job is a request that a [`Placement`] answers the moment the job is submitted, and the answer is reserved at once
//! on named hosts. With Kolo's own phases this is the policy `kolo`.
//!
//! A job becomes a co-plan: N hosts of one cluster, its processors and memory on each as per-host minima. Each
//! cluster that could hold it is planned on by itself (all its hosts as candidates, the earliest start
//! in the window); the earliest plan wins, of equally early ones the first cluster's. A job that ends early frees its
//! hosts for requests that come later; plans already made do not move. A request that is refused, or whose answer is no
//! solution, ends the replay with an error. Windows that had passed when hosts became free late (a job ran past its planned
//! time) start as soon as their hosts are free.
//! Invariant: the schedules hold exactly what waiting jobs have reserved and running ones hold.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    amount::Amount,
    host::Host,
    ids::{HostId, SiteId},
    phases::Candidate,
    request::{Request, RequestDocument, RequestError},
    resources::{Amounts, Attributes, ResourceName},
    schedule::Schedule,
    time::{Time, Window},
};

use anyhow::{Context, bail};

use super::view::{Policy, Setup, Start, View};
use crate::{
    engine::Moment,
    placement::{Asked, Placement},
    replay::{
        cluster::ClusterSpec,
        job::{ClusterIndex, JobIndex, Known, Shape},
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

/// A reservation of a job.
#[derive(Debug, Clone)]
struct Reserved {
    cluster: ClusterIndex,
    hosts: Box<[u32]>,
    window: Window,
}

/// The schedules of all hosts, and what is reserved on them.
pub struct Placed {
    placement: Box<dyn Placement>,
    pools: Vec<Pool>,
    seed: u64,
    processors: ResourceName,
    memory: ResourceName,
    reserved: BTreeMap<JobIndex, Reserved>,
    /// Jobs that have not started, by the second of their reservation.
    waiting: BTreeSet<(i64, JobIndex)>,
    /// Running jobs by the end of their window.
    running: BTreeSet<(i64, JobIndex)>,
}

impl Pool {
    fn new(spec: &ClusterSpec, number: usize, processors: &ResourceName, memory: &ResourceName) -> Pool {
        let capacity = Amounts::from([
            (processors.clone(), Amount(u64::from(spec.processors_per_host))),
            (memory.clone(), Amount(spec.memory_per_host_kib)),
        ]);
        let host = |index: u32| Host {
            // Padded, so that the order of the names is that of the numbers.
            id: HostId::new(&format!("h{index:08}")).expect("a letter and a number are a short, plain text"),
            capacity: capacity.clone(),
            attributes: Attributes::new(),
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
        &self,
        placement: &mut dyn Placement,
        request: &Request,
        now_s: i64,
        seed: u64,
    ) -> anyhow::Result<(Time, Box<[u32]>)> {
        let hosts = self.hosts.iter().zip(&self.schedules);
        let candidates: Vec<Candidate<'_>> =
            hosts.map(|(host, schedule)| Candidate { site: &self.site, host, schedule }).collect();
        let last = self.horizon.max(Time(now_s));
        let (mut earliest, mut reach) = (Time(now_s), REACH_S);
        while earliest <= last {
            let latest = Time(earliest.0.saturating_add(reach)).min(last);
            let asked = Asked { request, earliest, latest, candidates: &candidates, seed };
            if let Some(choice) = placement.place(&asked) {
                asked.judge(&choice)?;
                return Ok((choice.start, choice.hosts.into_iter().map(|at| at as u32).collect()));
            }
            earliest = Time(latest.0 + 1);
            reach = reach.saturating_mul(8);
        }
        bail!("no start was found even when all hosts are free")
    }

    fn add(&mut self, hosts: &[u32], window: Window, amounts: &Amounts) {
        for host in hosts {
            self.schedules[*host as usize].add(window, amounts);
        }
        self.horizon = self.horizon.max(window.end);
    }

    fn remove(&mut self, hosts: &[u32], window: Window, amounts: &Amounts) {
        for host in hosts {
            let removed = self.schedules[*host as usize].remove(window, amounts);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
    }
}

impl Placed {
    /// Empty schedules.
    pub fn new(setup: &Setup<'_>, placement: Box<dyn Placement>) -> Placed {
        let processors = ResourceName::new("cpu").expect("a plain word");
        let memory = ResourceName::new("memory").expect("a plain word");
        let pools = setup.clusters.iter().enumerate();
        Placed {
            placement,
            pools: pools.map(|(number, spec)| Pool::new(spec, number, &processors, &memory)).collect(),
            seed: setup.seed,
            processors,
            memory,
            reserved: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
        }
    }

    /// What a job takes of each of its hosts.
    fn amounts(&self, shape: &Shape) -> Amounts {
        let processors = (self.processors.clone(), Amount(u64::from(shape.processors_per_host)));
        let memory = (self.memory.clone(), Amount(shape.memory_per_host_kib));
        [processors, memory].into_iter().filter(|(_, amount)| *amount > Amount::ZERO).collect()
    }

    /// The job as a request; the planner gets its window apart.
    fn request(&self, job: &Known) -> Result<Request, RequestError> {
        Request::try_from(RequestDocument {
            id: None,
            hosts: job.shape.hosts,
            duration: job.planned_s,
            earliest: None,
            latest: None,
            per_host: self.amounts(&job.shape),
            total: Amounts::new(),
            attributes: Attributes::new(),
            candidates: None,
            effort: None,
            move_on_loss: false,
        })
    }

    /// Gives the window of a reservation another place or another length; what is before `now_s` stays as it is.
    fn move_window(&mut self, index: JobIndex, shape: &Shape, window: Window, now_s: i64) {
        let amounts = self.amounts(shape);
        let Some(reserved) = self.reserved.get_mut(&index) else { return };
        let pool = &mut self.pools[reserved.cluster.at()];
        pool.remove(&reserved.hosts, clipped(reserved.window, now_s), &amounts);
        pool.add(&reserved.hosts, clipped(window, now_s), &amounts);
        reserved.window = window;
    }

    /// Jobs that should have ended already hold their hosts a little longer.
    fn extend_overdue(&mut self, view: &View<'_>) {
        let now_s = view.now.second();
        while let Some((end_s, index)) = self.running.first().copied().filter(|(end_s, _)| *end_s < now_s) {
            self.running.remove(&(end_s, index));
            let end_s = now_s + OVERRUN_S;
            if let Some(start) = self.reserved.get(&index).map(|reserved| reserved.window.start) {
                let window = Window { start, end: Time(end_s) };
                self.move_window(index, &view.job(index).shape, window, now_s);
                self.running.insert((end_s, index));
            }
        }
    }
}

/// The part of a window from `now_s` on; schedules before that are forgotten.
fn clipped(window: Window, now_s: i64) -> Window {
    Window { start: window.start.max(Time(now_s)), end: window.end.max(Time(now_s)) }
}

impl Policy for Placed {
    fn submitted(&mut self, index: JobIndex, view: &View<'_>) -> anyhow::Result<()> {
        self.extend_overdue(view);
        let now_s = view.now.second();
        let job = view.job(index);
        let request = self.request(job)?;
        let seed = self.seed.wrapping_add(u64::from(index.0));
        let mut plans = Vec::new();
        for (cluster, _) in view.clusters_for(index) {
            let pool = &mut self.pools[cluster.at()];
            pool.schedules.iter_mut().for_each(|schedule| schedule.forget_before(Time(now_s)));
            let (start, hosts) = pool.plan(self.placement.as_mut(), &request, now_s, seed)?;
            plans.push((start, cluster, hosts));
        }
        let earliest = plans.into_iter().min_by_key(|(start, ..)| *start);
        let (start, cluster, hosts) = earliest.context("no cluster could ever run it")?;
        let window = Window::starting(start, request.duration());
        let amounts = self.amounts(&job.shape);
        self.pools[cluster.at()].add(&hosts, window, &amounts);
        self.reserved.insert(index, Reserved { cluster, hosts, window });
        self.waiting.insert((start.0, index));
        Ok(())
    }

    fn next(&mut self, view: &View<'_>) -> Option<Start> {
        let now_s = view.now.second();
        let due = self.waiting.iter().take_while(|(start_s, _)| *start_s <= now_s);
        let ready = due.copied().find_map(|(start_s, index)| {
            let reserved = self.reserved.get(&index)?;
            let cluster = &view.clusters[reserved.cluster.at()];
            let holds = cluster.holds_on(&reserved.hosts, &view.job(index).shape);
            holds.then(|| (start_s, index, reserved.cluster, reserved.hosts.clone()))
        });
        let (start_s, index, cluster, hosts) = ready?;
        let job = view.job(index);
        self.waiting.remove(&(start_s, index));
        let window = Window { start: Time(now_s), end: Time(now_s + job.planned_s) };
        if start_s < now_s {
            self.move_window(index, &job.shape, window, now_s);
        }
        self.running.insert((window.end.0, index));
        Some(Start { job: index, cluster, hosts: Some(hosts) })
    }

    fn ended(&mut self, index: JobIndex, view: &View<'_>) {
        let now_s = view.now.second();
        let Some(reserved) = self.reserved.remove(&index) else { return };
        self.running.remove(&(reserved.window.end.0, index));
        let amounts = self.amounts(&view.job(index).shape);
        self.pools[reserved.cluster.at()].remove(&reserved.hosts, clipped(reserved.window, now_s), &amounts);
    }

    fn wake_after(&self, now: Moment) -> Option<Moment> {
        // Those whose second has begun wait for their hosts, whose ends are events.
        let later = self.waiting.range((now.second() + 1, JobIndex(0))..).next();
        later.map(|(start_s, _)| Moment::of_second(*start_s))
    }
}
