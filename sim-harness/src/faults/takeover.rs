//! A user goes with a request to another node: that looks up what sites have of it, and acts for it from then on.
//!
//! Invariant: it does what `kolo repair` and the node behind it do. What a node carries for a user is on its disk before it
//! acts.

use std::collections::BTreeSet;

use broker::{
    ids::RequestId,
    negotiation::{self, Decision, Outcome, RequestRecord, Stage},
    protocol::{SiteAnswer, SiteRequest},
    request::Request,
    time::{Span, Time},
    trust::{Authorization, RequestStatement},
};
use rand::seq::IndexedRandom;

use super::{
    canary::Canary,
    credentials,
    message::{Body, Question},
    names,
    node::Lookup,
    users::{CLOCKS_DIFFER, Reported},
    world::{Event, World},
};
use crate::engine::{Actor, Medium, Write};

impl World {
    /// A user asks a node, other than the present one, to act for a request; `only_if_gone`: when the present one is gone
    /// for good.
    pub(super) fn go_to_another(&mut self, number: u64, only_if_gone: bool) {
        let id = names::request(number);
        let Some(user) = self.users.get(&id) else { return };
        let is_wanted = !only_if_gone || self.nodes[user.entry_point].is_gone();
        if user.is_taken_back || matches!(user.told, Reported::Over(_)) || !is_wanted {
            return;
        }
        let others: Vec<usize> =
            (0..self.nodes.len()).filter(|node| *node != user.entry_point && self.can_take_over(*node, &id)).collect();
        if let Some(&node) = others.choose(&mut self.fates) {
            self.go_to(node, &id);
        }
    }

    /// The user of a request asks this node, which runs, to act for it.
    pub(super) fn go_to(&mut self, node: usize, id: &RequestId) {
        let (name, run) = (self.name(), self.nodes[node].run);
        let waiting: BTreeSet<usize> = (0..self.nodes.len()).collect();
        if let Some(running) = self.running(node) {
            running.lookups.insert(id.clone(), Lookup { name, waiting: waiting.clone(), ..Lookup::default() });
        }
        self.note(Some(id), format_args!("the user wants s{node} to take it over"));
        for to in waiting {
            let ask = self.name();
            let question = Question::Lookup { request: id.clone(), name };
            self.send(node, to, Body::Ask { ask, question, request: SiteRequest::Lookup(id.clone()) });
        }
        let until = self.clock(node).monotonic + self.options.answer_timeout;
        let until = self.nodes[node].clock.when(until);
        self.at(until, Event::LookedUp { node, run, request: id.clone(), name });
    }

    /// Whether a node runs, and does not carry the request already.
    pub(super) fn can_take_over(&self, node: usize, id: &RequestId) -> bool {
        let Some(running) = self.nodes[node].running() else { return false };
        let is_free = running.machines.negotiations.get(id).is_none_or(|negotiation| {
            let stage = negotiation.stage();
            matches!(stage, Stage::Closed { outcome: Outcome::HandedOver, releasing: false })
        });
        let actor = Actor::Request(id.clone());
        is_free && !running.lookups.contains_key(id) && !running.writes.values().any(|(whose, _)| *whose == actor)
    }

    pub(super) fn hear_looked_up(
        &mut self,
        node: usize,
        from: usize,
        (id, name): (&RequestId, u64),
        answer: SiteAnswer,
    ) {
        let site = self.nodes[from].site.clone();
        let Some(running) = self.running(node) else { return };
        let Some(lookup) = running.lookups.get_mut(id).filter(|lookup| lookup.name == name) else { return };
        let SiteAnswer::Found { parts, is_coordinated, .. } = answer else { return };
        if lookup.waiting.remove(&from) {
            lookup.heard.parts.extend(parts.into_iter().map(|part| (site.clone(), part)));
            lookup.heard.coordinating.extend(Some(site).filter(|_| is_coordinated && from != node));
        }
        if lookup.waiting.is_empty() {
            self.looked_up(node, id, name);
        }
    }

