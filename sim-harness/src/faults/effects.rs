//! What a simulated node does with the outputs of its ledger and its negotiations: in their order, each write before
//! everything behind it, with a possible crash before every single effect.
//!
//! Invariant: without a deliberate fault nothing leaves before the writes in front of it have reached the disk, and
//! neither users nor participants are told of a decision before.

use std::rc::Rc;

use broker::{
    ids::{RequestId, SiteId},
    ledger,
    negotiation::{self, Decision, Negotiation, Output, Purpose, RequestRecord},
    protocol::{AttemptId, AttemptStatus, RefusalReason, SiteAnswer, SiteRequest},
};
use rand::RngExt;

use super::{
    canary::Canary,
    message::{Body, Gossip, Question},
    names,
    node::{Actor, Asker, Carried, Running, Waiting, Write},
    world::{Event, World},
};

/// What a node that acts for an attempt, or has made it, tells a site of it.
fn decision_of(running: &Running, attempt: &AttemptId, asker: &SiteId) -> Option<AttemptStatus> {
    match running.negotiations.get(&attempt.request) {
        None => (attempt.entry_point == *running.ledger.site()).then_some(AttemptStatus::Unknown),
        Some(carried) => Some(carried.statuses.of(attempt, asker)),
    }
}

/// Takes a request on, or goes on with it after a crash.
pub fn carry(negotiation: Negotiation) -> Carried {
    Carried { statuses: negotiation.statuses(), negotiation }
}

impl World {
    /// Feeds the ledger and checks it. Its outputs are still to be let out.
    pub(super) fn handle_ledger(&mut self, node: usize, event: ledger::Event) {
        let now = self.nodes[node].clock.now(self.now);
        let Some(running) = self.running(node) else { return };
        running.ledger.handle(now, event);
        self.check_ledger(node);
    }

    /// Feeds the ledger, checks it, and lets its outputs out.
    fn feed_ledger(&mut self, node: usize, event: ledger::Event) {
        self.handle_ledger(node, event);
        self.perform_ledger(node);
    }

    /// Feeds a negotiation and lets its outputs out.
    pub(super) fn feed_request(&mut self, node: usize, id: &RequestId, event: negotiation::Event) {
        let now = self.nodes[node].clock.now(self.now);
        let Some(carried) = self.running(node).and_then(|running| running.negotiations.get_mut(id)) else { return };
        carried.negotiation.handle(now, event, &mut ());
        self.perform_request(node, id);
    }

    /// Whether the node still writes something down for this one.
    pub(super) fn is_writing(&self, node: usize, actor: &Actor) -> bool {
        self.nodes[node].running().is_some_and(|running| running.writes.values().any(|(whose, _)| whose == actor))
    }

    /// Begins a write; what comes behind it waits for [`Event::Written`].
    pub(super) fn write(&mut self, node: usize, actor: Actor, write: Write) {
        let name = self.name();
        let takes = self.random.random_range(0..=self.nodes[node].disk_ms_max) + self.nodes[node].slow_ms;
        let run = self.nodes[node].run;
        let Some(running) = self.running(node) else { return };
        running.writes.insert(name, (actor, write));
        self.at(self.now + takes, Event::Written { node, run, write: name });
        if self.random.random_range(0..1000) < self.options.crash_per_mille {
            let after = self.random.random_range(0..=takes);
            self.at(self.now + after, Event::Crash { node, run });
        }
    }

    /// A write has reached the disk: what waited for it happens.
    pub(super) fn written(&mut self, node: usize, write: u64) {
        let Some((actor, write)) = self.running(node).and_then(|running| running.writes.remove(&write)) else { return };
        let about = write.about().cloned();
        let request = match &actor {
            Actor::Request(id) => Some(id),
            Actor::Ledger => about.as_ref(),
        };
        self.history.note(self.now, request, format_args!("s{node} has on disk: {}", describe(&write)));
        self.nodes[node].disk.apply(write);
        if let Some(request) = about {
            self.check_disk(node, &request);
        }
        match actor {
            Actor::Ledger => self.perform_ledger(node),
            Actor::Request(id) => {
                self.begin(node, &id);
                self.perform_request(node, &id);
                self.send_held_back(node, &id);
            }
        }
    }

