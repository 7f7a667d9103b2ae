//! The simulated grid: one queue of events in virtual time, everything in it drawn from one generator.
//!
//! Invariant: the same seed and fault give the same run, event for event. No clock is read, nothing is iterated in an
//! order that is not fixed.

use std::{collections::BTreeSet, sync::Arc};

use broker::{
    ids::{RequestId, SiteId},
    ledger,
    protocol::{AttemptId, HoldRequest, SiteRequest},
    trust::{Authorization, Trust},
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    aimed,
    canary::Canary,
    checks::{Violation, truth::Truth},
    clock::Clock,
    credentials,
    figures::Figures,
    history::History,
    message::{Body, Message, Question},
    names,
    network::{Fate, Network},
    node::{Disk, Node, Running, State},
    options::{DISK_MS_MAX, Options, SETTLE_WITHIN_MS, one_of},
    users::Users,
};
use crate::engine::{EventQueue, Moment};

/// Most events of a run. A run that needs more is stuck in a loop.
const STEPS_MAX: u64 = 400_000;
/// Makes of a seed that of what is lost.
const FATES: u64 = 0x5eed_0f10_55e5;
/// Makes of a seed that of users that go from node to node.
const WANDERINGS: u64 = 0x0a11_0f17_5eed;
/// Of so many seeds one has such users. Not drawn, so that all other seeds run as they would.
const WANDERING_EVERY: u64 = 16;
/// How often it is looked whether everything has settled.
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
    Found { node: usize, run: u64, search: super::discovery::Search },
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
    /// A user asks.
    Submit { number: u64 },
    /// A user takes a request back.
    Cancel { number: u64 },
    /// Somebody who knows everything does the worst.
    Aim,
    /// An owner takes something away.
    Shrink,
    /// A user goes to another node with a request.
    TakeOver { number: u64 },
    /// A user whose entry point is gone for good goes to another node, unless that has been done.
    TakeOverFromGone { number: u64 },
    /// Sites have had the time to tell what they have of a request.
    LookedUp { node: usize, run: u64, request: RequestId, name: u64 },
    /// The attacker tries to take over what it has seen others ask for.
    Steal { node: usize, to: usize, attempt: AttemptId, authorization: Arc<Authorization> },
    /// Everything is healed.
    Heal,
    /// Has everything settled?
    Look,
}

/// See the module's documentation.
pub struct World {
    pub(super) options: Options,
    pub(super) canary: Option<Canary>,
    pub(super) random: Xoshiro256PlusPlus,
    /// The attacker's own.
    pub(super) attacks: Xoshiro256PlusPlus,
    /// That of what is lost and taken over.
    pub(super) fates: Xoshiro256PlusPlus,
    /// That of aimed cuts, if this seed has them.
    pub(super) aims: Option<Xoshiro256PlusPlus>,
    pub(super) trust: Trust,
    pub(super) now: u64,
    queue: EventQueue<Event>,
    /// Names everything that needs a name of its own.
    last_name: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) users: Users,
    pub(super) truth: Truth,
    pub(super) figures: Figures,
    pub(super) history: History,
    pub(super) violation: Option<Violation>,
    pub(super) is_healed: bool,
    is_over: bool,
}

