//! What surrounds the state machines of a simulated node: its disk, its messages, its clocks, with a possible crash before
//! every single effect.
//!
//! Invariant: without a deliberate fault nothing leaves before the writes in front of it have reached the disk, and
//! neither users nor participants learn an outcome before.

use std::rc::Rc;

use broker::{
    ids::{RequestId, SiteId},
    ledger::{self, ReplyToken, ScheduleUpdateParts},
    negotiation::{self, Decision, Output, Purpose},
    protocol::{AttemptId, RefusalReason, SiteAnswer, SiteRequest},
    time::{Millis, Now},
};
use rand::RngExt;

use super::{
    canary::Canary,
    checks::repeat,
    message::{Body, Gossip, Message, Question},
    names,
    node::{Asker, Node, Running, Search, Waiting},
    world::{Event, World},
};
use crate::engine::{Actor, Disk, Machines, Medium, Moment, Write};

impl Medium for World {
    type Asker = Asker;

    fn now(&self) -> Moment {
        World::now(self)
    }

    fn clock(&self, node: usize) -> Now {
        World::clock(self, node)
    }

    fn when(&self, node: usize, at: Millis) -> Moment {
        let Node { clock, slow_ms, .. } = &self.nodes[node];
        clock.when(at).max(self.now().plus_ms(1)).plus_ms(*slow_ms)
    }

    fn plan_wake(&mut self, node: usize, at: Moment) {
        let run = self.nodes[node].run;
        self.at(at, Event::Wake { node, run });
    }

    fn machines(&mut self, node: usize) -> Option<&mut Machines<Asker>> {
        self.running(node).map(|running| &mut running.machines)
    }

    fn disk(&self, node: usize) -> &Disk {
        &self.nodes[node].disk
    }

    fn is_writing(&self, node: usize, actor: &Actor) -> bool {
        let is_ignored = *actor == Actor::Ledger && self.canary == Some(Canary::JournalAfterAnswer);
        let is_of = |running: &Running| running.writes.values().any(|(whose, _)| whose == actor);
        !is_ignored && self.nodes[node].running().is_some_and(is_of)
    }

    fn stops_here(&mut self, node: usize) -> bool {
        let per_mille = self.options.crash_per_mille;
        if per_mille == 0 || self.is_healed || self.random.random_range(0..1000) >= per_mille {
            return false;
        }
        self.crash(node);
        true
    }

    fn persist(&mut self, node: usize, actor: Actor, write: Write) {
        if let (Actor::Request(id), Write::Request(record)) = (&actor, &write) {
            let is_decided = matches!(record.decision, Decision::Commit { .. } | Decision::Reserved { .. });
            match self.canary {
                Some(Canary::DecisionNotWritten) if is_decided => return,
                Some(Canary::TellBeforeWrite) => self.show(node, id),
                Some(Canary::StatusBeforeWrite) => {
                    if let Some(running) = self.running(node) {
                        running.told_early.insert(id.clone(), record.clone());
                    }
                }
                _ => {}
            }
        }
        self.write(node, actor, write);
    }

    fn publish(&mut self, node: usize, update: ScheduleUpdateParts) {
        let advert = self.advert(node);
        let gossip = Rc::new(Gossip { advert, update });
        self.gossip(node, &gossip);
    }

