//! The source's world: hosts with an endless queue of own tasks each, and reservations that come one by one.
//!
//! Source: section 3.1 of "Dynamic grid resource reservation mechanism based on resource-reservation graph". A task that is stopped begins
//! again when the reservation ends. Invariant: all policies see the same requests, and the same tasks in the same order on every host.

use std::sync::Arc;

use broker::time::{Span, Time, Window};
use rand::RngExt;
use rand_distr::{Distribution, Exp};
use rand_xoshiro::{
    SplitMix64, Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

/// Seconds of a time unit of the synthetic load.
const UNIT_S: u64 = 100;
/// Levels of hosts and needs.
const LEVELS: u8 = 5;

/// What a reservation asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// When it is asked for.
    pub(super) asked: Time,
    /// From its earliest start to its latest end.
    pub(super) window: Window,
    /// How long it runs.
    pub(super) length: Span,
    /// The least level of its host.
    pub(super) level: u8,
}

impl Request {
    /// How much later than its window it may begin.
    pub(super) fn slack(&self) -> Span {
        Span(self.window.duration().0.saturating_sub(self.length.0))
    }
}

/// A host and its own tasks, which run one after the other.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) level: u8,
    /// Lengths of its tasks, one after the other, from the first again behind the last.
    lengths: Arc<[Span]>,
    task: usize,
    /// When the running task begins.
    start: Time,
}

impl Queue {
    fn new(level: u8, lengths: Vec<Span>) -> Queue {
        Queue { level, lengths: lengths.into(), task: 0, start: Time(0) }
    }

    fn end(&self) -> Time {
        self.start + self.lengths[self.task % self.lengths.len()]
    }

    /// Goes on to a time without reservations, and says how long the running task has run and will run.
    pub(super) fn at(&mut self, now: Time) -> (Span, Span) {
        while self.end() <= now {
            self.start = self.end();
            self.task += 1;
        }
        (now.since(self.start), self.end().since(now))
    }

    /// A reservation begins: after the running task when it waits for that, else at once. The queue goes on at its end.
    pub(super) fn reserve(&mut self, waits: bool, end: Time) {
        self.task += usize::from(waits);
        self.start = end;
    }
}

/// Requests and hosts of one run.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) requests: Vec<Request>,
    pub(super) queues: Vec<Queue>,
    /// For the choices of policies.
    pub(super) seed: u64,
}

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) hosts: usize,
    pub(super) requests: usize,
    /// Mean time between two requests, in units (of a trace: seconds).
    pub(super) interval: f64,
    /// Of the window, what the start may be put off by; in tenths.
    pub(super) flexibility_tenths: u64,
}

fn random(seed: u64, number: u64, what: u64) -> Xoshiro256PlusPlus {
    let mut mixed = SplitMix64::seed_from_u64(seed);
    let seed = mixed.next_u64() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (what << 56);
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn length(window: Span, flexibility_tenths: u64) -> Span {
    Span((window.0 * (10 - flexibility_tenths) / 10).max(1))
}

impl World {
    /// The synthetic load: tasks of 5 to 50 units, requests 1 to 20 units ahead with windows of 5 to 50.
    ///
    /// # Errors
    /// Of an interval that is not above zero.
    pub(super) fn synthetic(seed: u64, number: u64, setup: &Setup) -> anyhow::Result<World> {
        let intervals = Exp::new(1.0 / (setup.interval * UNIT_S as f64))?;
        let mut of_requests = random(seed, number, 1);
        let mut clock = 0.0;
        let mut request = |_| {
            clock += intervals.sample(&mut of_requests);
            let asked = Time(clock as i64);
            let ahead = Span(of_requests.random_range(UNIT_S..=20 * UNIT_S));
            let window = Window::starting(asked + ahead, Span(of_requests.random_range(5 * UNIT_S..=50 * UNIT_S)));
            let level = of_requests.random_range(1..=LEVELS);
            Request { asked, window, length: length(window.duration(), setup.flexibility_tenths), level }
        };
        let requests = (0..setup.requests).map(&mut request).collect();
        let queue = |host: usize| {
            let mut of_host = random(seed, number, 16 + host as u64);
            let level = of_host.random_range(1..=LEVELS);
            Queue::new(level, (0..1000).map(|_| Span(of_host.random_range(5 * UNIT_S..=50 * UNIT_S))).collect())
        };
        Ok(World { requests, queues: (0..setup.hosts).map(queue).collect(), seed: seed ^ number })
    }

    /// Jobs of a trace: every tenth is a reservation, the others are spread over the hosts; all hosts are alike.
    ///
    /// # Errors
    /// As of the synthetic load.
    pub(super) fn of_trace(seed: u64, number: u64, jobs: &[Span], setup: &Setup) -> anyhow::Result<World> {
        let intervals = Exp::new(1.0 / setup.interval)?;
        let mut of_requests = random(seed, number, 1);
        let mut clock = 0.0;
        let reserved = jobs.iter().skip(usize::try_from(number % 10)?).step_by(10);
        let request = |asked_length: &Span| {
            clock += intervals.sample(&mut of_requests);
            let window = Span(asked_length.0 * 10 / (10 - setup.flexibility_tenths).max(1));
            let asked = Time(clock as i64);
            let window = Window::starting(asked + Span(window.0 / 2 + 1), window);
            Request { asked, window, length: length(window.duration(), setup.flexibility_tenths), level: 0 }
        };
        let requests = reserved.take(setup.requests).map(request).collect();
        let others = jobs.iter().enumerate().filter(|(at, _)| at % 10 != (number % 10) as usize);
        let others: Vec<Span> = others.map(|(_, job)| *job).collect();
        let queue = |host: usize| Queue::new(0, others.iter().skip(host).step_by(setup.hosts).copied().collect());
        Ok(World { requests, queues: (0..setup.hosts).map(queue).collect(), seed: seed ^ number })
    }
}