impl World {
    /// The grid of a seed, before anything has happened.
    pub fn new(seed: u64, canary: Option<Canary>, keeps_history: bool) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut options = Options::draw(&mut random);
        let mut attacks = Xoshiro256PlusPlus::seed_from_u64(!seed);
        options.draw_trust(&mut attacks);
        let mut fates = Xoshiro256PlusPlus::seed_from_u64(seed ^ FATES);
        options.draw_losses(&mut fates);
        let mut aims = aimed::aims_of(seed);
        if let Some(aims) = &mut aims {
            options.aim(aims);
        }
        let mut world = World::bare(options, [random, attacks, fates], canary, keeps_history);
        world.plan_ahead();
        world.plan_losses();
        if aims.is_some() {
            world.aims = aims;
            world.plan_aim();
        }
        if seed % WANDERING_EVERY == WANDERING_EVERY / 4 {
            world.plan_wanderings(Xoshiro256PlusPlus::seed_from_u64(seed ^ WANDERINGS));
        }
        world
    }

    /// A grid with these options, of which nothing is planned: no site starts and no user asks.
    pub(super) fn bare(
        options: Options,
        [mut random, attacks, fates]: [Xoshiro256PlusPlus; 3],
        canary: Option<Canary>,
        keeps_history: bool,
    ) -> World {
        let nodes = (0..options.sites)
            .map(|index| Node {
                site: names::site(index),
                clock: Clock::draw(&mut random, &options),
                hosts: super::users::draw_hosts(&mut random, &options),
                hosts_at_first: Vec::new(),
                is_to_shrink: false,
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
            now: 0,
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
        world.history.note(0, None, format_args!("{options}"));
        for node in &mut world.nodes {
            node.hosts_at_first.clone_from(&node.hosts);
        }
        world
    }

    /// What is known beforehand: who joins when, what users do, and when the faults end.
    fn plan_ahead(&mut self) {
        let (sites, faulty_ms) = (self.options.sites, self.options.faulty_ms);
        for node in 0..sites {
            // Entry points are never late: users have somewhere to go.
            let is_late = node >= self.options.entry_points && node + self.options.late_sites >= sites;
            let at = if is_late { self.random.random_range(0..faulty_ms) } else { 0 };
            self.at(at, Event::Start { node, run: 0 });
        }
        for number in 0..self.options.requests {
            let at = self.random.random_range(50..faulty_ms);
            self.at(at, Event::Submit { number });
            if self.random.random_range(0..100) < self.options.cancel_percent {
                let after = self.random.random_range(1..8_000);
                self.at(at + after, Event::Cancel { number });
            }
        }
        self.at(200, Event::Fault);
        self.at(faulty_ms, Event::Heal);
    }

    /// Lets everything happen until it has settled or something is wrong.
    pub fn run(&mut self) {
        while self.violation.is_none() && !self.is_over && self.advance(u64::MAX) {}
        self.users.count(&mut self.figures);
        self.figures.violations = u64::from(self.violation.is_some());
    }

    /// Lets the next event happen if it is due by `until`; whether there was one. Otherwise only time passes, up to then.
    pub(super) fn advance(&mut self, until: u64) -> bool {
        let next = self.queue.next_until(Moment::of_ms(until));
        self.now = self.queue.now().ms();
        let Some(event) = next else { return false };
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
            Event::Silence { node, run, ask } if self.is_run(node, run) => self.hear_silence(node, ask),
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
                self.history.note(self.now, None, format_args!("the links work again"));
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
    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.queue.plan(Moment::of_ms(at), event);
    }

    /// A name that nothing else has.
    pub(super) fn name(&mut self) -> u64 {
        self.last_name += 1;
        self.last_name
    }

    /// The node's memory, if it runs.
    pub(super) fn running(&mut self, node: usize) -> Option<&mut Running> {
        self.nodes[node].running_mut()
    }

    /// Notes the first thing that is wrong; the run ends with it.
    pub(super) fn violate(&mut self, invariant: &'static str, request: Option<&RequestId>, what: String) {
        if self.violation.is_none() {
            self.history.note(self.now, request, format_args!("VIOLATION: {what}"));
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
                    self.at(self.now + again, Event::Arrival(message.clone()));
                }
                self.at(self.now + after_ms + slow_ms, Event::Arrival(message));
            }
        }
    }

    fn note_message(&mut self, prefix: &str, message: &Message) {
        if let Some(request) = message.body.request() {
            self.history.note(self.now, Some(request), format_args!("{prefix}{message}"));
        }
    }

    fn arrive(&mut self, message: Message) {
        let Message { id, run, from, to, .. } = message;
        let dies_with_sender = from == to && run != self.nodes[from].run;
        if self.nodes[to].running().is_none() || dies_with_sender {
            self.note_message("nobody there: ", &message);
            return;
        }
        self.note_message("", &message);
        match message.body {
            Body::Ask { ask, question, request } => self.arrive_question(to, (id, from, ask), question, request),
            Body::Answer { ask, question, answer } => self.arrive_answer(to, from, ask, &question, answer),
            Body::Gossip(gossip) => self.hear_gossip(to, from, &gossip),
            Body::Departure => {
                if let Some(running) = self.running(to) {
                    running.views.remove(&from);
                }
            }
            Body::Fetch => self.answer_fetch(to, from),
            Body::Schedules(told) => self.hear_schedules(to, from, &told.0, &told.1),
        }
    }

    fn arrive_question(
        &mut self,
        node: usize,
        (message, from, ask): (u64, usize, u64),
        question: Question,
        mut request: SiteRequest,
    ) {
        if let SiteRequest::Hold(hold) = &request {
            self.abuse_others(node, hold);
        }
        let site: SiteId = self.nodes[from].site.clone();
        let canary = self.canary;
        let token = self.name();
        let Some(running) = self.running(node) else { return };
        match &mut request {
            SiteRequest::Hold(HoldRequest { hold_for, .. }) if canary == Some(Canary::ForgetHoldDeadline) => {
                hold_for.0 = u64::MAX / 8;
            }
            _ => {}
        }
        let is_confirm = matches!(request, SiteRequest::Confirm { .. });
        let takes_over = match &request {
            SiteRequest::TakeOver { attempt, authorization } => Some((attempt.request.clone(), authorization.clone())),
            _ => None,
        };
        if let SiteRequest::TakeOver { attempt, authorization } = &request
            && let Some(later) = running.keeps_from(authorization, &attempt.request)
            && let Some(answer) = running.ledger.refusal_of_takeover(attempt, &site, later)
        {
            return self.send(node, from, Body::Answer { ask, question, answer });
        }
        if matches!(&request, SiteRequest::TakeOver { attempt, .. } if running.is_arriving(&attempt.request)) {
            return;
        }
        running.askers.insert(token, super::node::Asker { from, ask, question, message, is_confirm, takes_over });
        let attempt = attempt_of(&request);
        let before = attempt
            .filter(|_| running.granted.contains(&message))
            .map(|attempt| (super::checks::repeat::standing(&running.ledger, &attempt), attempt));
        let event = ledger::Event::Request { from: site, token: ledger::ReplyToken(token), request };
        self.handle_ledger(node, event);
        if let Some((before, attempt)) = before {
            self.check_repeat(node, &attempt, &before);
        }
        self.perform_ledger(node);
    }

    /// The faults are over: everything that was ever there runs again, and it is looked whether all settles.
    pub(super) fn heal(&mut self) {
        self.history.note(self.now, None, format_args!("everything is healed"));
        self.is_healed = true;
        self.network.heal();
        for node in 0..self.nodes.len() {
            self.nodes[node].slow_ms = 0;
            if matches!(self.nodes[node].state, State::Down | State::Absent) {
                self.start(node);
            }
        }
        self.plan_last_takeovers();
        self.at(self.now + LOOK_EVERY_MS, Event::Look);
    }

    fn look(&mut self) {
        let deadline = self.options.faulty_ms + SETTLE_WITHIN_MS;
        match self.unsettled() {
            None => {
                self.is_over = true;
                self.check_books();
            }
            Some((request, what)) if self.now >= deadline => self.violate("settles", request.as_ref(), what),
            Some(_) => self.at(self.now + LOOK_EVERY_MS, Event::Look),
        }
    }
}

/// The attempt that a request is about.
fn attempt_of(request: &SiteRequest) -> Option<AttemptId> {
    request.about().0.cloned()
}