    /// The first write of a request is on disk: it begins.
    fn begin(&mut self, node: usize, id: &RequestId) {
        let seed = self.random.random();
        let (now, site) = (self.nodes[node].clock.now(self.now), self.nodes[node].site.clone());
        let Some(record) = self.nodes[node].disk.requests.get(id).cloned() else { return };
        let settings = self.options.negotiation();
        let Some(running) = self.running(node) else { return };
        let is_taken_over = !record.taken_over.is_empty();
        running
            .negotiations
            .entry(id.clone())
            .or_insert_with(|| carry(Negotiation::new(site, settings, record, is_taken_over, seed, now)));
    }

    /// Whether the node crashes right now, before the next effect.
    fn crashes_here(&mut self, node: usize) -> bool {
        let per_mille = self.options.crash_per_mille;
        if per_mille == 0 || self.is_healed || self.random.random_range(0..1000) >= per_mille {
            return false;
        }
        self.crash(node);
        true
    }

    pub(super) fn perform_ledger(&mut self, node: usize) {
        let waits = self.canary != Some(Canary::JournalAfterAnswer);
        while !(waits && self.is_writing(node, &Actor::Ledger)) {
            let Some(output) = self.running(node).and_then(|running| running.ledger.poll_output()) else { break };
            if self.crashes_here(node) {
                return;
            }
            match output {
                ledger::Output::Persist(record) => self.write(node, Actor::Ledger, Write::Ledger(record)),
                ledger::Output::Publish(update) => {
                    let advert = self.advert(node);
                    let gossip = Rc::new(Gossip { advert, update });
                    self.gossip(node, &gossip);
                }
                ledger::Output::Reply { token, answer } => self.reply(node, token.0, answer),
                ledger::Output::Inquire { to, attempt } => self.inquire(node, &to, attempt),
                // No owner of the simulation has a feed.
                ledger::Output::Fed { .. } => {}
            }
        }
        self.arm(node);
    }

    fn reply(&mut self, node: usize, token: u64, mut answer: SiteAnswer) {
        let canary = self.canary;
        let asker = self.running(node).and_then(|running| running.askers.remove(&token));
        let Some(Asker { from, ask, question, message, is_confirm, takes_over }) = asker else { return };
        let asking_site = self.nodes[from].site.clone();
        let Some(running) = self.running(node) else { return };
        if let (SiteAnswer::Status { decision, .. }, Question::Inquiry(attempt)) = (&mut answer, &question) {
            *decision = decision_of(running, attempt, &asking_site);
        }
        if let Question::Lookup { request, .. } = &question {
            answer.note_carried(|| running.carries(request));
        }
        let is_booked = matches!(answer, SiteAnswer::Booked { .. });
        if let SiteAnswer::Refused(refusal) = &answer
            && (canary, is_confirm, &refusal.reason)
                == (Some(Canary::ConfirmWithoutHold), true, &RefusalReason::NoSuchHold)
        {
            answer = SiteAnswer::Confirmed { version: refusal.version };
        }
        if !matches!(answer, SiteAnswer::Refused(_)) {
            running.granted.insert(message);
        }
        let answer = self.lie(node, from, &question, answer);
        let body = Body::Answer { ask, question, answer };
        // As a site it has nothing against it; what it carries itself is to hear of it, and to have let go on its disk
        // before the other node hears that it may go on.
        if let Some((id, authorization)) = takes_over.filter(|_| is_booked) {
            let Some(running) = self.running(node) else { return };
            running.held_back.push((id.clone(), from, body));
            self.feed_request(node, &id, negotiation::Event::TakenOver { by: asking_site, authorization });
            self.send_held_back(node, &id);
        } else {
            self.send(node, from, body);
        }
    }

