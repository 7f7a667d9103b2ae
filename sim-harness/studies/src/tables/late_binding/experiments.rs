//! The five experiments: hosts, intervals, flexibility, a trace, and a host that fails.
//!
//! Invariant: all policies of an experiment see the same worlds.

use std::collections::BTreeSet;

use broker::time::{Span, Time};
use serde::Serialize;
use sim_kit::progress::Progress;

use super::{
    policies::{Dynamic, Kolo, Policy, Static},
    world::{Setup, World},
};
use crate::tables::parallel;

/// The policies, in the order of all rows.
pub(super) const POLICIES: [&str; 4] = ["static, random", "static, least cost", "dynamic", "Kolo"];

/// What one policy has made of one or more worlds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Figures {
    pub(super) requests: u64,
    pub(super) admitted: u64,
    pub(super) preempted: u64,
    /// Work lost, in seconds.
    pub(super) cost_s: u64,
    pub(super) failed: u64,
}

impl Figures {
    fn add(&mut self, other: &Figures) {
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.preempted += other.preempted;
        self.cost_s += other.cost_s;
        self.failed += other.failed;
    }

    /// Admission percentage.
    pub(super) fn admission(&self) -> f64 {
        100.0 * self.admitted as f64 / self.requests.max(1) as f64
    }

    /// Preemption percentage, of what was admitted.
    pub(super) fn preemption(&self) -> f64 {
        100.0 * self.preempted as f64 / self.admitted.max(1) as f64
    }

    /// Work lost for one admitted reservation, in seconds.
    pub(super) fn cost(&self) -> f64 {
        self.cost_s as f64 / self.admitted.max(1) as f64
    }

    /// Failed reservations, of what was admitted.
    pub(super) fn failure(&self) -> f64 {
        100.0 * self.failed as f64 / self.admitted.max(1) as f64
    }
}

/// One value of what an experiment changes, and a row of figures a policy.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) figures: [Figures; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End(usize),
    Fail(usize),
    Begin(usize),
    Ask(usize),
}

/// Runs a world. Only reservations in `only` are asked for, if given; a host may fail. Which were admitted, too.
fn run(
    world: &World,
    policy: &mut dyn Policy,
    only: Option<&BTreeSet<usize>>,
    failure: Option<(Time, usize)>,
) -> anyhow::Result<(Figures, BTreeSet<usize>)> {
    let (mut figures, mut admitted, mut queues) = (Figures::default(), BTreeSet::new(), world.queues.clone());
    let asked = world.requests.iter().enumerate().filter(|(number, _)| only.is_none_or(|only| only.contains(number)));
    let mut events: BTreeSet<(Time, Event)> =
        asked.map(|(number, request)| (request.asked, Event::Ask(number))).collect();
    figures.requests = events.len() as u64;
    events.extend(failure.map(|(at, host)| (at, Event::Fail(host))));
    let mut running = BTreeSet::new();
    while let Some((now, event)) = events.pop_first() {
        match event {
            Event::Ask(number) => {
                let request = &world.requests[number];
                for queue in &mut queues {
                    queue.at(now);
                }
                if policy.ask(number, request, &queues)? {
                    admitted.insert(number);
                    events.insert((request.window.start, Event::Begin(number)));
                }
            }
            Event::Begin(number) => {
                let request = &world.requests[number];
                let Some(begin) = policy.begin(number, request, &mut queues)? else { continue };
                let end = now + begin.wait + request.length;
                queues[begin.host].reserve(begin.wait > Span(0), end);
                running.insert(number);
                figures.cost_s += begin.cost;
                figures.preempted += u64::from(begin.wait == Span(0));
                events.insert((end, Event::End(number)));
            }
            Event::End(number) => {
                if running.remove(&number) {
                    policy.end(number)?;
                }
            }
            Event::Fail(host) => {
                for number in policy.fail(host, now)? {
                    running.remove(&number);
                    events.retain(|(_, event)| *event != Event::Begin(number));
                    figures.failed += 1;
                }
            }
        }
    }
    figures.admitted = admitted.len() as u64;
    Ok((figures, admitted))
}

fn policy(which: usize, world: &World) -> anyhow::Result<Box<dyn Policy>> {
    Ok(match which {
        0 => Box::new(Static::new(world, true)),
        1 => Box::new(Static::new(world, false)),
        2 => Box::new(Dynamic::new(world)),
        _ => Box::new(Kolo::new(world)?),
    })
}

