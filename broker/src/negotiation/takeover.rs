//! A reservation that goes over from one node to another, because its user wants that: how the new one makes out what there
//! is, and how the old one lets go.
//!
//! Invariant: what the new one goes on with are whole bookings, no more hosts than were asked for; everything else that
//! may be there of the request is owed a release, so that nothing stays behind that nobody looks after.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Decision, Loss, Negotiation, Outcome, Owed, Part, RequestRecord, Standing, State, losses::Watch};
use crate::{
    amount::Amount,
    canary::{self, Canary},
    ids::SiteId,
    plan::{Allocation, HostGrant},
    protocol::{AttemptId, BookedPart, Refusal, RefusalReason, SiteRequest},
    request::Request,
    resources::amount_of,
    time::{Millis, Now, Window},
    trust::{Authorization, RequestStatement, SignedText},
};

/// What a node that lets go still has is given back only after `lost_after` times this: the node that acts now may not have
/// reached all sites, and counts those that it cannot reach as lost after that time.
const TIME_FOR_ANOTHER: u64 = 2;

/// What sites tell of one request is no reservation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeOverError {
    /// Nobody has anything of it.
    #[error("no site that answers has anything reserved for it")]
    Nothing,
}

/// What becomes of a reservation that is taken over.
#[derive(Debug, PartialEq)]
pub(super) struct Taken {
    /// What is gone on with.
    pub(super) standing: Standing,
    /// The names of all its tries, by the numbers that they have here.
    pub(super) names: BTreeMap<u32, AttemptId>,
    /// What is given up, and who must hear that another node acts now.
    pub(super) owed: Vec<Owed>,
}

/// Most sites that are told of a takeover because they may carry the request for all that was heard of them. Of more, those
/// that have said that they do come first, then others in the order of their names.
const MAY_CARRY_IT_MAX: usize = 256;

/// Most nodes that are told to let go because some site has named them: more than a user goes to, and one that lies cannot
/// name without end.
const TOLD_TO_LET_GO_MAX: usize = 16;

/// Most parts of a reservation, besides those that were told of when it was taken over, that a node takes over to give them
/// back: a site that lies cannot name without end.
const BESIDES_MAX: usize = 64;

type Told = (SiteId, BookedPart);

/// What sites tell a node of a request that its user wants it to take over.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// What is reserved, with the sites that have it.
    pub parts: Vec<(SiteId, BookedPart)>,
    /// Other sites whose nodes carry the request, or are about to.
    pub carrying: BTreeSet<SiteId>,
    /// Other sites that have not answered: their nodes may carry it.
    pub silent: BTreeSet<SiteId>,
}

impl Taken {
    /// Makes out of what sites tell what can be gone on with. Tries get numbers above `last_attempt` and above all that
    /// they have themselves, so that they cannot be confused with the tries to come.
    pub(super) fn of(request: &Request, heard: &Heard, last_attempt: u32) -> Result<Taken, TakeOverError> {
        let parts = &heard.parts;
        let standing = chosen(request, parts);
        let window = standing.first().ok_or(TakeOverError::Nothing)?.1.window;
        let attempts: BTreeSet<&AttemptId> = parts.iter().map(|(_, part)| &part.attempt).collect();
        let highest = attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or(0).max(last_attempt);
        let numbers: BTreeMap<&AttemptId, u32> = attempts.into_iter().zip(highest.saturating_add(1)..).collect();

        let mut by_try: BTreeMap<u32, Part> = BTreeMap::new();
        let mut grants = Vec::new();
        for (site, part) in &standing {
            let attempt = numbers[&part.attempt];
            let of_try = by_try.entry(attempt).or_insert_with(|| Part { attempt, hosts: BTreeSet::new() });
            for grant in &part.grants {
                of_try.hosts.insert((site.clone(), grant.host.clone()));
                let (host, amounts) = (grant.host.clone(), grant.amounts.clone());
                grants.push(HostGrant { site: site.clone(), host, amounts });
            }
        }
        grants.sort_by(|a, b| (&a.site, &a.host).cmp(&(&b.site, &b.host)));
        let allocation =
            Allocation { start: window.start, grants, efficiency: 0.0, efficiency_bound: 1.0, start_proven: false };
        let standing = Standing {
            allocation,
            parts: by_try.into_values().collect(),
            lost: BTreeMap::new(),
            repair: None,
            repairs: 0,
            failure: None,
        };
        let kept: BTreeSet<(u32, SiteId)> = standing.bookings().into_iter().collect();
        let mut others = BTreeSet::new();
        for (_, part) in parts {
            let attempt = numbers[&part.attempt];
            let concerned = part.participants.iter().chain([&part.attempt.entry_point]);
            others.extend(concerned.map(|site| (attempt, site.clone())));
            // Who acts for it at present may be neither.
            let statement = part.statement.open::<RequestStatement>();
            others.extend(statement.ok().map(|statement| (attempt, statement.entry_point)));
        }
        others.extend(parts.iter().map(|(site, part)| (numbers[&part.attempt], site.clone())));
        let last = numbers.values().copied().max().unwrap_or(highest);
        let concerned: BTreeSet<SiteId> = kept.iter().chain(&others).map(|(_, site)| site.clone()).collect();
        // Two nodes that begin at the same time, or at two ends of a cut, may not have a single booking in common: each has
        // to hear of the other by itself. They are told as if they had a part of the last try.
        let silent = heard.silent.iter().filter(|site| !heard.carrying.contains(*site));
        let may_carry_it = heard.carrying.iter().chain(silent).filter(|site| !concerned.contains(*site));
        let may_carry_it = may_carry_it.filter(|_| !canary::is_on(Canary::SuccessorsUntold));
        others.extend(may_carry_it.take(MAY_CARRY_IT_MAX).map(|site| (last, site.clone())));
        let owed = others.difference(&kept).map(|(attempt, site)| Owed { site: site.clone(), attempt: *attempt });
        let owed = owed.collect();
        let names = numbers.into_iter().map(|(name, number)| (number, name.clone())).collect();
        Ok(Taken { standing, names, owed })
    }
}