    /// Lets out the answers that waited for what a node writes of a request, when that is on disk.
    fn send_held_back(&mut self, node: usize, id: &RequestId) {
        if self.is_writing(node, &Actor::Request(id.clone())) {
            return;
        }
        let Some(running) = self.running(node) else { return };
        let waiting = std::mem::take(&mut running.held_back).into_iter();
        let (due, others): (Vec<_>, Vec<_>) = waiting.partition(|(request, ..)| request == id);
        running.held_back = others;
        for (_, to, mut body) in due {
            let by = self.nodes[to].site.clone();
            let carried = self.running(node).and_then(|running| running.negotiations.get(id));
            if let (Some(carried), Body::Answer { answer, .. }) = (carried, &mut body) {
                answer.name_who_acted(|| carried.negotiation.record().acted_before(&by));
            }
            self.send(node, to, body);
        }
    }

    /// A participant asks what became of an attempt; the node asks itself without the network.
    fn inquire(&mut self, node: usize, to: &SiteId, attempt: AttemptId) {
        if self.canary == Some(Canary::SettleNeverAsked) {
            return;
        }
        let Some(index) = names::index_of(to) else { return };
        if index == node {
            let Some(running) = self.running(node) else { return };
            let decision = decision_of(running, &attempt, to);
            let from = to.clone();
            let booking = AttemptStatus::Confirmed;
            let event = ledger::Event::StatusHeard { from, attempt, decision, booking };
            self.feed_ledger(node, event);
            return;
        }
        let ask = self.name();
        let question = Question::Inquiry(attempt.clone());
        self.send(node, index, Body::Ask { ask, question, request: SiteRequest::Inquire(attempt) });
    }

    pub(super) fn perform_request(&mut self, node: usize, id: &RequestId) {
        let actor = Actor::Request(id.clone());
        loop {
            if self.is_writing(node, &actor) {
                self.arm(node);
                return;
            }
            let Some(running) = self.running(node) else { return };
            let Some(carried) = running.negotiations.get_mut(id) else { return };
            let Some(output) = carried.negotiation.poll_output() else { break };
            if self.crashes_here(node) {
                return;
            }
            match output {
                Output::Persist(record) => self.persist(node, id, record),
                Output::Find { count, enough, seed, exclude } => {
                    let search = super::discovery::Search { request: id.clone(), count, seed, exclude };
                    self.search(node, search, enough);
                }
                Output::Ask { site, attempt, purpose, request, timeout } => {
                    let waiting = Waiting { request: id.clone(), site, attempt, purpose };
                    let until = self.nodes[node].clock.now(self.now).monotonic + timeout;
                    let until = self.nodes[node].clock.when(until);
                    self.ask(node, waiting, request, until);
                }
            }
        }
        if let Some(carried) = self.running(node).and_then(|running| running.negotiations.get_mut(id)) {
            carried.statuses = carried.negotiation.statuses();
        }
        self.show(node, id);
        self.arm(node);
    }

    fn persist(&mut self, node: usize, id: &RequestId, record: Box<RequestRecord>) {
        let is_decided = matches!(record.decision, Decision::Commit { .. } | Decision::Stands { .. });
        match self.canary {
            Some(Canary::DecisionNotWritten) if is_decided => return,
            Some(Canary::TellBeforeWrite) => self.show(node, id),
            Some(Canary::StatusBeforeWrite) => {
                if let Some(carried) = self.running(node).and_then(|running| running.negotiations.get_mut(id)) {
                    carried.statuses = carried.negotiation.statuses();
                }
            }
            _ => {}
        }
        self.write(node, Actor::Request(id.clone()), Write::Request(record));
    }

    fn ask(&mut self, node: usize, waiting: Waiting, request: SiteRequest, until: u64) {
        let Some(to) = names::index_of(&waiting.site) else { return };
        let (ask, run) = (self.name(), self.nodes[node].run);
        let Waiting { request: id, site, attempt, purpose } = waiting.clone();
        let forgets = self.canary == Some(Canary::ReleaseNotRepeated) && purpose == Purpose::Release;
        let Some(running) = self.running(node) else { return };
        running.waiting.insert(ask, waiting);
        let is_first = running.released.insert((id.clone(), attempt, site));
        self.at(until, Event::Silence { node, run, ask });
        if is_first || !forgets {
            let question = Question::Negotiation { request: id, attempt, purpose };
            let request = self.abuse_own(node, request);
            self.send(node, to, Body::Ask { ask, question, request });
        }
    }

