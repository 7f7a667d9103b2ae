//! Drives the state machines of simulated nodes: feeds them, lets their outputs out in order, and sets their timers.
//!
//! A simulator says in a [`Medium`] what its network, its disks and its clocks do. Invariant: outputs leave in the order of
//! their machine, and none while the medium says that a write in front of it is not on disk yet.

use broker::{
    ids::{RequestId, SiteId},
    ledger,
    negotiation::{self, Output},
    protocol::{AttemptId, AttemptStatus, SiteAnswer},
    time::{Millis, Now},
};
use sim_kit::virtual_time::Moment;

use super::{
    disk::{Actor, Disk, Write},
    machines::Machines,
    work,
};

/// What surrounds the state machines of nodes, each named by its index; and the driver of the machines.
pub trait Medium {
    /// The receiver of the answer to a question that a ledger was asked.
    type Asker;

    /// Virtual time.
    fn now(&self) -> Moment;
    /// What the clocks of a node show.
    fn clock(&self, node: usize) -> Now;
    /// The first moment to come at which a node acts when it waits until its monotonic clock shows `at`.
    fn when(&self, node: usize, at: Millis) -> Moment;
    /// Plans [`Medium::wake`] for this run of a node.
    fn plan_wake(&mut self, node: usize, at: Moment);

    /// The state machines of a node; none while it does not run.
    fn machines(&mut self, node: usize) -> Option<&mut Machines<Self::Asker>>;
    /// The disk of a node.
    fn disk(&self, node: usize) -> &Disk;
    /// Whether the outputs of a machine wait for its writes.
    fn is_writing(&self, node: usize, actor: &Actor) -> bool;
    /// Whether a node stops before its next effect.
    fn stops_here(&mut self, node: usize) -> bool;

    /// Begins a write.
    fn persist(&mut self, node: usize, actor: Actor, write: Write);
    /// Publishes schedule changes as a hint.
    fn publish(&mut self, node: usize, update: ledger::ScheduleUpdateParts);
    /// Sends an answer.
    fn reply(&mut self, node: usize, asker: Self::Asker, answer: SiteAnswer);
    /// Asks a node for the outcome of an attempt.
    fn inquire(&mut self, node: usize, to: &SiteId, attempt: AttemptId, round: u32);
    /// Lets out [`Output::Find`] or [`Output::Ask`].
    fn seek(&mut self, node: usize, id: &RequestId, output: Output);
    /// An owner learns whether an order for the own queue was carried out.
    fn ordered(&mut self, _node: usize, _token: u64, _is_done: bool) {}
    /// A ledger has been fed.
    fn after_ledger(&mut self, _node: usize) {}
    /// All outputs of a negotiation are out.
    fn after_request(&mut self, node: usize, id: &RequestId);

    /// Feeds a ledger. Its outputs are still to be let out.
    fn handle_ledger(&mut self, node: usize, event: ledger::Event) {
        let now = self.clock(node);
        let Some(machines) = self.machines(node) else { return };
        let waited = machines.ledger.waiting_outputs();
        work::begin();
        machines.ledger.handle(now, event);
        work::note_outputs(machines.ledger.waiting_outputs() - waited);
        self.after_ledger(node);
    }

    /// Lets a ledger do what is due. Its outputs are still to be let out.
    fn tell_ledger_time(&mut self, node: usize) {
        let now = self.clock(node);
        let Some(machines) = self.machines(node) else { return };
        let waited = machines.ledger.waiting_outputs();
        work::begin();
        machines.ledger.handle_timeout(now);
        work::note_outputs(machines.ledger.waiting_outputs() - waited);
    }

    /// Feeds a ledger and lets its outputs out.
    fn feed_ledger(&mut self, node: usize, event: ledger::Event) {
        self.handle_ledger(node, event);
        self.perform_ledger(node);
    }

    /// Lets the outputs of a ledger out.
    fn perform_ledger(&mut self, node: usize) {
        while !self.is_writing(node, &Actor::Ledger) {
            let Some(output) = self.machines(node).and_then(|machines| machines.ledger.poll_output()) else { break };
            if self.stops_here(node) {
                return;
            }
            match output {
                ledger::Output::Persist(record) => self.persist(node, Actor::Ledger, Write::Ledger(Box::new(record))),
                ledger::Output::Publish(update) => self.publish(node, update),
                ledger::Output::Reply { token, answer } => {
                    if let Some(asker) = self.machines(node).and_then(|machines| machines.askers.remove(&token.0)) {
                        self.reply(node, asker, answer);
                    }
                }
                ledger::Output::Inquire { to, attempt, round } => self.inquire(node, &to, attempt, round),
                // No owner of a simulation has a feed.
                ledger::Output::FeedApplied { .. } => {}
                ledger::Output::QueueChanged { token, result } => self.ordered(node, token.0, result.is_ok()),
            }
        }
        self.arm(node);
    }

