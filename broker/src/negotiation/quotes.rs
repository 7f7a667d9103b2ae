//! Quotes: before seats are held where own jobs wait, their sites say what that would cost these jobs, and of plans that are worth the same
//! the one that costs them least is held.
//!
//! Invariant: a quote decides nothing but which plan is tried first. A search asks for at most three rounds of them, each ends when all
//! have answered or [`Negotiation::quotes_end_at`], and the own jobs that quotes show are forgotten when a plan is held.

use std::collections::BTreeSet;

use super::{Negotiation, NegotiationSettings, Purpose, QuoteReport, State, hints::Hints};
use crate::{
    ids::SiteId,
    phases::PhaseObserver,
    plan::Plan,
    protocol::{Quote, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    time::{Millis, Now},
};

/// Most rounds of quotes of a search; later plans are held without.
const ROUNDS_MAX: u32 = 3;

/// A plan that may be held.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub plan: Plan,
    /// Of a plan that its one site books at once: the incarnation of its ledger.
    pub incarnation: Option<u64>,
}

/// What a search has learned from quotes.
#[derive(Debug, Default)]
pub(super) struct Quotes {
    /// Rounds so far.
    rounds: u32,
    /// What was known of hosts before sites showed the own jobs that wait there; none outside of a series of rounds.
    before: Option<Hints>,
    /// The proposal of the series that costs least, and its cost.
    least: Option<(Quote, Proposal)>,
}

impl Quotes {
    /// Whether there is to be one more round.
    pub fn may_begin(&self) -> bool {
        self.rounds < ROUNDS_MAX
    }

    /// The number of a new round, if there is to be one more; `hints` are what is known before it.
    pub fn begin(&mut self, hints: &Hints) -> Option<u32> {
        if !self.may_begin() {
            return None;
        }
        self.rounds += 1;
        self.before.get_or_insert_with(|| hints.clone());
        Some(self.rounds)
    }

    /// Whether this is the last round that was begun.
    pub fn is_last(&self, round: u32) -> bool {
        self.rounds == round
    }

    /// Notes what a proposal costs.
    pub fn note(&mut self, cost: Quote, proposal: Proposal) {
        if self.least.as_ref().is_none_or(|(least, _)| cost < *least) {
            self.least = Some((cost, proposal));
        }
    }

    /// The proposal that costs least.
    pub fn least(&mut self) -> Option<Proposal> {
        self.least.take().map(|(_, proposal)| proposal)
    }

    /// What was known before the series that goes on, if one does.
    pub fn before(&mut self) -> Option<&mut Hints> {
        self.before.as_mut()
    }

    /// Ends the series: `hints` are again what they were before it, with what was refused since.
    pub fn end(&mut self, hints: &mut Hints) {
        if let Some(before) = self.before.take() {
            *hints = before;
        }
        self.least = None;
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

/// Whether the hold may be granted all the same: a site may be busy for a moment, and a hold gives back what an earlier attempt has
/// held.
fn may_pass(refusal: &Refusal) -> bool {
    refusal.is_shortened() || matches!(refusal.reason, RefusalReason::Busy | RefusalReason::OtherAttempt)
}

impl Negotiation {
    /// Holds a proposal, or first asks those of its sites for a quote that give one.
    pub(super) fn propose(&mut self, now: Now, proposal: Proposal) {
        let waiting = self.search.sites_to_quote(&proposal.plan);
        let authorization = self.record.authorization.clone().filter(|_| !waiting.is_empty());
        let begun =
            authorization.and_then(|authorization| Some((authorization, self.search.lessons().begin_quotes()?)));
        let Some((authorization, round)) = begun else { return self.hold(now, proposal) };
        let attempt = self.attempt_id(self.record.last_attempt + 1);
        for (site, hold) in self.holds_of(&proposal.plan, &attempt, &authorization.into()) {
            if waiting.contains(&site) {
                self.ask(site, Purpose::Quote(round), SiteRequest::Quote(hold));
            }
        }
        let (cost, is_refused, asked_at) = (Quote::default(), false, now.monotonic);
        self.state = State::Quoting(Box::new(Quoting { proposal, waiting, cost, is_refused, asked_at }));
    }

    fn hold(&mut self, now: Now, Proposal { plan, incarnation }: Proposal) {
        self.search.lessons().end_quotes();
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
        if !self.search.lessons().quotes().is_last(round) || !quoting.waiting.remove(site) {
            return;
        }
        let hosts_max = self.record.request.seats_max();
        let answer = match answer {
            Ok(SiteAnswer::Quoted { quote, hosts, version }) => {
                quoting.cost = quoting.cost.and(quote);
                self.search.lessons().remember_quoted(site, version, hosts, hosts_max);
                quote.to_string()
            }
            Ok(SiteAnswer::Refused(refusal)) if !may_pass(&refusal) => {
                // A round counts as one conflict, and what is refused for good is learned of each site, as of an attempt.
                let is_first = !std::mem::replace(&mut quoting.is_refused, true);
                let words = format!("would refuse: {}", refusal.reason);
                if is_first || !refusal.shows_what_is_free() {
                    self.search.learn(site, refusal, (hosts_max, None));
                } else {
                    self.search.remember(site, refusal, (hosts_max, None));
                }
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
            self.search.lessons().quotes().note(cost, proposal);
        }
        let settings: &NegotiationSettings = &self.settings;
        let other = self.search.plan_beside(now, settings, &mut self.random, observer);
        if let Some((round, proposal)) = other {
            self.record.history.add_round(round);
            return self.propose(now, proposal);
        }
        match self.search.lessons().quotes().least() {
            Some(least) => self.hold(now, least),
            None => {
                self.search.lessons().end_quotes();
                self.find();
            }
        }
    }
}
