//! Quotes: before seats are held where own jobs wait, their sites say what that would cost these jobs, and of plans that are worth the same
//! the one that costs them least is held.
//!
//! Invariant: a quote decides nothing but which plan is tried first. A search asks for at most three rounds of them, each ends when all
//! have answered or [`Negotiation::quotes_end_at`], and what answers show beside what is reserved is forgotten when a plan is held.

use std::collections::BTreeSet;

use super::{Negotiation, NegotiationSettings, Output, Purpose, QuoteReport, State, search::Next};
use crate::{
    ids::SiteId,
    phases::PhaseObserver,
    plan::Plan,
    protocol::{Quote, SiteAnswer, SiteRequest},
    time::{Millis, Now},
};

/// A plan that may be held.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub plan: Plan,
    /// Of a plan that its one site books at once: the incarnation of its ledger.
    pub incarnation: Option<u64>,
}

impl Proposal {
    /// What is to be held next, if anything is.
    pub fn of(next: Next) -> Result<Proposal, Box<Next>> {
        match next {
            Next::Hold(plan) => Ok(Proposal { plan, incarnation: None }),
            Next::Book(plan, incarnation) => Ok(Proposal { plan, incarnation: Some(incarnation) }),
            other => Err(Box::new(other)),
        }
    }
}

/// A proposal whose sites are asked what it costs.
#[derive(Debug)]
pub(super) struct Quoting {
    proposal: Proposal,
    /// Those that have not answered.
    waiting: BTreeSet<SiteId>,
    /// What those that have answered say, added up.
    cost: Quote,
    /// Whether one of them would refuse.
    is_refused: bool,
    asked_at: Millis,
}

impl Negotiation {
    /// Holds a proposal, or first asks those of its sites for a quote that give one.
    pub(super) fn propose(&mut self, now: Now, proposal: Proposal) {
        let waiting = self.search.sites_to_quote(&proposal.plan);
        let authorization = self.record.authorization.clone().filter(|_| !waiting.is_empty());
        let (Some(authorization), Some(round)) = (authorization, self.search.begin_quotes()) else {
            return self.hold(now, proposal);
        };
        let attempt = self.attempt_id(self.record.last_attempt + 1);
        for (site, hold) in self.holds_of(&proposal.plan, &attempt, &authorization.into()) {
            if waiting.contains(&site) {
                self.outputs.push_back(Output::Ask {
                    site,
                    attempt: self.record.last_attempt,
                    purpose: Purpose::Quote(round),
                    request: SiteRequest::Quote(hold),
                    timeout: self.settings.answer_timeout,
                });
            }
        }
        let (cost, is_refused, asked_at) = (Quote::default(), false, now.monotonic);
        self.state = State::Quoting(Box::new(Quoting { proposal, waiting, cost, is_refused, asked_at }));
    }

    fn hold(&mut self, now: Now, Proposal { plan, incarnation }: Proposal) {
        self.search.end_quotes();
        match incarnation {
            Some(incarnation) => self.book(now, plan, incarnation),
            None => self.ask_to_hold(now, plan),
        }
    }

    /// When a round of quotes is over that was asked for then, whoever has not answered.
    pub(super) fn quotes_end_at(&self, quoting: &Quoting) -> Millis {
        quoting.asked_at + self.settings.answer_timeout
    }

    /// A site has answered, or has not, in a round of quotes.
    pub(super) fn on_quoted(&mut self, site: &SiteId, round: u32, answer: Result<SiteAnswer, String>) {
        let State::Quoting(quoting) = &mut self.state else { return };
        if !self.search.is_quoting(round) || !quoting.waiting.remove(site) {
            return;
        }
        let answer = match answer {
            Ok(SiteAnswer::Quoted { quote, hosts, version }) => {
                quoting.cost = quoting.cost.and(quote);
                self.search.remember_quoted(site, version, hosts);
                quote.to_string()
            }
            Ok(SiteAnswer::Refused(refusal)) => {
                quoting.is_refused = true;
                let words = format!("would refuse: {}", refusal.reason);
                self.search.learn(site, refusal, (self.record.request.seats_max(), None));
                words
            }
            // The hold will tell.
            Ok(_) | Err(_) => "no quote".to_owned(),
        };
        self.record.history.note_quote(QuoteReport { site: site.clone(), answer });
    }

    /// Goes on when a round of quotes is over: with the proposal if it costs nothing, else with another one that is worth as much, as long
    /// as there are some, and then with the one of those that costs least.
    pub(super) fn end_quoting(&mut self, now: Now, observer: &mut impl PhaseObserver) {
        let State::Quoting(quoting) = &self.state else { return };
        if !quoting.waiting.is_empty() && self.quotes_end_at(quoting) > now.monotonic {
            return;
        }
        let State::Quoting(quoting) = std::mem::replace(&mut self.state, State::Finding) else { return };
        let Quoting { proposal, cost, is_refused, .. } = *quoting;
        if !is_refused {
            if cost == Quote::default() {
                return self.hold(now, proposal);
            }
            self.search.note_quoted(cost, proposal);
        }
        let settings: &NegotiationSettings = &self.settings;
        let other = self.search.plan_beside(now, settings, &mut self.random, observer);
        if let Some((round, next)) = other
            && let Ok(proposal) = Proposal::of(next)
        {
            self.record.history.add_round(round);
            return self.propose(now, proposal);
        }
        match self.search.least_quoted() {
            Some(least) => self.hold(now, least),
            None => {
                self.search.end_quotes();
                self.find();
            }
        }
    }
}
