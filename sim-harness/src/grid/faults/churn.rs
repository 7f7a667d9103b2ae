//! Ends nodes while the load runs and starts them again, measures how they recover, and lets brand-new sites join meanwhile, with
//! hosts and keys of their own.
//!
//! Which node goes, how, after what pause and for how long comes from the seed. Invariant: at most a third of the nodes
//! is down at the same time, new sites join one after the other, and all nodes are up when [`Churn::run`] returns without an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rand::{RngExt, seq::IteratorRandom as _};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use serde::Serialize;
use sim_kit::stats::Percentiles;

use crate::grid::{
    load::answer::{Answer, times_ms},
    nodes::{
        cluster::{Cluster, Node},
        knowledge,
        wait::{Wait, locked},
        wire::BookingState,
    },
};

/// How long a node may take, after its restart, to settle what its end left open: a request's patience, and a hold's
/// longest life.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at a node that settles; the times found have this resolution.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Requests of a node that are looked at: more than can be under way there.
const REQUESTS_LOOKED_AT: usize = 256;
/// Nodes through which a new site looks for the grid: some may be down just now.
const THROUGH: usize = 3;

/// How nodes go and come.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// How often something happens, at most.
    times: usize,
    /// Whether some leave in order (SIGTERM) instead of being killed.
    some_leave: bool,
    /// A new site joins first, and then at every so many-th event, while there are any.
    joins_every: Option<usize>,
    /// Pause between two events, in milliseconds.
    pause_ms: RangeInclusive<u64>,
    /// How long a node stays away, in milliseconds.
    down_ms: RangeInclusive<u64>,
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
struct Recovery {
    /// Whether the node was killed; otherwise it left in order.
    was_killed: bool,
    /// From the start of the new process until its API answered.
    start: Duration,
    /// From the end of the old process until the API answered again.
    answers: Duration,
    /// From the end of the old process until everything that it had left open was settled; none when the next end of the
    /// same node came before.
    settled: Option<Duration>,
}

/// How one site joined.
#[derive(Debug, Clone)]
struct Join {
    position: usize,
    site: String,
    /// From its start, the invitation included, until its API answered.
    answers: Duration,
    /// From then until it had met the hosts of all sites that were there when it came.
    knows: Duration,
}

/// Nodes that go and come.
pub struct Churn<'a> {
    cluster: &'a Cluster,
    pattern: Pattern,
    state: Mutex<State>,
    /// A node is up again.
    up_again: Condvar,
}

#[derive(Default)]
struct State {
    down: BTreeSet<usize>,
    /// How often each node has ended, so that a thread that watches one of its lives sees the next end.
    ends: BTreeMap<usize, u64>,
    /// Nodes that are part of the grid, from the first on: all but one that is just joining.
    arrived: usize,
    is_joining: bool,
    churned: Churned,
    /// The first thing that went wrong.
    error: Option<anyhow::Error>,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Churned {
    recoveries: Vec<Recovery>,
    joins: Vec<Join>,
}

impl<'a> Churn<'a> {
    /// Nothing has happened yet. Those nodes that have not been started are still to come.
    pub fn new(cluster: &'a Cluster, pattern: Pattern) -> Churn<'a> {
        let state = State { arrived: cluster.len(), ..State::default() };
        Churn { cluster, pattern, state: Mutex::new(state), up_again: Condvar::new() }
    }

    /// Ends and revives nodes and lets new sites join until `over`; returns when all are up and have settled what they had
    /// left open.
    pub fn run(self, seed: u64, over: &AtomicBool, progress: impl Fn(usize)) -> anyhow::Result<Churned> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let this = &self;
        thread::scope(|scope| {
            for done in 0..this.pattern.times {
                thread::sleep(Duration::from_millis(random.random_range(this.pattern.pause_ms.clone())));
                let has_failed = locked(&this.state).error.is_some();
                if over.load(Ordering::Relaxed) || has_failed || this.cluster.check().is_err() {
                    break;
                }
                let is_join = this.pattern.joins_every.is_some_and(|every| done % every == 0);
                if is_join && this.may_come() {
                    let through = this.draw_up(&mut random);
                    scope.spawn(move || this.note(this.join(&through)));
                    continue;
                }
                let (index, life) = this.next_victim(&mut random);
                let down = Duration::from_millis(random.random_range(this.pattern.down_ms.clone()));
                let is_kill = !this.pattern.some_leave || random.random_bool(0.5);
                scope.spawn(move || {
                    this.note(this.go_and_come_back(index, life, is_kill, down));
                    this.comes_up(index, life);
                });
                progress(done + 1);
            }
        });
        let State { error, churned, .. } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        error.map_or(Ok(()), Err)?;
        self.cluster.check()?;
        Ok(churned)
    }

    fn note(&self, result: anyhow::Result<()>) {
        if let Err(error) = result {
            locked(&self.state).error.get_or_insert(error);
        }
    }

    /// Whether a site is still to come and none is joining just now; then the next one counts as joining.
    fn may_come(&self) -> bool {
        let mut state = locked(&self.state);
        let may_come = state.arrived < self.cluster.launch.nodes.len() && !state.is_joining;
        state.is_joining |= may_come;
        may_come
    }