/// The bookings to go on with: those of the time at which most hosts are reserved. Among them the last try that is whole by
/// itself, else the last ones first, as many as are asked for.
fn chosen<'a>(request: &Request, parts: &'a [Told]) -> Vec<&'a Told> {
    let is_something = |told: &&Told| !told.1.grants.is_empty();
    let hosts_of = |told: &[&Told]| told.iter().map(|(_, part)| part.grants.len()).sum::<usize>();
    let mut by_window: BTreeMap<Window, Vec<&Told>> = BTreeMap::new();
    for told in parts.iter().filter(is_something) {
        by_window.entry(told.1.window).or_default().push(told);
    }
    let last_of = |told: &[&Told]| told.iter().map(|(_, part)| part.attempt.attempt).max();
    let most = by_window.into_values().max_by_key(|told| (hosts_of(told).min(request.hosts()), last_of(told)));
    let Some(mut told) = most else { return Vec::new() };
    told.sort_by(|(a_site, a), (b_site, b)| {
        let of = |part: &'a BookedPart| (part.attempt.attempt, &part.attempt.entry_point);
        of(b).cmp(&of(a)).then_with(|| a_site.cmp(b_site))
    });
    for of_try in told.chunk_by(|a, b| a.1.attempt == b.1.attempt) {
        if hosts_of(of_try) == request.hosts() {
            return of_try.to_vec();
        }
    }
    let mut chosen: Vec<&Told> = Vec::new();
    for one in told {
        // An earlier try may have left a booking behind on a host that a later one has again.
        let is_again = chosen.iter().any(|other| shares_host(one, other));
        if !is_again && hosts_of(&chosen) + one.1.grants.len() <= request.hosts() {
            chosen.push(one);
        }
    }
    // Parts of different tries may not add up to what was asked for; what is left out is made good for like a loss.
    if hosts_of(&chosen) == request.hosts() && !has_totals(request, &chosen) {
        chosen.pop();
    }
    chosen
}

fn shares_host((site, part): &Told, (other_site, other): &Told) -> bool {
    site == other_site && part.grants.iter().any(|grant| other.grants.iter().any(|one| one.host == grant.host))
}

fn has_totals(request: &Request, chosen: &[&Told]) -> bool {
    request.total().iter().all(|(name, total)| {
        let grants = chosen.iter().flat_map(|(_, part)| &part.grants);
        grants.fold(Amount::ZERO, |sum, grant| sum + amount_of(&grant.amounts, name)) >= *total
    })
}

impl RequestRecord {
    /// The word of the user's by which this node acts for the request, or has left it to another one, if that is later than
    /// the one by which a node says that it does. That one is not to be given anything of it: it hears that the request is
    /// in other hands.
    #[must_use]
    pub fn keeps_from(&self, authorization: &Authorization) -> Option<Arc<SignedText>> {
        let word = self.word_of_user(&authorization.request)?;
        let present = self.present_word().filter(|_| self.is_later_word(&word))?;
        Some(Arc::new(present.request.clone()))
    }

