//! What surrounds the state machines of simulated nodes: their disks, their messages, their clocks, with a possible crash
//! before every single effect.
//!
//! Invariant: without a deliberate fault nothing leaves a node before the writes in front of it have reached the disk, and
//! neither users nor participants learn an outcome before.

use std::{mem, rc::Rc, sync::Arc};

use broker::{
    ids::{RequestId, SiteId},
    ledger::{self, Books as _, ReplyToken, ScheduleUpdateParts},
    negotiation::{self, Decision, HandedPlan, Output, Purpose},
    plan::Place,
    protocol::{AttemptId, RefusalReason, ScheduleChange, SiteAnswer, SiteRequest},
    request::Request,
    time::{Millis, Now},
    trust::Authorization,
};
use rand::RngExt;

use super::{
    attacker::{self, Attacker},
    canary::Canary,
    checks,
    event::NodeEvent,
    grid::Grid,
    life,
    losses::Fates,
    message::{Body, Gossip, Message, Question},
    mutations, names,
    node::{Asker, Waiting},
    truth::FORGOTTEN,
    user_actions,
    views::{Change, Search},
};
use crate::engine::{Actor, Disk, Machines, Medium, Moment, Write};

/// A grid, with the attacker and the losses in it.
pub struct World {
    pub grid: Grid,
    pub fates: Fates,
    attacker: Attacker,
}

impl Medium for World {
    type Asker = Asker;

    fn now(&self) -> Moment {
        self.grid.now()
    }

    fn clock(&self, node: usize) -> Now {
        self.grid.clock(node)
    }

    fn when(&self, node: usize, at: Millis) -> Moment {
        let at_node = &self.grid.nodes[node];
        at_node.clock.when(at).max(self.now().plus_ms(1)).plus_ms(at_node.slow_ms)
    }

    fn plan_wake(&mut self, node: usize, at: Moment) {
        self.grid.node_at(at, node, NodeEvent::Wake);
    }

    fn machines(&mut self, node: usize) -> Option<&mut Machines<Asker>> {
        self.grid.running(node).map(|running| &mut running.machines)
    }

    fn disk(&self, node: usize) -> &Disk {
        &self.grid.nodes[node].disk
    }

    fn is_writing(&self, node: usize, actor: &Actor) -> bool {
        let is_ignored = *actor == Actor::Ledger && self.grid.canary == Some(Canary::JournalAfterAnswer);
        !is_ignored && self.grid.nodes[node].running().is_some_and(|running| running.is_writing(actor))
    }

    fn stops_here(&mut self, node: usize) -> bool {
        let per_mille = self.grid.options.crash_per_mille;
        if per_mille == 0 || self.grid.is_healed || self.grid.random.random_range(0..1000) >= per_mille {
            return false;
        }
        life::crash(&mut self.grid, node);
        true
    }

    fn persist(&mut self, node: usize, actor: Actor, mut write: Write) {
        if let (Some(Canary::ReceiptUnchecked), Write::Request(record)) = (self.grid.canary, &mut write) {
            mutations::accept_other_prices(record);
        }
        if let (Actor::Request(id), Write::Request(record)) = (&actor, &write) {
            let is_decided = matches!(record.decision, Decision::Commit { .. } | Decision::Reserved { .. });
            match self.grid.canary {
                Some(Canary::DecisionNotWritten) if is_decided => return,
                Some(Canary::ReportBeforeWrite) => self.show(node, id),
                Some(Canary::StatusBeforeWrite) => {
                    if let Some(running) = self.grid.running(node) {
                        running.answered_early.insert(id.clone(), record.clone());
                    }
                }
                _ => {}
            }
        }
        if let (Some(Canary::WitnessForgotten), Write::Ledger(record)) = (self.grid.canary, &mut write) {
            mutations::forget_moves(record);
        }
        if let (Some(Canary::WaitsTooLong), Write::Ledger(record)) = (self.grid.canary, &mut write) {
            mutations::wait_too_long(record);
        }
        if let (Some(Canary::RefundTwice), Write::Ledger(record)) = (self.grid.canary, &mut write) {
            mutations::refund_twice(record);
        }
        if self.grid.canary == Some(Canary::EvictionNotWritten)
            && let (Write::Ledger(record), Some(running)) = (&write, self.grid.nodes[node].running())
            && record.attempts().any(|attempt| running.evicted.contains_key(attempt))
        {
            return;
        }
        self.write(node, actor, write);
    }

