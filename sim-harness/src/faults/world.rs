//! The simulated grid: one queue of events in virtual time, everything in it drawn from one generator.
//!
//! Invariant: the same seed and fault give the same run, event for event. No clock is read, nothing is iterated in an
//! order that is not fixed.

use std::{collections::BTreeSet, fmt, sync::Arc};

use broker::{
    ids::RequestId,
    protocol::AttemptId,
    time::{Now, Time},
    trust::{Authorization, Trust},
};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    canary::Canary,
    clock::{self, Clock},
    credentials,
    figures::Figures,
    history::History,
    message::{Body, Message},
    names,
    network::{Fate, Network},
    node::{Node, Running, Search, State},
    options::{DISK_MS_MAX, Options, SETTLE_WITHIN_MS, one_of},
    truth::Truth,
    users::{self, Users},
    violation::Violation,
};
use crate::engine::{Disk, EventQueue, Medium, Moment};

/// Most events of a run. A run that needs more is stuck in a loop.
const STEPS_MAX: u64 = 400_000;
/// From one look at whether everything has settled to the next.
const LOOK_EVERY_MS: u64 = 500;

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A message arrives.
    Arrival(Message),
    /// A node's timer.
    Wake { node: usize, run: u64 },
    /// A question has got no answer.
    Silence { node: usize, run: u64, ask: u64 },
    /// A write has reached the disk.
    Written { node: usize, run: u64, write: u64 },
    /// Phase I is over.
    Found { node: usize, run: u64, search: Search },
    /// A sign of life is due.
    SignOfLife { node: usize, run: u64 },
    /// A node crashes in the middle of a write.
    Crash { node: usize, run: u64 },
    /// A node starts.
    Start { node: usize, run: u64 },
    /// Something goes wrong.
    Fault,
    /// The links work again.
    PartitionEnds,
    /// A slow node is as fast as before.
    SlownessEnds { node: usize },
    /// A user submits a request.
    Submit { number: u64 },
    /// A user cancels a request.
    Cancel { number: u64 },
    /// A cut that is aimed at a reservation.
    Aim,
    /// An owner takes something away.
    Shrink,
    /// A user has another node take a request over.
    TakeOver { number: u64 },
    /// The same for a user whose entry point is gone for good, unless it has been done.
    TakeOverFromGone { number: u64 },
    /// The time is over in which sites answer what they have of a request.
    LookedUp { node: usize, run: u64, request: RequestId, name: u64 },
    /// The attacker wants to take over what it has seen others request.
    Steal { node: usize, to: usize, attempt: AttemptId, authorization: Arc<Authorization> },
    /// Everything is healed.
    Heal,
    /// From time to time: has everything settled?
    Look,
}

/// The state of a run.
pub struct World {
    pub(super) options: Options,
    pub(super) canary: Option<Canary>,
    pub(super) random: Xoshiro256PlusPlus,
    /// The attacker's own.
    pub(super) attacks: Xoshiro256PlusPlus,
    /// That of losses and takeovers.
    pub(super) fates: Xoshiro256PlusPlus,
    /// That of aimed cuts, if this seed has them.
    pub(super) aims: Option<Xoshiro256PlusPlus>,
    pub(super) trust: Trust,
    queue: EventQueue<Event>,
    /// The last name given to a message, a question or a write.
    last_name: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) users: Users,
    pub(super) truth: Truth,
    pub(super) figures: Figures,
    history: History,
    violation: Option<Violation>,
    pub(super) is_healed: bool,
    is_over: bool,
}