    /// What the user has signed for the node that acts now, as far as this one knows.
    fn present_word(&self) -> Option<&Authorization> {
        let is_left = matches!(self.decision, Decision::Closed(Outcome::HandedOver));
        if is_left { self.handed_to.as_ref() } else { self.authorization.as_ref() }
    }

    /// Whether what the user has signed for the node that acts now, as far as this one knows, is later than `other`. Words
    /// of the same second are ordered by the names of their nodes.
    fn is_later_word(&self, other: &RequestStatement) -> bool {
        let word = self.present_word().and_then(word_of);
        word.is_some_and(|word| (word.issued, &word.entry_point) > (other.issued, &other.entry_point))
    }

    /// What is signed, if the user of this request has signed it, about this request.
    fn word_of_user(&self, signed: &SignedText) -> Option<RequestStatement> {
        self.authorization.as_ref().filter(|own| own.request.author == signed.author)?;
        let word = signed.open::<RequestStatement>().ok()?;
        (word.id == self.id).then_some(word)
    }

    /// What the user has signed for the node that this one has handed the request over to.
    fn word_of_next(&self) -> Option<RequestStatement> {
        self.handed_to.as_ref().and_then(word_of)
    }

    /// Which node, other than `by` that acts now, this one has handed the request over to at some time.
    #[must_use]
    pub fn acted_before(&self, by: &SiteId) -> Option<SiteId> {
        let next = self.word_of_next()?.entry_point;
        if next == *by { self.handed_before.clone() } else { Some(next) }
    }
}

fn word_of(authorization: &Authorization) -> Option<RequestStatement> {
    authorization.request.open().ok()
}

impl Negotiation {
    /// What tells a site that this node acts for a try that another one has made; none for its own tries.
    pub(super) fn takeover_message(&self, attempt: u32) -> Option<SiteRequest> {
        let name = self.record.taken_over.get(&attempt)?;
        let authorization = self.record.authorization.clone()?;
        Some(SiteRequest::TakeOver { attempt: name.clone(), authorization: authorization.into() })
    }

    /// What gives a try back that another node has made and this one has taken over; none for its own tries.
    pub(super) fn give_back_message(&self, attempt: u32) -> Option<SiteRequest> {
        match self.takeover_message(attempt)? {
            SiteRequest::TakeOver { attempt, authorization } => Some(SiteRequest::GiveBack { attempt, authorization }),
            _ => None,
        }
    }

    /// Whether all that was to be taken over had been given back before its sites heard of it: then it was taken back, or
    /// is in the hands of another node.
    pub(super) fn is_nothing_left(&self) -> bool {
        let Some(standing) = &self.record.standing else { return false };
        let of_another = |part: &Part| self.record.taken_over.contains_key(&part.attempt);
        let is_given_back = |grant: &HostGrant| {
            let loss = standing.lost.get(&grant.site).and_then(|lost| lost.get(&grant.host));
            loss == Some(&Loss::TakenBack)
        };
        let is_first = self.record.taken_over.contains_key(&self.record.last_attempt);
        is_first && standing.parts.iter().all(of_another) && standing.allocation.grants.iter().all(is_given_back)
    }

    /// Whoever acted for a part in the place of its entry point is to hear that it does not any more. Sites name it in
    /// every answer; it is owed once.
    pub(super) fn tell_who_acted(&mut self, now: Now, attempt: u32, before: Option<&SiteId>) {
        let Some(before) = before.filter(|before| **before != self.entry_point) else { return };
        if self.told_to_let_go.len() >= TOLD_TO_LET_GO_MAX {
            return;
        }
        if self.told_to_let_go.insert(before.clone()) && !self.bookings().contains(&(attempt, before.clone())) {
            self.owe(now, attempt, [before.clone()]);
            self.persist(self.record.decision.clone());
            self.send_releases(now);
        }
    }

    /// A site has something of the request of which nobody had told when this node took it over: its entry point is not to
    /// be waited for, and what stands now does without.
    pub(super) fn take_besides(&mut self, now: Now, site: &SiteId, others: &[AttemptId]) {
        if matches!(self.state, State::Closed { outcome: Outcome::HandedOver }) {
            return;
        }
        let id = self.record.id.clone();
        let mut is_news = false;
        for other in others.iter().filter(|other| other.request == id) {
            let Some(number) = self.number_of(other) else { break };
            let key = (number, site.clone());
            let is_known = self.bookings().contains(&key) || self.releases.contains_key(&key);
            if !is_known && self.besides.len() < BESIDES_MAX && self.besides.insert(key) {
                self.record.taken_over.insert(number, other.clone());
                self.owe(now, number, [site.clone()]);
                is_news = true;
            }
        }
        if is_news {
            self.persist(self.record.decision.clone());
            self.send_releases(now);
        }
    }