    fn publish(&mut self, node: usize, mut update: ScheduleUpdateParts) {
        if self.grid.canary == Some(Canary::ClassMiscounted) {
            mutations::miscount(&mut update.changes);
        }
        let has = |change: &ScheduleChange| {
            let running = self.grid.nodes[node].running().into_iter();
            let mut hosts = running.flat_map(|running| running.machines.ledger.hosts());
            match change {
                ScheduleChange::Host(change) => {
                    change.host.is_uplink() || hosts.any(|books| books.host().id == change.host)
                }
                ScheduleChange::Class(change) => hosts.any(|books| books.class() == Some(&change.class)),
            }
        };
        let unknown = update.changes.iter().find(|change| !has(change));
        let unknown = unknown.map(|change| format!("publishes a change of what it does not have: {change:?}"));
        let from = self.grid.utc() + FORGOTTEN;
        let noted = unknown.map_or(Ok(()), Err).and_then(|()| self.grid.truth.note_published(node, &update, from));
        if let Err(what) = noted {
            self.grid.violate("a ledger publishes what it does", None, format!("s{node} {what}"));
        }
        let advert = self.advert(node);
        let gossip = Rc::new(Gossip { advert, update });
        for to in self.grid.others(node) {
            self.grid.send(node, to, Body::Gossip(gossip.clone()));
        }
    }

    fn reply(&mut self, node: usize, asker: Asker, mut answer: SiteAnswer) {
        let canary = self.grid.canary;
        let Asker { from, ask, question, message, is_confirm, takes_over } = asker;
        if let Question::Eviction { attempts, .. } = question {
            if matches!(answer, SiteAnswer::Released { .. }) {
                self.grid.truth.note_evicted(node, attempts);
                checks::check_taken_back(&mut self.grid, node);
            }
            return;
        }
        let asking_site = self.grid.nodes[from].site.clone();
        if let (SiteAnswer::Status { decision, .. }, Question::Inquiry { attempt, .. }) = (&mut answer, &question) {
            let own = &self.grid.nodes[node];
            let early = own.running().and_then(|running| running.answered_early.get(&attempt.request));
            let early = early.map(|record| record.status_of(&own.site, attempt, &asking_site));
            *decision = early.or_else(|| self.decision_of(node, attempt, &asking_site));
        }
        let Some(running) = self.grid.running(node) else { return };
        if let Question::Lookup { request, .. } = &question {
            answer.note_coordinated(|| running.coordinates(request));
        }
        let is_booked = matches!(answer, SiteAnswer::Booked { .. });
        self.grid.figures.note_answer(&answer);
        if let SiteAnswer::Refused(refusal) = &answer
            && (canary, is_confirm, &refusal.reason)
                == (Some(Canary::ConfirmWithoutHold), true, &RefusalReason::NoSuchHold)
        {
            let (version, receipt) =
                (refusal.version, mutations::receipt_without_hold(&self.grid, node, from, &question));
            answer = SiteAnswer::Confirmed { places: Vec::new(), version, receipt };
        }
        if !matches!(answer, SiteAnswer::Refused(_))
            && let Some(running) = self.grid.running(node)
        {
            running.granted.insert(message);
        }
        // Another host than was named; one of a class that floats is none.
        let is_other = |place: &Place| matches!(place, Place::Host(_));
        let is_substituted =
            matches!(&answer, SiteAnswer::Held { places, .. } if places.iter().any(|(_, place)| is_other(place)));
        self.grid.figures.substituted += u64::from(is_substituted);
        let answer = self.attacker.lie(&mut self.grid, node, from, &question, answer);
        let body = Body::Answer { ask, question, answer };
        // The site agrees. The node's own negotiation has to give the request up, on its disk as well, before the other
        // node learns that it may go on.
        if let Some((id, authorization)) = takes_over.filter(|_| is_booked && canary != Some(Canary::HandOverIgnored)) {
            let Some(running) = self.grid.running(node) else { return };
            running.held_back.push((id.clone(), from, body));
            self.feed_request(node, &id, negotiation::Event::TakenOver { by: asking_site, authorization });
            self.send_held_back(node, &id);
        } else {
            self.grid.send(node, from, body);
        }
    }