impl World {
    /// A grid with these options, of which nothing is planned: no site starts and no user asks.
    pub(super) fn new(
        options: Options,
        [mut random, attacks, fates]: [Xoshiro256PlusPlus; 3],
        canary: Option<Canary>,
        keeps_history: bool,
    ) -> World {
        let nodes = (0..options.sites)
            .map(|index| Node {
                site: names::site(index),
                clock: Clock::draw(&mut random, &options),
                hosts: users::draw_hosts(&mut random, &options),
                hosts_at_first: Vec::new(),
                is_to_shrink: false,
                begun: BTreeSet::new(),
                dropped: BTreeSet::new(),
                credentials: credentials::of_site(&options, index),
                disk: Disk::default(),
                state: State::Absent,
                run: 0,
                disk_ms_max: one_of(&mut random, &DISK_MS_MAX),
                slow_ms: 0,
            })
            .collect();
        let mut world = World {
            trust: credentials::trust(&options),
            options,
            canary,
            random,
            attacks,
            fates,
            aims: None,
            queue: EventQueue::new(Moment::default()),
            last_name: 0,
            nodes,
            network: Network::default(),
            users: Users::new(credentials::user_keys()),
            truth: Truth::default(),
            figures: Figures { seeds: 1, ..Figures::default() },
            history: History::new(keeps_history),
            violation: None,
            is_healed: false,
            is_over: false,
        };
        let options = format!("{:?}", world.options);
        world.note(None, format_args!("{options}"));
        for node in &mut world.nodes {
            node.hosts_at_first.clone_from(&node.hosts);
        }
        world
    }

    /// Lets everything happen until it has settled or something is wrong.
    pub fn run(&mut self) {
        while self.violation.is_none() && !self.is_over && self.advance(Moment(i64::MAX)) {}
        self.users.count(&mut self.figures);
        self.figures.violations = u64::from(self.violation.is_some());
    }

    /// Lets the next event happen if it is due by `until`; whether there was one. Otherwise only time passes, up to then.
    pub(super) fn advance(&mut self, until: Moment) -> bool {
        let Some(event) = self.queue.next_until(until) else { return false };
        self.figures.steps += 1;
        self.happen(event);
        if self.figures.steps > STEPS_MAX {
            self.violate("settles", None, format!("{STEPS_MAX} events did not bring the run to its end"));
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(message) => self.arrive(message),
            Event::Wake { node, run } if self.is_run(node, run) => self.wake(node),
            Event::Silence { node, run, ask } if self.is_run(node, run) => self.give_up(node, ask),
            Event::Written { node, run, write } if self.is_run(node, run) => self.written(node, write),
            Event::Found { node, run, search } if self.is_run(node, run) => self.found(node, &search),
            Event::SignOfLife { node, run } if self.is_run(node, run) => self.sign_of_life(node),
            Event::Start { node, run } if self.is_run(node, run) => self.start(node),
            Event::LookedUp { node, run, request, name } if self.is_run(node, run) => {
                self.looked_up(node, &request, name);
            }
            Event::Crash { node, run } if self.is_run(node, run) && !self.is_healed => self.crash(node),
            Event::Wake { .. }
            | Event::Silence { .. }
            | Event::Written { .. }
            | Event::Found { .. }
            | Event::SignOfLife { .. }
            | Event::Start { .. }
            | Event::LookedUp { .. }
            | Event::Crash { .. } => {}
            Event::Aim => self.take_aim(),
            Event::Shrink => self.stop_to_shrink(),
            Event::TakeOver { number } => self.go_to_another(number, false),
            Event::TakeOverFromGone { number } => self.go_to_another(number, true),
            Event::Steal { node, to, attempt, authorization } => self.steal(node, to, attempt, authorization),
            Event::Fault => self.inject_fault(),
            Event::PartitionEnds => {
                self.note(None, format_args!("the links work again"));
                self.network.heal();
            }
            Event::SlownessEnds { node } => self.nodes[node].slow_ms = 0,
            Event::Submit { number } => self.submit(number),
            Event::Cancel { number } => self.cancel(number),
            Event::Heal => self.heal(),
            Event::Look => self.look(),
        }
    }

    fn is_run(&self, node: usize, run: u64) -> bool {
        self.nodes[node].run == run
    }