    /// Draws some nodes that are up; their addresses.
    fn draw_up(&self, random: &mut Xoshiro256PlusPlus) -> Vec<String> {
        let state = locked(&self.state);
        let drawn = (0..state.arrived).filter(|index| !state.down.contains(index)).sample(random, THROUGH);
        drawn.into_iter().map(|index| self.cluster.node(index).address.clone()).collect()
    }

    /// Lets the next site join, which finds the grid at `bootstrap`.
    fn join(&self, bootstrap: &[String]) -> anyhow::Result<()> {
        let there: BTreeSet<String> = self.cluster.nodes().iter().map(|node| node.site.clone()).collect();
        let position = there.len();
        let begun = Instant::now();
        self.cluster.grow(position + 1, bootstrap, |_| ())?;
        let answers = begun.elapsed();
        knowledge::of_newcomer(self.cluster, position, &there)?;
        let knows = begun.elapsed().saturating_sub(answers);
        let site = self.cluster.node(position).site.clone();
        let mut state = locked(&self.state);
        state.churned.joins.push(Join { position, site, answers, knows });
        state.arrived = position + 1;
        state.is_joining = false;
        Ok(())
    }

    /// Draws a node that is up, marks it as down, and counts its lives. All under one lock: the thread that watched its last life
    /// must not take the mark away in between, or the node could be ended twice at once.
    fn next_victim(&self, random: &mut Xoshiro256PlusPlus) -> (usize, u64) {
        let too_many = |state: &mut State| state.down.len() >= (state.arrived / 3).max(1);
        let mut state = self.up_again.wait_while(locked(&self.state), too_many).unwrap_or_else(PoisonError::into_inner);
        loop {
            let index = random.random_range(0..state.arrived);
            if state.down.insert(index) {
                let ends = state.ends.entry(index).or_default();
                *ends += 1;
                return (index, *ends);
            }
        }
    }

    /// Whether `life` is the present life of a node, counted by its ends.
    fn is_present(&self, index: usize, life: u64) -> bool {
        locked(&self.state).ends.get(&index) == Some(&life)
    }

    fn comes_up(&self, index: usize, life: u64) {
        let mut state = locked(&self.state);
        // A later end of the same node has marked it again, and is not undone by the end of watching this life.
        if state.ends.get(&index) == Some(&life) {
            state.down.remove(&index);
            self.up_again.notify_one();
        }
    }

    fn go_and_come_back(&self, index: usize, life: u64, is_kill: bool, down: Duration) -> anyhow::Result<()> {
        let node = self.cluster.node(index);
        let ended = if is_kill {
            node.process.kill();
            Instant::now()
        } else {
            self.cluster.leave(index)?
        };
        thread::sleep(down);
        let started = Instant::now();
        self.cluster.revive(index)?;
        let (start, answers) = (started.elapsed(), ended.elapsed());
        let open = Open::at(&node);
        self.comes_up(index, life);
        let settled = self.is_settled(&node, life, open)?.then(|| ended.elapsed());
        locked(&self.state).churned.recoveries.push(Recovery { was_killed: is_kill, start, answers, settled });
        Ok(())
    }