    fn reply(&mut self, node: usize, asker: Asker, mut answer: SiteAnswer) {
        let canary = self.canary;
        let Asker { from, ask, question, message, is_confirm, takes_over } = asker;
        let asking_site = self.nodes[from].site.clone();
        if let (SiteAnswer::Status { decision, .. }, Question::Inquiry { attempt, .. }) = (&mut answer, &question) {
            *decision = self.decision_of(node, attempt, &asking_site);
            let early = self.running(node).and_then(|running| running.told_early.get(&attempt.request).cloned());
            if let Some(record) = early {
                *decision = Some(record.status_of(&self.nodes[node].site, attempt, &asking_site));
            }
        }
        let Some(running) = self.running(node) else { return };
        if let Question::Lookup { request, .. } = &question {
            answer.note_coordinated(|| running.carries(request));
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
        // The site agrees. The node's own negotiation has to give the request up, on its disk as well, before the other
        // node learns that it may go on.
        if let Some((id, authorization)) = takes_over.filter(|_| is_booked && canary != Some(Canary::HandOverIgnored)) {
            let Some(running) = self.running(node) else { return };
            running.held_back.push((id.clone(), from, body));
            self.feed_request(node, &id, negotiation::Event::TakenOver { by: asking_site, authorization });
            self.send_held_back(node, &id);
        } else {
            self.send(node, from, body);
        }
    }

    fn inquire(&mut self, node: usize, to: &SiteId, attempt: AttemptId, round: u32) {
        if self.canary == Some(Canary::SettleNeverAsked) {
            return;
        }
        let Some(index) = names::index_of(to) else { return };
        if index == node {
            return self.inquire_of_itself(node, attempt, round);
        }
        let ask = self.name();
        let question = Question::Inquiry { attempt: attempt.clone(), round, run: self.nodes[node].run };
        self.send(node, index, Body::Ask { ask, question, request: SiteRequest::Inquire(attempt) });
    }

    fn seek(&mut self, node: usize, id: &RequestId, output: Output) {
        match output {
            Output::Find { count, enough, seed, exclude } => {
                let search = Search { request: id.clone(), count, seed, exclude };
                self.search(node, search, enough);
            }
            Output::Ask { site, attempt, purpose, request, timeout } => {
                let waiting = Waiting { request: id.clone(), site, attempt, purpose };
                let until = self.clock(node).monotonic + timeout;
                self.ask(node, waiting, request, self.nodes[node].clock.when(until));
            }
            Output::Persist(_) => {}
        }
    }

    fn after_ledger(&mut self, node: usize) {
        self.check_ledger(node);
    }

    fn after_request(&mut self, node: usize, id: &RequestId) {
        self.show(node, id);
    }
}

impl World {
    /// Begins a write; what comes behind it waits for [`Event::Written`].
    pub(super) fn write(&mut self, node: usize, actor: Actor, write: Write) {
        let name = self.name();
        let takes = self.random.random_range(0..=self.nodes[node].disk_ms_max) + self.nodes[node].slow_ms;
        let run = self.nodes[node].run;
        let Some(running) = self.running(node) else { return };
        running.writes.insert(name, (actor, write));
        self.after(takes, Event::Written { node, run, write: name });
        if self.random.random_range(0..1000) < self.options.crash_per_mille {
            let after = self.random.random_range(0..=takes);
            self.after(after, Event::Crash { node, run });
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
        self.note(request, format_args!("s{node} has on disk: {}", describe(&write)));
        self.reaches_disk(node, write);
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

    /// The disk of a node has what it was writing.
    pub(super) fn reaches_disk(&mut self, node: usize, write: Write) {
        if let Write::Request(record) = &write {
            self.truth.note_takeover(record);
        }
        self.nodes[node].disk.apply(write);
    }

    /// The first write of a request is on disk: it begins.
    fn begin(&mut self, node: usize, id: &RequestId) {
        let seed = self.random.random();
        let now = self.clock(node);
        let Some(record) = self.nodes[node].disk.requests.get(id).cloned() else { return };
        let Some(running) = self.running(node) else { return };
        let is_taken_over = !record.taken_over.is_empty();
        running.machines.begin(record, is_taken_over, seed, now);
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
            let negotiation = self.running(node).and_then(|running| running.machines.negotiations.get(id));
            if let (Some(negotiation), Body::Answer { answer, .. }) = (negotiation, &mut body) {
                answer.name_former_coordinator(|| negotiation.record().former_coordinator(&by));
            }
            self.send(node, to, body);
        }
    }

    fn ask(&mut self, node: usize, waiting: Waiting, request: SiteRequest, until: Moment) {
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
            let body = Body::Ask { ask, question, request };
            if !self.forgets_to_give_up(node, to, &body) {
                self.send(node, to, body);
            }
        }
    }

    /// A message arrives.
    pub(super) fn arrive(&mut self, message: Message) {
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
            Body::Gossip(gossip) => self.receive_gossip(to, from, &gossip),
            Body::Departure => {
                if let Some(running) = self.running(to) {
                    running.views.remove(&from);
                }
            }
            Body::Fetch => self.answer_fetch(to, from),
            Body::Schedules(schedules) => self.receive_schedules(to, from, &schedules.0, &schedules.1),
        }
    }

    fn arrive_question(
        &mut self,
        node: usize,
        (message, from, ask): (u64, usize, u64),
        question: Question,
        request: SiteRequest,
    ) {
        if let SiteRequest::Hold(hold) = &request {
            self.abuse_others(node, hold);
        }
        let site: SiteId = self.nodes[from].site.clone();
        let request = self.mutate_question(from, request);
        let token = self.name();
        let Some(running) = self.running(node) else { return };
        let is_confirm = matches!(request, SiteRequest::Confirm { .. });
        let takes_over = match &request {
            SiteRequest::TakeOver { attempt, authorization, .. } => {
                Some((attempt.request.clone(), authorization.clone()))
            }
            _ => None,
        };
        if let SiteRequest::TakeOver { attempt, authorization, .. } = &request
            && let Some(later) = running.later_authorization(authorization, &attempt.request)
            && let Some(answer) = running.machines.ledger.refusal_of_takeover(attempt, &site, later)
        {
            return self.send(node, from, Body::Answer { ask, question, answer });
        }
        if matches!(&request, SiteRequest::TakeOver { attempt, .. } if running.is_arriving(&attempt.request)) {
            return;
        }
        running.machines.askers.insert(token, Asker { from, ask, question, message, is_confirm, takes_over });
        let attempt = request.about().0.cloned();
        let before = attempt
            .filter(|_| running.granted.contains(&message))
            .map(|attempt| (repeat::standing(&running.machines.ledger, &attempt), attempt));
        let event = ledger::Event::Request { from: site, token: ReplyToken(token), request };
        self.handle_ledger(node, event);
        if let Some((before, attempt)) = before {
            self.check_repeat(node, &attempt, &before);
        }
        self.perform_ledger(node);
    }

    /// A question has got no answer in time.
    pub(super) fn give_up(&mut self, node: usize, ask: u64) {
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
        let Some(answer) = self.mutate_answer(node, from, question, answer) else { return };
        self.note_version(node, from, &answer);
        let site = self.nodes[from].site.clone();
        match question {
            Question::Negotiation { request, attempt, purpose } => {
                let at = self.now();
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
            Question::Inquiry { attempt, round, run } => {
                if *run == self.nodes[node].run {
                    self.receive_status(node, site, (attempt.clone(), *round), &answer);
                }
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
                Decision::Reserved { attempt, .. } => format!("stands #{attempt}"),
                Decision::Closed(_) => "closed".to_owned(),
            };
            format!("{decision}, {} releases owed", record.owed.len())
        }
    }
}