    /// What a node, as the coordinator of an attempt or its entry point, answers a site about it: what its disk says. None when
    /// it is neither.
    fn decision_of(&mut self, node: usize, attempt: &AttemptId, asker: &SiteId) -> Option<AttemptStatus> {
        let machines = self.machines(node)?;
        let (own, is_known) = (machines.ledger.site().clone(), machines.negotiations.contains_key(&attempt.request));
        match self.disk(node).requests.get(&attempt.request).filter(|_| is_known) {
            None => (attempt.entry_point == own).then_some(AttemptStatus::Unknown),
            Some(record) => Some(record.status_of(&own, attempt, asker)),
        }
    }

    /// A participant that coordinates the attempt itself learns its outcome without the network.
    fn inquire_of_itself(&mut self, node: usize, attempt: AttemptId, round: u32) {
        let Some(machines) = self.machines(node) else { return };
        let from = machines.ledger.site().clone();
        let decision = self.decision_of(node, &attempt, &from);
        let booking = AttemptStatus::Confirmed;
        self.feed_ledger(node, ledger::Event::StatusReceived { from, attempt, round, decision, booking });
    }

    /// A node has answered a ledger's question for the outcome of an attempt.
    fn receive_status(&mut self, node: usize, from: SiteId, (attempt, round): (AttemptId, u32), answer: &SiteAnswer) {
        let SiteAnswer::Status { decision, booking } = *answer else { return };
        self.feed_ledger(node, ledger::Event::StatusReceived { from, attempt, round, decision, booking });
    }

    /// Feeds a negotiation and lets its outputs out.
    fn feed_request(&mut self, node: usize, id: &RequestId, event: negotiation::Event) {
        let now = self.clock(node);
        let Some(negotiation) = self.machines(node).and_then(|machines| machines.negotiations.get_mut(id)) else {
            return;
        };
        negotiation.handle(now, event, &mut ());
        self.perform_request(node, id);
    }

    /// Lets the outputs of a negotiation out.
    fn perform_request(&mut self, node: usize, id: &RequestId) {
        let actor = Actor::Request(id.clone());
        for outputs in 0.. {
            work::note_outputs(outputs);
            if self.is_writing(node, &actor) {
                return self.arm(node);
            }
            let Some(machines) = self.machines(node) else { return };
            let Some(negotiation) = machines.negotiations.get_mut(id) else { return };
            let Some(output) = negotiation.poll_output() else { break };
            if self.stops_here(node) {
                return;
            }
            match output {
                Output::Persist(record) => self.persist(node, actor.clone(), Write::Request(record)),
                Output::Find { .. } | Output::Ask { .. } => self.seek(node, id, output),
            }
        }
        self.after_request(node, id);
        self.arm(node);
    }

    /// Sets the timer of a node to what its ledger or a negotiation waits for next.
    fn arm(&mut self, node: usize) {
        let Some(machines) = self.machines(node) else { return };
        let of_requests = machines.negotiations.values().filter_map(|negotiation| negotiation.poll_timeout());
        let Some(next) = of_requests.chain(machines.ledger.poll_timeout()).min() else { return };
        let planned = machines.wake_at;
        let at = self.when(node, next);
        if planned.is_none_or(|planned| at < planned)
            && let Some(machines) = self.machines(node)
        {
            machines.wake_at = Some(at);
            self.plan_wake(node, at);
        }
    }

    /// The timer of a node fires.
    fn wake(&mut self, node: usize) {
        let (at, now) = (self.now(), self.clock(node));
        let Some(machines) = self.machines(node) else { return };
        if machines.wake_at.is_none_or(|planned| planned > at) {
            return;
        }
        machines.wake_at = None;
        self.tell_ledger_time(node);
        let Some(machines) = self.machines(node) else { return };
        let mut due = Vec::new();
        for (id, negotiation) in &mut machines.negotiations {
            if negotiation.poll_timeout().is_some_and(|timeout| timeout <= now.monotonic) {
                negotiation.handle_timeout(now);
                due.push(id.clone());
            }
        }
        self.after_ledger(node);
        self.perform_ledger(node);
        for id in due {
            self.perform_request(node, &id);
        }
    }
}
