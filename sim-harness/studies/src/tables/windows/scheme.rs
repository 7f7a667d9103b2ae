//! The source's scheme, taken literally, with a search for windows that is handed in: alternatives of every job on what the others leave,
//! the best choice of them for the batch within its budget, and the windows chosen slide to the left.
//!
//! Source: chapter 2. It says that the scheme has a budget for the batch and strives to spend it, not how large it is: here what the
//! alternatives of each job cost on average, so that a choice within it always exists. The scheme is here, and not
//! the product's `slices:K`, because the first window can take part in it, and because every alternative
//! is searched by the job's own criterion. Invariant: windows of one cycle never collide.

use std::collections::BTreeMap;

use broker::{
    batch::choice::{Aim, Item, Question, WORK_MAX, choose},
    cost::Cost,
    ids::HostId,
    phases::{Candidate, Job},
    plan::{Plan, PlanOutcome},
    request::{Effort, ObjectiveKind, Request},
    snapshot::SnapshotHost,
    strategy::{Phases, Strategy},
    time::{Span, Time},
};

use super::setup::{Cycle, credits, units};
use crate::placement::named;

/// How windows are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// By each job's own criterion, with Kolo's planner.
    Kolo,
    /// The first window that the scan finds, whatever the criterion.
    First,
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Served {
    /// Its criterion.
    pub(super) criterion: ObjectiveKind,
    /// Windows found for it.
    pub(super) alternatives: usize,
    /// The window that it got.
    pub(super) window: Option<Measured>,
}

/// The figures of a window, in units of time and of money.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub(super) struct Measured {
    pub(super) start: f64,
    /// The longest seat.
    pub(super) run: f64,
    pub(super) finish: f64,
    pub(super) cost: f64,
    /// The lengths of all seats together.
    pub(super) host_time: f64,
}

impl Measured {
    /// Made of each figure by itself.
    pub(super) fn each(make: impl Fn(fn(&Measured) -> f64) -> f64) -> Measured {
        Measured {
            start: make(|measured| measured.start),
            run: make(|measured| measured.run),
            finish: make(|measured| measured.finish),
            cost: make(|measured| measured.cost),
            host_time: make(|measured| measured.host_time),
        }
    }

    /// The figure that a criterion is about.
    pub(super) fn by(&self, criterion: &str) -> f64 {
        match criterion {
            "start" => self.start,
            "runtime" => self.run,
            "finish" => self.finish,
            "cost" => self.cost,
            _ => self.host_time,
        }
    }

    /// The figures of a plan.
    pub(super) fn of(plan: &Plan) -> Measured {
        let end = units(plan.end().0 as f64);
        let start = units(plan.start.0 as f64);
        Measured {
            start,
            run: end - start,
            finish: end,
            cost: credits(plan.cost()),
            host_time: units(host_seconds(plan) as f64),
        }
    }
}

fn host_seconds(plan: &Plan) -> u64 {
    plan.seats.iter().map(|seat| seat.window.duration().0).sum()
}

/// The hosts as they are reserved so far.
struct Domain {
    hosts: Vec<SnapshotHost>,
    by_id: BTreeMap<HostId, usize>,
    search: Search,
}

impl Domain {
    fn new(cycle: &Cycle, search: Search) -> Domain {
        let hosts = cycle.grid.hosts.clone();
        let by_id = hosts.iter().enumerate().map(|(at, entry)| (entry.host.id.clone(), at)).collect();
        Domain { hosts, by_id, search }
    }

    /// A window for a job beside all others.
    fn window(&self, job: &Request) -> Option<Plan> {
        match self.search {
            Search::Kolo => self.planned(&mut Phases, job, job.objective(), self.hosts.iter()),
            Search::First => self.planned(&mut *named("scan")?(), job, ObjectiveKind::Start, self.hosts.iter()),
        }
    }

    /// The same hosts at the earliest start.
    fn slid(&self, job: &Request, plan: &Plan) -> Option<Plan> {
        let hosts = plan.seats.iter().filter_map(|seat| self.hosts.get(*self.by_id.get(seat.host())?));
        self.planned(&mut Phases, job, ObjectiveKind::Start, hosts)
    }

