//! Ends nodes while the load runs and starts them again, measures how they recover, and lets new ones join meanwhile.
//!
//! Which node goes, how, after what pause and for how long comes from the seed. Invariant: at most a third of the nodes
//! is down at the same time, and all are up when [`Crashes::run`] returns without an error.

use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rand::{RngExt, seq::IteratorRandom as _};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use super::newcomers::{Newcomers, THROUGH};
use crate::grid::nodes::{
    cluster::{Cluster, Node},
    wait::{Look, Wait},
    wire::{Booking, BookingState},
};

/// How long a node may take, after its restart, to settle what its end left open: a request's patience, and a hold's
/// longest life.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at a node that settles; the times found have this resolution.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Requests of a node that are looked at: more than can be under way there.
const REQUESTS_LOOKED_AT: usize = 256;

/// How nodes go and come.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// How often a node goes, at most.
    pub times: usize,
    /// Whether some leave in order (SIGTERM) instead of being killed.
    pub some_leave: bool,
    /// A new node joins first, and then at every so many-th event, while there are any.
    pub joins_every: Option<usize>,
    /// Pause between two, in milliseconds.
    pub pause_ms: RangeInclusive<u64>,
    /// How long a node stays away, in milliseconds.
    pub down_ms: RangeInclusive<u64>,
}

impl Pattern {
    /// Kills in quick succession.
    pub fn kills(times: usize) -> Pattern {
        Pattern { times, some_leave: false, joins_every: None, pause_ms: 100..=400, down_ms: 50..=1000 }
    }

    /// The joining, going and coming back of a restless grid, for as long as the run lasts.
    pub fn churn() -> Pattern {
        Pattern { times: usize::MAX, some_leave: true, joins_every: Some(3), pause_ms: 500..=2000, down_ms: 500..=5000 }
    }
}

/// One absence of a node.
#[derive(Debug, Clone, Copy)]
pub struct Recovery {
    /// Whether the node was killed; otherwise it left in order.
    pub was_killed: bool,
    /// From the start of the new process until its API answered.
    pub start: Duration,
    /// From the end of the old process until the API answered again.
    pub answers: Duration,
    /// From the end of the old process until everything that it had left open was settled; none when the next end of the
    /// same node came before.
    pub settled: Option<Duration>,
}

/// The absences of a run.
pub struct Crashes<'a> {
    cluster: &'a Cluster,
    pattern: Pattern,
    newcomers: &'a Newcomers<'a>,
    down: Mutex<BTreeSet<usize>>,
    up_again: Condvar,
    /// How often each node has ended, so that a thread that watches one of its lives sees the next end.
    gone: Vec<AtomicU64>,
    recoveries: Mutex<Vec<Recovery>>,
    error: Mutex<Option<anyhow::Error>>,
}