    fn inquire(&mut self, node: usize, to: &SiteId, attempt: AttemptId, round: u32) {
        if self.grid.canary == Some(Canary::SettleNeverAsked) {
            return;
        }
        let Some(index) = names::index_of(to) else { return };
        if index == node {
            return self.inquire_of_itself(node, attempt, round);
        }
        let ask = self.grid.name();
        let question = Question::Inquiry { attempt: attempt.clone(), round, run: self.grid.nodes[node].run };
        self.grid.send(node, index, Body::Ask { ask, question, request: SiteRequest::Inquire(attempt) });
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
                self.ask(node, waiting, request, self.grid.nodes[node].clock.when(until));
            }
            Output::Persist(_) => {}
        }
    }

    fn ordered(&mut self, node: usize, token: u64, is_done: bool) {
        let added = self.grid.truth.take_order(node, token).filter(|_| is_done);
        if let Some(attempt) = added {
            self.grid.figures.own_jobs += 1;
            self.grid.truth.note_acknowledged_job(node, attempt);
        }
    }

    fn after_ledger(&mut self, node: usize) {
        checks::check_ledger(&mut self.grid, node);
    }

    fn after_request(&mut self, node: usize, id: &RequestId) {
        self.show(node, id);
        self.go_on_with_batch(node, id);
    }
}

impl World {
    /// A grid with an attacker and losses.
    pub fn new(grid: Grid, attacker: Attacker, fates: Fates) -> World {
        World { grid, fates, attacker }
    }

    /// Lets an event of a node's present run happen.
    pub fn happen(&mut self, node: usize, event: NodeEvent) {
        match event {
            NodeEvent::Wake => self.wake(node),
            NodeEvent::Silence { ask } => self.give_up(node, ask),
            NodeEvent::Written { write } => self.written(node, write),
            NodeEvent::Found(search) => self.found(node, &search),
            NodeEvent::LookForRoom => self.look_for_room(node),
            NodeEvent::SignOfLife => self.sign_of_life(node),
            NodeEvent::Start => self.start(node),
            NodeEvent::LookedUp { request, name } => self.looked_up(node, &request, name),
            NodeEvent::Crash if self.grid.is_healed => {}
            NodeEvent::Crash => life::crash(&mut self.grid, node),
        }
    }

    /// A node starts with what its disk remembers; its owner may have changed what it offers. On a disk that refuses all writes it does
    /// not, and tries again.
    pub fn start(&mut self, node: usize) {
        if self.grid.nodes[node].room.refuses_writes() {
            return self.grid.node_after(life::RESTART_MS, node, NodeEvent::Start);
        }
        self.fates.shrink(&mut self.grid, node);
        life::start(&mut self.grid, node);
        let running = self.grid.nodes[node].running();
        let ids = running.map_or_else(Vec::new, |running| running.machines.negotiations.keys().cloned().collect());
        self.perform_ledger(node);
        for id in ids {
            self.perform_request(node, &id);
        }
    }

    /// Sends the answers that waited for what a node writes of a request, when that is on disk.
    pub(super) fn send_held_back(&mut self, node: usize, id: &RequestId) {
        if self.is_writing(node, &Actor::Request(id.clone())) {
            return;
        }
        let Some(running) = self.grid.running(node) else { return };
        let waiting = mem::take(&mut running.held_back).into_iter();
        let (due, others): (Vec<_>, Vec<_>) = waiting.partition(|(request, ..)| request == id);
        running.held_back = others;
        for (_, to, mut body) in due {
            let by = &self.grid.nodes[to].site;
            if let (Some(negotiation), Body::Answer { answer, .. }) = (self.grid.negotiation(node, id), &mut body) {
                answer.name_former_coordinator(|| negotiation.record().former_coordinator(by));
            }
            self.grid.send(node, to, body);
        }
    }

    fn ask(&mut self, node: usize, waiting: Waiting, request: SiteRequest, until: Moment) {
        let Some(to) = names::index_of(&waiting.site) else { return };
        let ask = self.grid.name();
        let Waiting { request: id, site, attempt, purpose } = waiting.clone();
        let forgets = self.grid.canary == Some(Canary::ReleaseNotRepeated) && purpose == Purpose::Release;
        let Some(running) = self.grid.running(node) else { return };
        running.waiting.insert(ask, waiting);
        let is_first = running.released.insert((id.clone(), attempt, site));
        self.grid.node_at(until, node, NodeEvent::Silence { ask });
        if is_first || !forgets {
            let question = Question::Negotiation { request: id, attempt, purpose };
            let request = self.attacker.abuse_own(&mut self.grid, node, request);
            let body = Body::Ask { ask, question, request };
            if !mutations::forgets_to_give_up(&mut self.grid, node, to, &body) {
                self.grid.send(node, to, body);
            }
        }
    }