    /// The number that a try of another node has here, or gets: from above, where this node's own ones never come. None when
    /// too many have got one.
    fn number_of(&self, other: &AttemptId) -> Option<u32> {
        let known = self.record.taken_over.iter().find(|(_, name)| *name == other).map(|(number, _)| *number);
        let free = || (0..BESIDES_MAX as u32).map(|below| u32::MAX - below);
        known.or_else(|| free().find(|number| !self.record.taken_over.contains_key(number)))
    }

    /// A site refuses a hold because something of the request stands there already: when this node has taken the request
    /// over, it may be something that it was not told of. Asked once a site.
    pub(super) fn ask_what_is_besides(&mut self, now: Now, site: &SiteId) {
        let Some(&number) = self.record.taken_over.keys().next() else { return };
        let key = (number, site.clone());
        if !self.bookings().contains(&key) && self.besides.len() < BESIDES_MAX && self.besides.insert(key) {
            self.owe(now, number, [site.clone()]);
            self.persist(self.record.decision.clone());
            self.send_releases(now);
        }
    }

    /// Another node says that it acts for the request. It does, if the user has signed so, and has not signed later that
    /// this one does.
    pub(super) fn on_taken_over(&mut self, now: Now, by: &SiteId, authorization: &Authorization) {
        let Some(statement) = self.record.word_of_user(&authorization.request) else { return };
        if *by == self.entry_point || statement.entry_point != *by || self.record.is_later_word(&statement) {
            return;
        }
        let is_left = matches!(self.record.decision, Decision::Closed(Outcome::HandedOver));
        let is_known = self.record.handed_to.as_ref().is_some_and(|known| known.request == authorization.request);
        if matches!(self.state, State::Closed { .. }) && (!is_left || is_known) {
            return;
        }
        let before = self.record.word_of_next().map(|word| word.entry_point);
        if let Some(before) = before.filter(|before| before != by) {
            self.record.handed_before = Some(before);
        }
        self.record.handed_to = Some(authorization.clone());
        if is_left {
            self.persist(self.record.decision.clone());
        } else {
            self.hand_over(now);
        }
    }

    /// A site says that another node acts for the request. It does, if the site shows that the user has signed so, later
    /// than for this one: else a site that lies could end what others have reserved. Whether this node has let go.
    pub(super) fn lets_go(&mut self, now: Now, refusal: &Refusal) -> bool {
        let RefusalReason::HandedOver(signed) = &refusal.reason else { return false };
        let word = self.record.word_of_user(signed);
        let is_shown =
            word.is_some_and(|word| word.entry_point != self.entry_point && !self.record.is_later_word(&word));
        let lets_go = is_shown || canary::is_on(Canary::HandOverUnsigned);
        if lets_go && !matches!(self.state, State::Closed { .. }) {
            let word = Authorization { request: SignedText::clone(signed), user: None, entry_point: None };
            self.record.handed_to = Some(word);
            self.hand_over(now);
        }
        lets_go
    }

    /// Another node acts for the request now. What it knows of is not this one's to give back any more, and sites will
    /// say so; the rest is.
    pub(super) fn hand_over(&mut self, now: Now) {
        if matches!(self.state, State::Closed { .. }) || canary::is_on(Canary::HandOverIgnored) {
            return;
        }
        let bookings = self.bookings();
        self.owe(now, self.record.last_attempt, super::reserving::asked_sites(&self.state));
        for (attempt, site) in bookings {
            self.owe(now, attempt, [site]);
        }
        self.leave_time_to_another(now);
        self.watch = Watch::default();
        self.note_elapsed(now);
        self.state = State::Closed { outcome: Outcome::HandedOver };
        self.persist(Decision::Closed(Outcome::HandedOver));
    }

    /// Puts the releases off until the node that acts now has had time to reach all sites.
    pub(super) fn leave_time_to_another(&mut self, now: Now) {
        let at = now.monotonic + Millis(TIME_FOR_ANOTHER.saturating_mul(self.settings.lost_after.0));
        for release in self.releases.values_mut() {
            release.next_at = release.next_at.max(at);
        }
    }
}