    /// Plans an event.
    pub(super) fn at(&mut self, at: Moment, event: Event) {
        self.queue.plan(at, event);
    }

    /// Plans an event for some milliseconds from now.
    pub(super) fn after(&mut self, after_ms: u64, event: Event) {
        self.at(self.now().plus_ms(after_ms), event);
    }

    /// Virtual time.
    pub(super) fn now(&self) -> Moment {
        self.queue.now()
    }

    /// The true wall time.
    pub(super) fn utc(&self) -> Time {
        clock::true_utc(self.now())
    }

    /// What the clocks of a node show.
    pub(super) fn clock(&self, node: usize) -> Now {
        self.nodes[node].clock.now(self.now())
    }

    /// Notes what happened to a request, or (without one) to the grid.
    pub(super) fn note(&mut self, request: Option<&RequestId>, text: fmt::Arguments<'_>) {
        self.history.note(self.queue.now(), request, text);
    }

    /// A name that nothing else has.
    pub(super) fn name(&mut self) -> u64 {
        self.last_name += 1;
        self.last_name
    }

    /// What happened so far to a request and to the grid as a whole, or everything, for people.
    pub fn history(&self, request: Option<&RequestId>) -> String {
        self.history.of(request)
    }

    /// The first invariant that did not hold.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The memory of a node, if it runs.
    pub(super) fn running(&mut self, node: usize) -> Option<&mut Running> {
        self.nodes[node].running_mut()
    }

    /// Notes the first thing that is wrong; the run ends with it.
    pub(super) fn violate(&mut self, invariant: &'static str, request: Option<&RequestId>, what: String) {
        if self.violation.is_none() {
            self.note(request, format_args!("VIOLATION: {what}"));
            self.violation = Some(Violation { invariant, request: request.cloned(), what });
        }
    }

    /// Gives a message to the network.
    pub(super) fn send(&mut self, from: usize, to: usize, body: Body) {
        let id = self.name();
        let message = Message { id, run: self.nodes[from].run, from, to, body };
        self.figures.sent += 1;
        let loss_percent = message.body.loss_percent(&self.options);
        let fate = self.network.fate(&mut self.random, (&self.options, loss_percent), (from, to), self.is_healed);
        match fate {
            Fate::Lost => {
                self.figures.lost += 1;
                self.note_message("lost: ", &message);
            }
            Fate::Arrives { after_ms, again_after_ms } => {
                let slow_ms = self.nodes[from].slow_ms + if from == to { 0 } else { self.nodes[to].slow_ms };
                if let Some(again) = again_after_ms {
                    self.figures.repeated += 1;
                    self.after(again, Event::Arrival(message.clone()));
                }
                self.after(after_ms + slow_ms, Event::Arrival(message));
            }
        }
    }

    pub(super) fn note_message(&mut self, prefix: &str, message: &Message) {
        if let Some(request) = message.body.request() {
            self.note(Some(request), format_args!("{prefix}{message}"));
        }
    }

    /// The faults are over: every node that is not gone for good runs again, and everything has to settle.
    pub(super) fn heal(&mut self) {
        self.note(None, format_args!("everything is healed"));
        self.is_healed = true;
        self.network.heal();
        for node in 0..self.nodes.len() {
            self.nodes[node].slow_ms = 0;
            if matches!(self.nodes[node].state, State::Down | State::Absent) {
                self.start(node);
            }
        }
        self.plan_last_takeovers();
        self.after(LOOK_EVERY_MS, Event::Look);
    }

    fn look(&mut self) {
        let deadline = self.options.faulty_ms + SETTLE_WITHIN_MS;
        match self.unsettled() {
            None => {
                self.is_over = true;
                self.check_books();
            }
            Some((request, what)) if self.now().ms() >= deadline => self.violate("settles", request.as_ref(), what),
            Some(_) => self.after(LOOK_EVERY_MS, Event::Look),
        }
    }
}
