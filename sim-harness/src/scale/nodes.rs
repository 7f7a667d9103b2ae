//! What surrounds the state machines of simulated nodes: one disk each, exact clocks, the modelled network.
//!
//! A disk is modelled by delays: a record counts as written at once, and what its machine lets out behind it leaves when the
//! disk is done. Invariant: no answer leaves before the changes in front of it are on disk.

use std::time::Duration;

use broker::{
    ids::{RequestId, SiteId},
    ledger::{self, ReplyToken, ScheduleUpdateParts},
    negotiation::{self, Output, Purpose},
    protocol::{AttemptId, RefusalReason, SiteAnswer, SiteRequest},
    time::{Millis, Now},
};
use discovery::config::SILENCE_REMEMBERED;

use super::{
    chance::drawn,
    costs,
    requests::{Submitted, number_of},
    site::{Asker, Touch},
    traffic::Kind,
    world::{Body, Event, World},
};
use crate::engine::{Actor, Disk, Machines, Medium, Moment, Write};

impl Medium for World {
    type Asker = Asker;

    fn now(&self) -> Moment {
        World::now(self)
    }

    fn clock(&self, _: usize) -> Now {
        self.clocks()
    }

    fn when(&self, _: usize, at: Millis) -> Moment {
        Moment::of_ms(at.0).max(self.now() + Duration::from_micros(1))
    }

    fn plan_wake(&mut self, site: usize, at: Moment) {
        let run = self.sites[site].run;
        self.at(at, Event::Wake { site, run });
    }

    fn machines(&mut self, site: usize) -> Option<&mut Machines<Asker>> {
        self.sites[site].machines.as_mut()
    }

    fn disk(&self, site: usize) -> &Disk {
        &self.sites[site].disk
    }

    fn is_writing(&self, _: usize, _: &Actor) -> bool {
        false
    }

    fn stops_here(&mut self, _: usize) -> bool {
        false
    }

    fn persist(&mut self, site: usize, actor: Actor, write: Write) {
        let done = self.now() + self.settings.disk;
        let own = &mut self.sites[site];
        own.disk.apply(write);
        let free_at = match &actor {
            Actor::Ledger => Some(&mut own.disk_free_at),
            Actor::Request(id) => number_of(id).map(|number| &mut self.requests[number].free_at),
        };
        if let Some(free_at) = free_at {
            *free_at = done.max(*free_at);
        }
    }

    fn publish(&mut self, site: usize, update: ScheduleUpdateParts) {
        self.changed(site, update);
    }

    fn reply(&mut self, site: usize, asker: Asker, mut answer: SiteAnswer) {
        self.count_hold(site, &asker, &answer);
        let to = match &asker {
            Asker::Coordinator { request, .. } => self.requests[*request].entry,
            Asker::Participant { from, attempt, .. } => {
                if let SiteAnswer::Status { decision, .. } = &mut answer {
                    let from = self.sites[*from].id.clone();
                    *decision = self.decision_of(site, attempt, &from);
                }
                *from
            }
        };
        let bytes = costs::answer_bytes(&answer);
        let at = self.sites[site].disk_free_at;
        self.send(at, site, to, (Kind::Direct, bytes), Body::Answer { asker, answer });
    }

    fn inquire(&mut self, site: usize, to: &SiteId, attempt: AttemptId, round: u32) {
        let Some(to) = self.index.get(to).copied() else { return };
        if to == site {
            return self.inquire_of_itself(site, attempt, round);
        }
        let request = SiteRequest::Inquire(attempt.clone());
        let bytes = costs::request_bytes(&request);
        let asker = Asker::Participant { from: site, attempt, round };
        self.send(self.now(), site, to, (Kind::Direct, bytes), Body::Ask { asker, request });
    }