    /// Waits until `open` is settled. False when the node was ended again before.
    fn is_settled(&self, node: &Node, life: u64, mut open: Option<Open>) -> anyhow::Result<bool> {
        let what = format!("{} to settle what its end left open", node.name);
        let look = || {
            if !self.is_present(node.position, life) {
                return Ok(false);
            }
            match &mut open {
                // Not even listed yet: the node was too busy to answer.
                None => open = Open::at(node),
                Some(open) => open.look_again(node),
            }
            match &open {
                Some(open) if open.requests.is_empty() && open.bookings.is_empty() => Ok(true),
                Some(open) => Err(format!("{open:?}")),
                None => Err("it does not answer".to_owned()),
            }
        };
        Wait { what: &what, limit: SETTLE_LIMIT, pause: LOOK_PAUSE }.until(|| self.cluster.check(), look)
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

impl Open {
    /// What is open at a node now; `None` when it does not answer.
    fn at(node: &Node) -> Option<Open> {
        let requests = node.client().requests(REQUESTS_LOOKED_AT).ok()?;
        let under_way = requests.into_iter().filter(|view| !view.state.is_final()).map(|view| view.id);
        Some(Open { requests: under_way.collect(), bookings: unsettled_bookings(node)? })
    }

    /// Forgets what is settled by now. A call that fails changes nothing.
    fn look_again(&mut self, node: &Node) {
        self.requests.retain(|id| node.client().find(id).map_or(true, |view| !view.state.is_final()));
        if !self.bookings.is_empty()
            && let Some(unsettled) = unsettled_bookings(node)
        {
            self.bookings.retain(|request| unsettled.contains(request));
        }
    }
}

fn unsettled_bookings(node: &Node) -> Option<BTreeSet<String>> {
    let bookings = node.client().ledger().ok()?.bookings.into_iter();
    let unsettled = bookings.filter(|booking| booking.state == BookingState::Confirmed && !booking.settled);
    Some(unsettled.map(|booking| booking.request).collect())
}

/// Absences of nodes.
#[derive(Debug, Clone, Serialize)]
pub struct CrashFigures {
    pub kills: usize,
    /// Processes that left in order.
    pub leaves: usize,
    pub recovery_ms: RecoveryTimes,
}

/// Times of recoveries.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryTimes {
    /// From the start of the new process until its API answered.
    pub start: Option<Percentiles>,
    /// From the end of the old process until the API answered again, the time that it was kept down included.
    pub answers: Option<Percentiles>,
    /// From the end of the old process until everything that it had left open was settled.
    pub settled: Option<Percentiles>,
    /// Recoveries that the next end of the same node cut short.
    pub cut_short: usize,
}

/// Sites that joined, and what became of them.
#[derive(Debug, Clone, Serialize)]
pub struct JoinFigures {
    /// Brand-new sites that joined.
    pub joined: usize,
    /// Requests that came in through one of them.
    pub asked_at_newcomers: usize,
    /// Reservations with hosts of theirs.
    pub reserved_at_newcomers: usize,
    pub join_ms: JoinTimes,
}

/// Times of the joining.
#[derive(Debug, Clone, Serialize)]
pub struct JoinTimes {
    /// From the start, the invitation included, until the API answered.
    pub answers: Option<Percentiles>,
    /// From then until the hosts of all sites that were there before were known.
    pub knows_grid: Option<Percentiles>,
}

impl Churned {
    /// The absences.
    pub fn crash_figures(&self) -> CrashFigures {
        let recoveries = || self.recoveries.iter();
        let kills = recoveries().filter(|recovery| recovery.was_killed).count();
        CrashFigures {
            kills,
            leaves: self.recoveries.len() - kills,
            recovery_ms: RecoveryTimes {
                start: times_ms(recoveries().map(|recovery| recovery.start)),
                answers: times_ms(recoveries().map(|recovery| recovery.answers)),
                settled: times_ms(recoveries().filter_map(|recovery| recovery.settled)),
                cut_short: recoveries().filter(|recovery| recovery.settled.is_none()).count(),
            },
        }
    }

    /// How sites joined and what users saw of them.
    pub fn join_figures(&self, answers: &[Answer]) -> JoinFigures {
        let positions: BTreeSet<usize> = self.joins.iter().map(|join| join.position).collect();
        let sites: BTreeSet<&str> = self.joins.iter().map(|join| join.site.as_str()).collect();
        let has_theirs = |answer: &&Answer| {
            answer.reservation().is_some_and(|found| found.hosts.iter().any(|host| sites.contains(host.site.as_str())))
        };
        JoinFigures {
            joined: self.joins.len(),
            asked_at_newcomers: answers.iter().filter(|answer| positions.contains(&answer.entry_point.0)).count(),
            reserved_at_newcomers: answers.iter().filter(has_theirs).count(),
            join_ms: JoinTimes {
                answers: times_ms(self.joins.iter().map(|join| join.answers)),
                knows_grid: times_ms(self.joins.iter().map(|join| join.knows)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grid::load::answer::tests::answer;

    #[test]
    fn requests_through_newcomers_and_reservations_with_their_hosts_are_counted_apart() {
        let (start, knows) = (Duration::from_millis(30), Duration::from_millis(700));
        let join = |position, site: &str| Join { position, site: site.to_owned(), answers: start, knows };
        let answer = |entry_point: usize, state: &str, site: &str| {
            let hosts = json!([{"site": site, "site_name": "-", "host": "h1", "end": 200, "amounts": {"cpu": 5}}]);
            let answer = answer(state, &json!({"start": 0, "end": 60, "hosts": hosts}), 1);
            Answer { entry_point: (entry_point, String::new()), ..answer }
        };
        let answers = [answer(4, "confirmed", "A"), answer(0, "confirmed", "N"), answer(0, "cancelled", "N")];
        let churned = Churned { recoveries: Vec::new(), joins: vec![join(4, "N"), join(5, "M")] };
        let figures = churned.join_figures(&answers);
        assert_eq!((figures.joined, figures.asked_at_newcomers, figures.reserved_at_newcomers), (2, 1, 1));
        assert_eq!(figures.join_ms.knows_grid.map(|times| times.max), Some(700.0));
    }

    #[test]
    fn kills_leaves_and_recoveries_cut_short_are_told_apart() {
        let recovery = |was_killed, settled| {
            let [start, answers] = [10, 60].map(Duration::from_millis);
            Recovery { was_killed, start, answers, settled }
        };
        let recoveries = vec![recovery(true, Some(Duration::from_millis(90))), recovery(false, None)];
        let figures = Churned { recoveries, joins: Vec::new() }.crash_figures();
        assert_eq!((figures.kills, figures.leaves, figures.recovery_ms.cut_short), (1, 1, 1));
        assert_eq!(figures.recovery_ms.settled.map(|times| times.max), Some(90.0));
    }
}