impl<'a> Crashes<'a> {
    /// Nothing has happened yet.
    pub fn new(cluster: &'a Cluster, pattern: Pattern, newcomers: &'a Newcomers<'a>) -> Crashes<'a> {
        Crashes {
            cluster,
            pattern,
            newcomers,
            down: Mutex::default(),
            up_again: Condvar::new(),
            gone: (0..cluster.nodes.room()).map(|_| AtomicU64::new(0)).collect(),
            recoveries: Mutex::default(),
            error: Mutex::default(),
        }
    }

    /// Ends and revives nodes and lets new ones join until `over`; returns when all are up and have settled what they had
    /// left open.
    pub fn run(self, seed: u64, over: &AtomicBool, progress: impl Fn(usize)) -> anyhow::Result<Vec<Recovery>> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        thread::scope(|scope| {
            for done in 0..self.pattern.times {
                thread::sleep(Duration::from_millis(random.random_range(self.pattern.pause_ms.clone())));
                if over.load(Ordering::Relaxed) || self.has_failed() || self.cluster.check().is_err() {
                    break;
                }
                let is_join = self.pattern.joins_every.is_some_and(|every| done % every == 0);
                if is_join && self.newcomers.may_come() {
                    let (this, through) = (&self, self.draw_up(&mut random));
                    scope.spawn(move || this.note(this.newcomers.join(&through)));
                    continue;
                }
                let (index, life) = self.next_victim(&mut random);
                let down = Duration::from_millis(random.random_range(self.pattern.down_ms.clone()));
                let is_kill = !self.pattern.some_leave || random.random_bool(0.5);
                let this = &self;
                scope.spawn(move || {
                    let end = this.end(index, is_kill);
                    this.note(end.and_then(|ended| this.recover(index, life, ended, down, is_kill)));
                    this.comes_up(index, life);
                });
                progress(done + 1);
            }
        });
        match self.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => {
                self.cluster.check()?;
                Ok(self.recoveries.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Ends the process at `index`; the moment at which it was gone.
    fn end(&self, index: usize, is_kill: bool) -> anyhow::Result<Instant> {
        if is_kill {
            self.cluster.nodes[index].process.kill();
            return Ok(Instant::now());
        }
        self.cluster.leave(index)
    }

    /// Remembers the first thing that went wrong.
    fn note(&self, result: anyhow::Result<()>) {
        if let Err(error) = result {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn has_failed(&self) -> bool {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Draws some nodes that are up.
    fn draw_up(&self, random: &mut Xoshiro256PlusPlus) -> Vec<usize> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        (0..self.newcomers.arrived()).filter(|index| !down.contains(index)).sample(random, THROUGH)
    }

    /// Draws a node that is up, marks it as down, and counts its lives. All under one lock: the thread that watched its last life
    /// must not take the mark away in between, or the node could be ended twice at once.
    fn next_victim(&self, random: &mut Xoshiro256PlusPlus) -> (usize, u64) {
        let nodes = self.newcomers.arrived();
        let down_max = (nodes / 3).max(1);
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let mut down =
            self.up_again.wait_while(down, |down| down.len() >= down_max).unwrap_or_else(PoisonError::into_inner);
        loop {
            let index = random.random_range(0..nodes);
            if down.insert(index) {
                return (index, self.gone[index].fetch_add(1, Ordering::Relaxed) + 1);
            }
        }
    }

    fn comes_up(&self, index: usize, life: u64) {
        // A later end of the same node has marked it again, and is not undone by the end of watching this life.
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if self.gone[index].load(Ordering::Relaxed) == life {
            down.remove(&index);
            self.up_again.notify_one();
        }
    }

    fn recover(&self, index: usize, life: u64, ended: Instant, down: Duration, was_killed: bool) -> anyhow::Result<()> {
        thread::sleep(down);
        let started = Instant::now();
        self.cluster.revive(index)?;
        let (start, answers) = (started.elapsed(), ended.elapsed());
        let node = &self.cluster.nodes[index];
        let open = left_open(node);
        self.comes_up(index, life);
        let settled = self.settled(node, index, life, open)?.then(|| ended.elapsed());
        let recovery = Recovery { was_killed, start, answers, settled };
        self.recoveries.lock().unwrap_or_else(PoisonError::into_inner).push(recovery);
        Ok(())
    }

    /// Waits until `open` is settled. False when the node was ended again before.
    fn settled(&self, node: &Node, index: usize, life: u64, mut open: Option<Open>) -> anyhow::Result<bool> {
        let what = format!("{} to settle what its end left open", node.name);
        let wait = Wait { what: &what, limit: SETTLE_LIMIT, pause: LOOK_PAUSE };
        let is_gone_again = || self.gone[index].load(Ordering::Relaxed) != life;
        wait.until(
            || self.cluster.check(),
            || {
                if is_gone_again() {
                    return Ok(Look::Done(false));
                }
                match &mut open {
                    // Not even listed yet: the node was too busy to answer.
                    None => open = left_open(node),
                    Some(open) => open.look_again(node),
                }
                Ok(match &open {
                    Some(open) if open.is_empty() => Look::Done(true),
                    Some(open) => Look::NotYet(format!("{open:?}")),
                    None => Look::NotYet("it does not answer".to_owned()),
                })
            },
        )
    }
}

/// What is not settled at a node.
#[derive(Debug)]
struct Open {
    /// Requests of which it is the entry point.
    requests: BTreeSet<String>,
    /// Requests of which it has bookings, without knowing the outcome.
    bookings: BTreeSet<String>,
}

fn left_open(node: &Node) -> Option<Open> {
    let requests = node.client().requests(REQUESTS_LOOKED_AT).ok()?;
    let ledger = node.client().ledger().ok()?;
    let under_way = requests.into_iter().filter(|view| !view.state.is_final()).map(|view| view.id);
    Some(Open { requests: under_way.collect(), bookings: unsettled_bookings(&ledger.bookings) })
}

fn unsettled_bookings(bookings: &[Booking]) -> BTreeSet<String> {
    let unsettled = bookings.iter().filter(|booking| booking.state == BookingState::Confirmed && !booking.settled);
    unsettled.map(|booking| booking.request.clone()).collect()
}

impl Open {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.bookings.is_empty()
    }

    /// Forgets what is settled by now. A call that fails changes nothing.
    fn look_again(&mut self, node: &Node) {
        self.requests.retain(|id| node.client().find(id).map_or(true, |view| !view.state.is_final()));
        if !self.bookings.is_empty()
            && let Ok(ledger) = node.client().ledger()
        {
            let unsettled = unsettled_bookings(&ledger.bookings);
            self.bookings.retain(|request| unsettled.contains(request));
        }
    }
}