    /// A question has got no answer in time.
    fn give_up(&mut self, node: usize, ask: u64) {
        let Some(waiting) = self.grid.running(node).and_then(|running| running.waiting.remove(&ask)) else { return };
        let Waiting { request, site, attempt, purpose } = waiting;
        let answer = Err("no answer in time".to_owned());
        self.feed_request(node, &request, negotiation::Event::Answer { site, attempt, purpose, answer });
    }

    /// A message arrives.
    pub fn arrive(&mut self, message: Message) {
        let Message { id, run, from, to, .. } = message;
        let dies_with_sender = from == to && run != self.grid.nodes[from].run;
        let now = self.clock(to).monotonic;
        let accepts_old = self.grid.canary == Some(Canary::AcceptOldSequence);
        let Some(running) = self.grid.running(to).filter(|_| !dies_with_sender) else {
            return self.grid.note_message("nobody there: ", &message);
        };
        let change = match &message.body {
            Body::Departure => {
                running.views.forget(from);
                None
            }
            Body::Gossip(gossip) => Some(running.views.receive_gossip(from, gossip, now)),
            Body::Schedules(schedules) => Some(running.views.receive_schedules(from, schedules, now, accepts_old)),
            Body::Ask { .. } | Body::Answer { .. } | Body::Fetch => None,
        };
        self.grid.note_message("", &message);
        if let Some(Change { before, is_news, has_gap }) = change {
            if is_news {
                checks::check_view(&mut self.grid, to, from, before);
            }
            if has_gap {
                self.fetch(to, from);
            }
        }
        match message.body {
            Body::Ask { ask, question, request } => self.arrive_question(to, (id, from, ask), question, request),
            Body::Answer { ask, question, answer } => self.arrive_answer(to, from, ask, &question, answer),
            Body::Fetch => self.answer_fetch(to, from),
            Body::Gossip(_) | Body::Schedules(_) | Body::Departure => {}
        }
    }

    fn arrive_question(
        &mut self,
        node: usize,
        (message, from, ask): (u64, usize, u64),
        question: Question,
        request: SiteRequest,
    ) {
        if let SiteRequest::Hold(hold) | SiteRequest::Book { hold, .. } = &request {
            self.attacker.abuse_others(&mut self.grid, node, hold);
        }
        let site: SiteId = self.grid.nodes[from].site.clone();
        let is_quote = matches!(request, SiteRequest::Quote(_));
        let request = mutations::mutate_question(&mut self.grid, from, request);
        let token = self.grid.name();
        let Some(running) = self.grid.running(node) else { return };
        let mut takes_over = None;
        if let SiteRequest::TakeOver { attempt, authorization, .. } = &request {
            if let Some(later) = running.later_authorization(authorization, &attempt.request)
                && let Some(answer) = running.machines.ledger.refusal_of_takeover(attempt, &site, later)
            {
                return self.grid.send(node, from, Body::Answer { ask, question, answer });
            }
            if running.is_arriving(&attempt.request) {
                return;
            }
            takes_over = Some((attempt.request.clone(), authorization.clone()));
        }
        mutations::mutate_policy(&self.grid, (node, from), &request);
        let network = mutations::network_seen(&self.grid, from);
        let Some(running) = self.grid.running(node) else { return };
        let is_confirm = matches!(request, SiteRequest::Confirm { .. } | SiteRequest::Book { .. });
        running.machines.askers.insert(token, Asker { from, ask, question, message, is_confirm, takes_over });
        let changes_nothing = is_quote || running.granted.contains(&message);
        let attempt = request.about().0.cloned().filter(|_| changes_nothing);
        if attempt.is_some() {
            // What changes because it was due is not changed by the message.
            self.tell_ledger_time(node);
        }
        let Some(running) = self.grid.running(node) else { return };
        let before = attempt.map(|attempt| (checks::booked(&running.machines.ledger, &attempt), attempt));
        let event = ledger::Event::Request { from: site, network, token: ReplyToken(token), request };
        self.handle_ledger(node, event);
        if let Some((before, attempt)) = before {
            checks::check_repeat(&mut self.grid, node, &attempt, &before);
        }
        self.perform_ledger(node);
    }