    fn planned<'a>(
        &self,
        strategy: &mut dyn Strategy,
        job: &Request,
        objective: ObjectiveKind,
        hosts: impl Iterator<Item = &'a SnapshotHost>,
    ) -> Option<Plan> {
        let candidates: Vec<Candidate<'_>> =
            hosts.map(|entry| Candidate { site: &entry.site, host: &entry.host, schedule: &entry.schedule }).collect();
        let asked = Job { objective, ..Job::of(job, job.starts(Time::ZERO, Span(0)).ok()?) };
        match strategy.plan(&asked, &candidates, Effort::Balanced, 1, &mut ()) {
            PlanOutcome::Allocated(plan) => Some(plan),
            PlanOutcome::Rejected(_) => None,
        }
    }

    fn occupy(&mut self, plan: &Plan) {
        for seat in &plan.seats {
            if let Some(at) = self.by_id.get(seat.host()) {
                self.hosts[*at].schedule.add(seat.window, &seat.amounts);
            }
        }
    }

    fn vacate(&mut self, plan: &Plan) -> anyhow::Result<()> {
        for seat in &plan.seats {
            if let Some(at) = self.by_id.get(seat.host()) {
                self.hosts[*at].schedule.remove(seat.window, &seat.amounts)?;
            }
        }
        Ok(())
    }

    /// Windows for each job, one for each in turn, until nobody finds another.
    fn alternatives(&mut self, jobs: &[Request]) -> Vec<Vec<Plan>> {
        let mut found = vec![Vec::new(); jobs.len()];
        let mut open: Vec<usize> = (0..jobs.len()).collect();
        while !open.is_empty() {
            open.retain(|job| {
                let window = self.window(&jobs[*job]);
                window.iter().for_each(|plan| self.occupy(plan));
                found[*job].extend(window.clone());
                window.is_some()
            });
        }
        found
    }
}

/// What the alternatives of each job cost on average, together.
pub(super) fn budget(items: &[Vec<Item>]) -> u64 {
    let mean = |items: &Vec<Item>| {
        let costs: u64 = items.iter().map(|item| item.cost.unsigned_abs()).sum();
        costs.div_ceil(items.len().max(1) as u64)
    };
    items.iter().map(mean).sum()
}

/// Plans a cycle in so many parts; the batch's objective is the host time, within its budget.
///
/// # Errors
/// None that windows of one cycle could have.
pub(super) fn served(cycle: &Cycle, parts: usize, search: Search) -> anyhow::Result<Vec<Served>> {
    let mut domain = Domain::new(cycle, search);
    let mut all = Vec::with_capacity(cycle.jobs.len());
    for jobs in cycle.jobs.chunks(cycle.jobs.len().div_ceil(parts).max(1)) {
        let found = domain.alternatives(jobs);
        found.iter().flatten().try_for_each(|plan| domain.vacate(plan))?;
        let item =
            |plan: &Plan| Item::new(host_seconds(plan).cast_signed(), plan.cost().min(Cost::MAX).0, plan.end().0);
        let items: Vec<Vec<Item>> = found.iter().map(|plans| plans.iter().map(item).collect()).collect();
        let question = Question { items: &items, budget: Some(budget(&items)), floor: 0, work: WORK_MAX };
        let choice = choose(&question, Aim::Sum);
        let mut chosen: Vec<(usize, &Plan)> =
            (0..jobs.len()).filter_map(|job| Some((job, &found[job][choice.picks[job]?]))).collect();
        chosen.iter().for_each(|(_, plan)| domain.occupy(plan));
        chosen.sort_by_key(|(job, plan)| (plan.start, *job));
        let mut windows = vec![None; jobs.len()];
        for (job, plan) in chosen {
            domain.vacate(plan)?;
            let slid = domain.slid(&jobs[job], plan).unwrap_or_else(|| plan.clone());
            domain.occupy(&slid);
            windows[job] = Some(Measured::of(&slid));
        }
        all.extend(jobs.iter().zip(found).zip(windows).map(|((job, found), window)| Served {
            criterion: job.objective(),
            alternatives: found.len(),
            window,
        }));
    }
    Ok(all)
}

/// Each job as if it were the only one.
pub(super) fn alone(cycle: &Cycle) -> Vec<Served> {
    let domain = Domain::new(cycle, Search::Kolo);
    let served = |job: &Request| {
        let window = domain.window(job).as_ref().map(Measured::of);
        Served { criterion: job.objective(), alternatives: usize::from(window.is_some()), window }
    };
    cycle.jobs.iter().map(served).collect()
}