    fn seek(&mut self, site: usize, id: &RequestId, output: Output) {
        let Some(request) = number_of(id) else { return };
        match output {
            Output::Find { count, seed, exclude, .. } => self.search(request, count, seed, &exclude),
            Output::Ask { site: to, attempt, purpose, request: question, timeout } => {
                let Some(to) = self.index.get(&to).copied() else { return };
                let submitted = &self.requests[request];
                // A request that is being written down for the first time may be planned and held for already.
                let waits = self.sites[site].disk.requests.get(id).is_some_and(|record| record.last_attempt > 0);
                let at = if waits { submitted.free_at.max(self.now()) } else { self.now() };
                let planned = submitted.planned.get(&to).copied();
                let until = at.plus_ms(timeout.0);
                let asker = Asker::Coordinator { request, attempt, purpose, until, planned };
                let bytes = costs::request_bytes(&question);
                self.send(at, site, to, (Kind::Direct, bytes), Body::Ask { asker, request: question });
            }
            Output::Persist(_) => {}
        }
    }

    fn after_request(&mut self, _: usize, id: &RequestId) {
        if let Some(request) = number_of(id) {
            self.note_settled(request);
        }
    }
}

impl World {
    pub(super) fn arrive_question(&mut self, site: usize, from: usize, asker: Asker, request: SiteRequest) {
        let token = self.name();
        let from = self.sites[from].id.clone();
        if let Some(machines) = self.machines(site) {
            machines.askers.insert(token, asker);
        }
        self.feed_ledger(site, ledger::Event::Request { from, token: ReplyToken(token), request });
    }

    /// An answer has reached the node that asked.
    pub(super) fn arrive_answer(&mut self, site: usize, node: usize, asker: Asker, answer: SiteAnswer) {
        let id = self.sites[site].id.clone();
        match asker {
            Asker::Coordinator { request, attempt, purpose, .. } => {
                self.sites[node].silent.remove(&site);
                self.note_version(node, site, request, &answer);
                self.answer_request(request, (id, attempt, purpose), Ok(answer));
            }
            Asker::Participant { attempt, round, .. } => self.receive_status(node, id, (attempt, round), &answer),
        }
    }

    /// The time for an answer is over.
    pub(super) fn give_up(&mut self, asker: &Asker, site: usize) {
        let Asker::Coordinator { request, attempt, purpose, .. } = *asker else { return };
        let until = self.now().plus_ms(SILENCE_REMEMBERED.0);
        self.sites[self.requests[request].entry].silent.insert(site, until);
        let site = self.sites[site].id.clone();
        self.answer_request(request, (site, attempt, purpose), Err("no answer in time".to_owned()));
    }

    fn answer_request(
        &mut self,
        request: usize,
        (site, attempt, purpose): (SiteId, u32, Purpose),
        answer: Result<SiteAnswer, String>,
    ) {
        let Submitted { entry, id, .. } = &self.requests[request];
        let (entry, id) = (*entry, id.clone());
        self.feed_request(entry, &id, negotiation::Event::Answer { site, attempt, purpose, answer });
    }

    /// A direct answer carries the version of its site's ledger: it confirms the known schedules, or shows that a change was
    /// missed.
    fn note_version(&mut self, node: usize, site: usize, request: usize, answer: &SiteAnswer) {
        let Some(version) = answer.version() else { return };
        if node == site || !self.knows(node, site) {
            return;
        }
        let now = self.now();
        if self.requests[request].planned.get(&site) == Some(&version) {
            let touch = Touch { at: now, as_of: now.before(self.earth.one_way(node, site)) };
            self.sites[node].touched.insert(site, touch);
        } else if self.sites[node].wanted.insert(site) {
            let wait = self.missed_wait(drawn([self.settings.seed, now.0 as u64, site as u64]));
            let run = self.sites[node].run;
            self.after(wait, Event::Repair { node, run, site });
        }
    }

    /// Counts the answer to a hold, by how old the schedules were that it was planned on.
    fn count_hold(&mut self, site: usize, asker: &Asker, answer: &SiteAnswer) {
        let Asker::Coordinator { purpose: Purpose::Hold, planned: Some(version), .. } = asker else { return };
        let unseen = self.sites[site].went_beyond(*version).map(|at| self.now() - at);
        let (is_taken, by_hold) = match answer {
            SiteAnswer::Refused(refusal) => match refusal.reason {
                RefusalReason::NotEnough { .. } => (true, false),
                RefusalReason::HeldByAnother { .. } => (true, true),
                _ => return,
            },
            _ => (false, false),
        };
        self.counts.count_hold(unseen, is_taken, by_hold);
    }
}