    /// The owner of a site has its ledger do something; the outputs are still to be let out.
    pub fn ask_as_owner(&mut self, node: usize, question: Question, event: impl FnOnce(ReplyToken) -> ledger::Event) {
        let (token, message) = (self.grid.name(), self.grid.name());
        let asker = Asker { from: node, ask: token, question, message, is_confirm: false, takes_over: None };
        let Some(running) = self.grid.running(node) else { return };
        running.machines.askers.insert(token, asker);
        self.handle_ledger(node, event(ReplyToken(token)));
    }

    /// Late and repeated answers reach the negotiation as well.
    fn arrive_answer(&mut self, node: usize, from: usize, ask: u64, question: &Question, answer: SiteAnswer) {
        let Some(answer) = mutations::mutate_answer(&mut self.grid, node, from, question, answer) else { return };
        let (at, now) = (self.now(), self.clock(node).monotonic);
        let Some(running) = self.grid.running(node) else { return };
        if answer.version().is_some_and(|version| running.views.receive_version(from, version, now)) {
            self.fetch(node, from);
        }
        let site = self.grid.nodes[from].site.clone();
        let Some(running) = self.grid.running(node) else { return };
        match question {
            Question::Negotiation { request, attempt, purpose } => {
                if running.waiting.remove(&ask).is_some()
                    && matches!(purpose, Purpose::Inspect(_))
                    && matches!(answer, SiteAnswer::Booked { .. })
                {
                    let (last, before) = running.inspected.entry((request.clone(), from)).or_default();
                    (*last, *before) = (at, *last);
                }
                let (attempt, purpose, answer) = (*attempt, *purpose, Ok(answer));
                self.feed_request(node, request, negotiation::Event::Answer { site, attempt, purpose, answer });
            }
            Question::Lookup { request, name } => {
                let lookup = running.lookups.get_mut(request).filter(|lookup| lookup.is_named(*name));
                if lookup.is_some_and(|lookup| lookup.receive(node, from, answer)) {
                    self.looked_up(node, request, *name);
                }
            }
            // An owner asks its own node, without a message; a hoarder leaves it at that.
            Question::Eviction { .. } | Question::Hoard(_) => {}
            Question::Attack(attempt) => attacker::receive_spoils(&mut self.grid, node, from, attempt, &answer),
            Question::Inquiry { attempt, round, run } => {
                if *run == self.grid.nodes[node].run {
                    self.receive_status(node, site, (attempt.clone(), *round), &answer);
                }
            }
        }
    }

    /// The attacker tries to take over what it has seen others request.
    pub fn steal(&mut self, node: usize, to: usize, attempt: AttemptId, authorization: Arc<Authorization>) {
        self.attacker.steal(&mut self.grid, node, to, attempt, authorization);
    }

    /// A user submits a request through an entry point, which runs, with its plan of a batch if it is of one.
    pub fn submit(&mut self, entry_point: usize, asked: (u64, Request), of_batch: Option<HandedPlan>) {
        if let Some(record) = user_actions::submit(&mut self.grid, entry_point, asked, of_batch) {
            self.write(entry_point, Actor::Request(record.id.clone()), Write::Request(Box::new(record)));
        }
    }

    /// A user cancels a request.
    pub fn cancel(&mut self, number: u64) {
        if let Some((node, id)) = user_actions::cancel(&mut self.grid, number) {
            self.feed_request(node, &id, negotiation::Event::Cancel);
        }
    }

    /// A node shows a request to its user.
    fn show(&mut self, node: usize, id: &RequestId) {
        if self.grid.users.get(id).is_some_and(|user| user.entry_point != node) {
            if user_actions::may_go_over(&mut self.grid, node, id) {
                self.feed_request(node, id, negotiation::Event::Cancel);
            }
            // A cancellation that the user has taken there is shown when it is on disk.
            if self.is_writing(node, &Actor::Request(id.clone())) {
                return;
            }
        }
        user_actions::look(&mut self.grid, node, id);
    }

    /// The sites have answered what they have of a request that this node is to take over.
    fn looked_up(&mut self, node: usize, id: &RequestId, name: u64) {
        if let Some(record) = user_actions::sign_over(&mut self.grid, node, id, name) {
            self.write(node, Actor::Request(id.clone()), Write::Request(Box::new(record)));
        }
    }
}