type Failure = Option<(f64, u64)>;

/// All policies on one world. `of_both`: only what a static and the dynamic policy both admit. `failure`: when, of the whole run, and who.
fn all(world: &World, of_both: bool, failure: Failure) -> anyhow::Result<[Figures; 4]> {
    let mut only = None;
    if of_both {
        let (_, statics) = run(world, policy(0, world)?.as_mut(), None, None)?;
        let (_, dynamics) = run(world, policy(2, world)?.as_mut(), None, None)?;
        only = Some(statics.intersection(&dynamics).copied().collect());
    }
    let last = world.requests.iter().map(|request| request.window.end).max().unwrap_or(Time::ZERO);
    let failure = failure.map(|(part, who)| (Time((last.0 as f64 * part) as i64), who as usize % world.queues.len()));
    let mut figures = [Figures::default(); 4];
    for (which, figures) in figures.iter_mut().enumerate() {
        *figures = run(world, policy(which, world)?.as_mut(), only.as_ref(), failure)?.0;
    }
    Ok(figures)
}

fn point(
    value: f64,
    worlds: u64,
    progress: &Progress,
    one: impl Fn(u64) -> anyhow::Result<[Figures; 4]> + Sync,
) -> anyhow::Result<Point> {
    let mut figures = [Figures::default(); 4];
    for of_world in parallel::all(worlds, progress, one)? {
        figures.iter_mut().zip(&of_world).for_each(|(sum, of_world)| sum.add(of_world));
    }
    Ok(Point { value, figures })
}

/// What one seed says of a number of worlds.
#[derive(Clone, Copy)]
pub(super) struct Worlds<'a> {
    pub(super) seed: u64,
    pub(super) count: u64,
    pub(super) progress: &'a Progress,
}

const SETUP: Setup = Setup { hosts: 10, requests: 200, interval: 2.0, flexibility_tenths: 1 };

impl Worlds<'_> {
    fn synthetic(self, value: f64, setup: Setup, of_both: bool, failure: Option<f64>) -> anyhow::Result<Point> {
        let one = |number| {
            let failure = failure.map(|part| (part, number));
            all(&World::synthetic(self.seed, number, &setup)?, of_both, failure)
        };
        point(value, self.count, self.progress, one)
    }

    /// 1: hosts.
    pub(super) fn by_hosts(self) -> anyhow::Result<Vec<Point>> {
        let hosts = [5, 10, 25, 50, 75, 100];
        hosts.iter().map(|hosts| self.synthetic(*hosts as f64, Setup { hosts: *hosts, ..SETUP }, false, None)).collect()
    }

    /// 2: mean time between two requests.
    pub(super) fn by_interval(self) -> anyhow::Result<Vec<Point>> {
        let intervals = (1..=10).map(|step| 2.0 * f64::from(step));
        intervals.map(|interval| self.synthetic(interval, Setup { interval, ..SETUP }, false, None)).collect()
    }

    /// 3: flexibility, of what a static and the dynamic policy both admit.
    pub(super) fn by_flexibility(self) -> anyhow::Result<Vec<Point>> {
        let of = |tenths: u64| {
            self.synthetic(tenths as f64 / 10.0, Setup { flexibility_tenths: tenths, ..SETUP }, true, None)
        };
        (1..=9).map(of).collect()
    }

    /// 4: jobs of a trace by the mean time between two reservations, which have no flexibility.
    pub(super) fn by_interval_of_trace(self, hosts: usize, jobs: &[Span]) -> anyhow::Result<Vec<Point>> {
        let of = |interval: f64| {
            let setup = Setup { hosts, requests: usize::MAX, interval, flexibility_tenths: 0 };
            point(interval, self.count.min(10), self.progress, |number| {
                all(&World::of_trace(self.seed, number, jobs, &setup)?, false, None)
            })
        };
        [60.0, 180.0, 300.0, 420.0, 600.0, 780.0].into_iter().map(of).collect()
    }

    /// 5: when one host fails, of the whole run.
    pub(super) fn by_failure(self) -> anyhow::Result<Vec<Point>> {
        let parts = (1..=9).map(|tenths| f64::from(tenths) / 10.0);
        parts.map(|part| self.synthetic(part, SETUP, false, Some(part))).collect()
    }
}