    /// All sites have answered, or have had the time to: the user signs, and what there is is written down.
    pub(super) fn looked_up(&mut self, node: usize, id: &RequestId, name: u64) {
        let Some(running) = self.running(node) else { return };
        if running.lookups.get(id).is_none_or(|lookup| lookup.name != name) {
            return;
        }
        let Some(mut lookup) = running.lookups.remove(id) else { return };
        if !self.can_take_over(node, id) || self.users.get(id).is_none_or(|user| user.is_taken_back) {
            return;
        }
        let silent = lookup.waiting.iter().filter(|silent| **silent != node);
        lookup.heard.silent = silent.map(|silent| self.nodes[*silent].site.clone()).collect();
        if self.canary == Some(Canary::SuccessorsUntold) {
            lookup.heard.coordinating.clear();
            lookup.heard.silent.clear();
        }
        lookup.heard.parts.sort_by(|a, b| (&a.0, &a.1.attempt).cmp(&(&b.0, &b.1.attempt)));
        let Some((number, request)) = self.users.get(id).map(|user| (user.number, user.request.clone())) else {
            return;
        };
        let now = self.clock(node).utc;
        let starts = request.starts(now, Span(3_600)).unwrap_or((now, now));
        let signed = lookup.heard.parts.iter().filter_map(|(_, part)| part.statement.open::<RequestStatement>().ok());
        let last = signed.map(|statement| statement.issued + Span(1)).max();
        let issued = self.utc().max(last.unwrap_or_default());
        let expires = issued.max(starts.1) + request.duration() + CLOCKS_DIFFER;
        let authorization = self.sign_for(node, (id, &request), number, (issued, expires));
        let name = format!("user {number}");
        let mut record = RequestRecord::arrived(id.clone(), name, request, authorization, self.now().ms(), starts);
        if let Some(known) = self.nodes[node].disk.requests.get(id) {
            record.last_attempt = known.last_attempt;
        }
        match record.take_over(&lookup.heard) {
            Err(error) => self.note(Some(id), format_args!("s{node} does not: {error}")),
            Ok(record) => {
                self.figures.taken_over += 1;
                self.users.sign_for(id, node);
                if let Some(running) = self.running(node) {
                    running.machines.negotiations.remove(id);
                }
                self.write(node, Actor::Request(id.clone()), Write::Request(Box::new(record)));
            }
        }
    }

    /// What the user of a request signs for a node.
    pub(super) fn sign_for(
        &self,
        node: usize,
        (id, request): (&RequestId, &Request),
        number: u64,
        (issued, expires): (Time, Time),
    ) -> Authorization {
        let statement = RequestStatement {
            grid: self.trust.grid().to_owned(),
            entry_point: self.nodes[node].site.clone(),
            id: id.clone(),
            request: request.clone(),
            issued,
            expires,
        };
        let signed = credentials::sign(&self.options, self.users.signing_key(number), &statement);
        Authorization { entry_point: self.nodes[node].credentials.clone(), ..signed }
    }

    /// A node that the user of a request is not with shows it: the user goes there if that is who was asked last.
    pub(super) fn may_go_over(&mut self, node: usize, id: &RequestId) {
        let Some(negotiation) = self.nodes[node].running().and_then(|running| running.machines.negotiations.get(id))
        else {
            return;
        };
        let record = negotiation.record();
        if record.taken_over.is_empty() || matches!(record.decision, Decision::Closed(_)) {
            return;
        }
        let statement = record.authorization.as_ref().and_then(|own| own.request.open::<RequestStatement>().ok());
        let Some(statement) = statement else { return };
        if self.users.go_over(id, node, (statement.issued, statement.entry_point)) {
            self.note(Some(id), format_args!("the user is with s{node} now"));
            if self.users.get(id).is_some_and(|user| user.is_taken_back) {
                self.feed_request(node, id, negotiation::Event::Cancel);
            }
        }
    }
}