    /// A question has got no answer in time.
    pub(super) fn hear_silence(&mut self, node: usize, ask: u64) {
        let Some(waiting) = self.running(node).and_then(|running| running.waiting.remove(&ask)) else { return };
        let Waiting { request, site, attempt, purpose } = waiting;
        let answer = Err("no answer in time".to_owned());
        self.feed_request(node, &request, negotiation::Event::Answer { site, attempt, purpose, answer });
    }

    /// Late and repeated answers reach the negotiation as well.
    pub(super) fn arrive_answer(
        &mut self,
        node: usize,
        from: usize,
        ask: u64,
        question: &Question,
        answer: SiteAnswer,
    ) {
        self.hear_version_in(node, from, &answer);
        let site = self.nodes[from].site.clone();
        match question {
            Question::Negotiation { request, attempt, purpose } => {
                let at = self.now;
                if let Some(running) = self.running(node)
                    && running.waiting.remove(&ask).is_some()
                    && *purpose == Purpose::Inspect
                    && matches!(answer, SiteAnswer::Booked { .. })
                {
                    let (last, before) = running.inspected.entry((request.clone(), from)).or_default();
                    (*last, *before) = (at, *last);
                }
                let (attempt, purpose, answer) = (*attempt, *purpose, Ok(answer));
                self.feed_request(node, request, negotiation::Event::Answer { site, attempt, purpose, answer });
            }
            Question::Lookup { request, name } => self.hear_looked_up(node, from, (request, *name), answer),
            Question::Attack(attempt) => self.hear_attacked(node, from, attempt, &answer),
            Question::Inquiry(attempt) => {
                let SiteAnswer::Status { decision, booking } = answer else { return };
                let event = ledger::Event::StatusHeard { from: site, attempt: attempt.clone(), decision, booking };
                self.feed_ledger(node, event);
            }
        }
    }

    /// Sets the node's timer to what its ledger or a negotiation waits for next.
    pub(super) fn arm(&mut self, node: usize) {
        let (clock, run, slow_ms) = (self.nodes[node].clock, self.nodes[node].run, self.nodes[node].slow_ms);
        let now = self.now;
        let Some(running) = self.running(node) else { return };
        let of_requests = running.negotiations.values().filter_map(|carried| carried.negotiation.poll_timeout());
        let Some(next) = of_requests.chain(running.ledger.poll_timeout()).min() else { return };
        let at = clock.when(next).max(now + 1) + slow_ms;
        if running.wake_at.is_none_or(|planned| at < planned) {
            running.wake_at = Some(at);
            self.at(at, Event::Wake { node, run });
        }
    }

    /// The node's timer fires.
    pub(super) fn wake(&mut self, node: usize) {
        let (now, at) = (self.nodes[node].clock.now(self.now), self.now);
        let Some(running) = self.running(node) else { return };
        if running.wake_at.is_none_or(|planned| planned > at) {
            return;
        }
        running.wake_at = None;
        running.ledger.handle_timeout(now);
        let mut due = Vec::new();
        for (id, carried) in &mut running.negotiations {
            if carried.negotiation.poll_timeout().is_some_and(|timeout| timeout <= now.monotonic) {
                carried.negotiation.handle_timeout(now);
                due.push(id.clone());
            }
        }
        self.check_ledger(node);
        self.perform_ledger(node);
        let run = self.nodes[node].run;
        for id in due {
            if self.nodes[node].run == run {
                self.perform_request(node, &id);
            }
        }
    }
}

fn describe(write: &Write) -> String {
    match write {
        Write::Ledger(ledger::Record::Put(reservation)) => {
            let settled = if reservation.settled { ", settled" } else { "" };
            format!("reservation #{}{settled}", reservation.attempt.attempt)
        }
        Write::Ledger(ledger::Record::Remove(attempt)) => format!("no reservation #{}", attempt.attempt),
        Write::Request(record) => {
            let decision = match &record.decision {
                Decision::Open => "open".to_owned(),
                Decision::Commit { attempt, .. } => format!("commit #{attempt}"),
                Decision::Stands { attempt, .. } => format!("stands #{attempt}"),
                Decision::Closed(_) => "closed".to_owned(),
            };
            format!("{decision}, {} releases owed", record.owed.len())
        }
    }
}
