//! A simulated grid: its nodes, links and users, virtual time with what is planned in it, and the record of what happened.
//!
//! Invariant: the same seed and deliberate fault give the same run, event for event. No clock is read, nothing is iterated
//! in an order that is not fixed.

use std::fmt;

use broker::{
    ids::RequestId,
    negotiation::Negotiation,
    request::Request,
    time::{Now, Time},
    trust::{Authorization, Labels, RequestStatement, Trust},
};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    canary::Canary,
    clock, credentials,
    event::{Event, NodeEvent},
    figures::Figures,
    history::{History, Violation},
    message::{Body, Message, Question},
    network::{Fate, Network},
    node::{Node, Running, State},
    options::Options,
    truth::Truth,
    users::Users,
};
use crate::engine::{EventQueue, Moment};

/// A grid in the middle of a run.
pub struct Grid {
    pub options: Options,
    pub canary: Option<Canary>,
    pub random: Xoshiro256PlusPlus,
    pub trust: Trust,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub users: Users,
    pub truth: Truth,
    pub figures: Figures,
    /// The faults are over.
    pub is_healed: bool,
    queue: EventQueue<Event>,
    /// The last name given to a message, a question or a write.
    last_name: u64,
    history: History,
    violation: Option<Violation>,
}

impl Grid {
    /// A grid with these options, of which nothing is planned: no site starts and no user asks.
    pub fn new(options: Options, mut random: Xoshiro256PlusPlus, canary: Option<Canary>, keeps_history: bool) -> Grid {
        let mut grid = Grid {
            nodes: (0..options.sites).map(|index| Node::draw(index, &mut random, &options)).collect(),
            trust: credentials::trust(&options),
            options,
            canary,
            random,
            network: Network::default(),
            users: Users::new(credentials::user_keys()),
            truth: Truth::default(),
            figures: Figures { seeds: 1, ..Figures::default() },
            is_healed: false,
            queue: EventQueue::new(Moment::default()),
            last_name: 0,
            history: History::new(keeps_history),
            violation: None,
        };
        let options = format!("{:?}", grid.options);
        grid.note(None, format_args!("{options}"));
        grid
    }

    /// Virtual time.
    pub fn now(&self) -> Moment {
        self.queue.now()
    }

    /// The true wall time.
    pub fn utc(&self) -> Time {
        clock::true_utc(self.now())
    }

    /// What the clocks of a node show.
    pub fn clock(&self, node: usize) -> Now {
        self.nodes[node].clock.now(self.now())
    }

    /// The next event if it is due by `until`; without one only time passes, up to then.
    pub fn next_event(&mut self, until: Moment) -> Option<Event> {
        self.queue.next_until(until)
    }

    /// Plans an event.
    pub fn at(&mut self, at: Moment, event: Event) {
        self.queue.plan(at, event);
    }

    /// Plans an event for some milliseconds from now.
    pub fn after(&mut self, after_ms: u64, event: Event) {
        self.at(self.now().plus_ms(after_ms), event);
    }

    /// Plans an event of the present run of a node.
    pub fn node_at(&mut self, at: Moment, node: usize, event: NodeEvent) {
        let run = self.nodes[node].run;
        self.at(at, Event::OfNode { node, run, event });
    }

    /// Plans an event of the present run of a node for some milliseconds from now.
    pub fn node_after(&mut self, after_ms: u64, node: usize, event: NodeEvent) {
        self.node_at(self.now().plus_ms(after_ms), node, event);
    }

    /// A name that nothing else has.
    pub fn name(&mut self) -> u64 {
        self.last_name += 1;
        self.last_name
    }

    /// Notes what happened to a request, or (without one) to the grid.
    pub fn note(&mut self, request: Option<&RequestId>, text: fmt::Arguments<'_>) {
        self.history.note(self.queue.now(), request, text);
    }

    /// Notes what happened to a message about a request.
    pub fn note_message(&mut self, prefix: &str, message: &Message) {
        if let Some(request) = message.body.request() {
            self.note(Some(request), format_args!("{prefix}{message}"));
        }
    }

    /// What happened so far to a request and to the grid as a whole, or everything, for people.
    pub fn history(&self, request: Option<&RequestId>) -> String {
        self.history.of(request)
    }

    /// Notes the first thing that is wrong; the run ends with it.
    pub fn violate(&mut self, invariant: &'static str, request: Option<&RequestId>, what: String) {
        if self.violation.is_none() {
            self.note(request, format_args!("VIOLATION: {what}"));
            self.violation = Some(Violation { invariant, request: request.cloned(), what });
        }
    }

    /// The first invariant that did not hold.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The memory of a node, if it runs.
    pub fn running(&mut self, node: usize) -> Option<&mut Running> {
        self.nodes[node].running_mut()
    }

    /// What a node that runs does about a request, if it coordinates it.
    pub fn negotiation(&self, node: usize, id: &RequestId) -> Option<&Negotiation> {
        self.nodes[node].running()?.machines.negotiations.get(id)
    }

    /// All nodes but one.
    pub fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes.len()).filter(move |other| *other != node)
    }

    /// Whether one more node may be gone for good.
    pub fn may_lose(&self) -> bool {
        self.nodes.iter().filter(|node| node.is_gone()).count() < self.options.gone_max
    }

    /// A node that does not run is gone for good, unless too many are already. Returns whether it is.
    pub fn lose(&mut self, node: usize, draw: impl FnOnce(&mut Grid) -> bool) -> bool {
        let is_lost = self.may_lose() && draw(self);
        if is_lost {
            self.nodes[node].state = State::Gone;
            self.note(None, format_args!("s{node} is gone for good"));
        }
        is_lost
    }

    /// Gives a message to the network.
    pub fn send(&mut self, from: usize, to: usize, body: Body) {
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
            Fate::Unconnected => {
                self.figures.unconnected += 1;
                self.note_message("no connection: ", &message);
                // Who cannot even try learns it at once.
                if let Body::Ask { ask, question: Question::Negotiation { .. }, .. } = message.body
                    && self.network.is_starved(from)
                {
                    self.node_after(1, from, NodeEvent::Silence { ask });
                }
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

    /// What the user with this number signs for a node.
    pub fn authorize(
        &self,
        node: usize,
        (id, request): (&RequestId, &Request),
        number: u64,
        (term, expires): (u64, Time),
    ) -> Authorization {
        let statement = RequestStatement {
            grid: self.trust.grid().to_owned(),
            entry_point: self.nodes[node].site.clone(),
            id: id.clone(),
            request: request.clone(),
            term,
            issued: self.utc(),
            expires,
            labels: Labels::default(),
        };
        let signed = credentials::sign(&self.options, self.users.signing_key(number), &statement);
        Authorization { entry_point: self.nodes[node].credentials.clone(), ..signed }
    }
}
