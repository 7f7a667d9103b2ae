//! A change of coordinator, because the user wants that: what the new one makes of what sites report, and how the former one
//! gives the request up.
//!
//! Invariant: the new coordinator goes on with whole bookings, of no seat twice; everything else that sites may have of the
//! request is owed a release, so that nothing is left without a coordinator.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Decision, Loss, Negotiation, Outcome, Owed, Part, RequestRecord, Reservation, State, guard::Watch,
    reservation::is_granted,
};
use crate::{
    amount::Amount,
    demand::{Demand, Length},
    ids::{SeatNumber, SiteId},
    objective,
    plan::{Plan, Seat},
    protocol::{AttemptId, FoundBooking, Grant, Refusal, RefusalReason, SiteRequest, TakeOverStep, hull},
    request::Request,
    resources::amount_of,
    time::{Millis, Now, Time},
    trust::{Authorization, RequestStatement, SignedText},
    variant::Variant,
};

/// A former coordinator releases what it knows of only after `lost_after` times this: the present one may not have reached all
/// sites, and counts those that it cannot reach as lost after that time.
const SUCCESSOR_PATIENCE: u64 = 2;

/// What sites report of a request is no reservation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeOverError {
    /// Nobody has anything of it.
    #[error("no site that answers has anything reserved for it")]
    Nothing,
}

/// A reservation that is taken over, as the new coordinator begins with it.
#[derive(Debug, PartialEq)]
pub(super) struct Takeover {
    /// The bookings that it keeps.
    pub(super) reservation: Reservation,
    /// The names of all its attempts, by the numbers that they have here.
    pub(super) names: BTreeMap<u32, AttemptId>,
    /// The bookings that it releases, and the nodes that must learn of the new coordinator.
    pub(super) owed: Vec<Owed>,
}

/// Most sites that are notified of a takeover because their nodes may coordinate the request. Of more, those that have reported
/// so come first, then others in the order of their names.
const MAY_COORDINATE_MAX: usize = 256;

/// Most former coordinators that are notified because some site has named them: more than a user goes to. A site that lies
/// cannot name without end.
const NOTIFIED_MAX: usize = 16;

/// Most attempts that no site had reported when the request was taken over, and that are taken over later to abort them: a site
/// that lies cannot name attempts without end.
const UNREPORTED_MAX: usize = 64;

type Reported = (SiteId, FoundBooking);

/// The answers of the sites to a lookup of a request that this node is to take over.
#[derive(Debug, Clone, Default)]
pub struct LookupAnswers {
    /// The bookings, each with its site.
    pub parts: Vec<(SiteId, FoundBooking)>,
    /// Other sites whose nodes coordinate the request, or are about to.
    pub coordinating: BTreeSet<SiteId>,
    /// Other sites that have not answered: their nodes may coordinate it.
    pub silent: BTreeSet<SiteId>,
}

impl Takeover {
    /// Chooses the bookings to keep. Attempts get numbers above `last_attempt` and above their own numbers, so that they cannot be
    /// confused with the attempts to come.
    pub(super) fn of(request: &Request, answers: &LookupAnswers, last_attempt: u32) -> Result<Takeover, TakeOverError> {
        let parts = &answers.parts;
        let reservation = chosen(request, parts);
        let first = reservation.first().ok_or(TakeOverError::Nothing)?;
        let (variant, start) = (first.1.variant, start_of(first).ok_or(TakeOverError::Nothing)?);
        let attempts: BTreeSet<&AttemptId> = parts.iter().map(|(_, part)| &part.attempt).collect();
        let highest = attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or(0).max(last_attempt);
        let numbers: BTreeMap<&AttemptId, u32> = attempts.into_iter().zip(highest.saturating_add(1)..).collect();

        let mut by_attempt: BTreeMap<u32, Part> = BTreeMap::new();
        let mut seats = Vec::new();
        for (site, part) in &reservation {
            let attempt = numbers[&part.attempt];
            let of_attempt = by_attempt.entry(attempt).or_insert_with(|| Part::of(attempt, BTreeSet::new()));
            if may_have_waited(request, part, site) {
                of_attempt.wait = part.wait;
            }
            for Grant { seat: number, place, window, amounts, agreed } in part.grants.iter().cloned() {
                of_attempt.seats.insert(number);
                seats.push(Seat { number, site: site.clone(), place, window, amounts, agreed });
            }
        }
        seats.sort_by_key(|seat| seat.number);
        let plan = Plan {
            shape: variant.shape,
            start,
            traffic: request.shape(variant.shape).and_then(Demand::traffic),
            scale: variant.scale,
            objective: objective::unproven(request.objective(), start, &seats),
            seats,
            efficiency: 0.0,
            efficiency_bound: 1.0,
            start_proven: false,
        };
        let reservation = Reservation {
            plan,
            parts: by_attempt.into_values().collect(),
            lost: BTreeMap::new(),
            repair: None,
            repairs: 0,
            failure: None,
        };
        let kept: BTreeSet<(u32, SiteId)> = reservation.bookings().into_iter().collect();
        let mut others = BTreeSet::new();
        for (_, part) in parts {
            let attempt = numbers[&part.attempt];
            let concerned = part.participants.iter().chain([&part.attempt.entry_point]);
            others.extend(concerned.map(|site| (attempt, site.clone())));
            // The present coordinator may be neither.
            let statement = part.statement.open::<RequestStatement>();
            others.extend(statement.ok().map(|statement| (attempt, statement.entry_point)));
        }
        others.extend(parts.iter().map(|(site, part)| (numbers[&part.attempt], site.clone())));
        let last = numbers.values().copied().max().unwrap_or(highest);
        let concerned: BTreeSet<SiteId> = kept.iter().chain(&others).map(|(_, site)| site.clone()).collect();
        // Two nodes that begin at the same time, or at two ends of a cut, may not have a single booking in common: each has
        // to learn of the other by itself. They are notified as if they had a part of the last attempt.
        let silent = answers.silent.iter().filter(|site| !answers.coordinating.contains(*site));
        let may_coordinate = answers.coordinating.iter().chain(silent).filter(|site| !concerned.contains(*site));
        others.extend(may_coordinate.take(MAY_COORDINATE_MAX).map(|site| (last, site.clone())));
        let owed = others.difference(&kept).map(|(attempt, site)| Owed { site: site.clone(), attempt: *attempt });
        let owed = owed.collect();
        let names = numbers.into_iter().map(|(name, number)| (number, name.clone())).collect();
        Ok(Takeover { reservation, names, owed })
    }
}

/// The bookings to go on with: those of the variant and the start (and, with traffic, the end) of which most seats are reserved, of all that
/// its shape has. Among them the last attempt that is whole by itself, else the last ones first, as far as they go together.
fn chosen<'a>(request: &Request, parts: &'a [Reported]) -> Vec<&'a Reported> {
    type Same = (Variant, Time, Option<Time>);
    let mut by_start: BTreeMap<Same, (Cow<'_, Demand>, Vec<&Reported>)> = BTreeMap::new();
    for one in parts {
        let demand = request.demand_of(one.1.variant).filter(|demand| is_sound(demand, &one.1.grants));
        if let (Some(demand), Some(start)) = (demand, start_of(one)) {
            let end = demand.traffic().and_then(|_| one.1.grants.first()).map(|grant| grant.window.end);
            by_start.entry((one.1.variant, start, end)).or_insert_with(|| (demand, Vec::new())).1.push(one);
        }
    }
    let last_of = |some: &[&Reported]| some.iter().map(|(_, part)| part.attempt.attempt).max();
    // In parts of a million: a smaller shape that is whole comes before a larger one that is not.
    let share_of = |demand: &Demand, some: &[&Reported]| seats_of(some).len() * 1_000_000 / demand.seats();
    let most = by_start.into_values().max_by_key(|(demand, all)| (share_of(demand, all), last_of(all)));
    let Some((demand, mut reported)) = most else { return Vec::new() };
    let asked = demand.seats();
    reported.sort_by(|(a_site, a), (b_site, b)| {
        let of = |part: &'a FoundBooking| (part.attempt.attempt, &part.attempt.entry_point);
        of(b).cmp(&of(a)).then_with(|| a_site.cmp(b_site))
    });
    for of_attempt in reported.chunk_by(|a, b| a.1.attempt == b.1.attempt) {
        let chosen = going_together(&demand, of_attempt);
        if seats_of(&chosen).len() == asked {
            return chosen;
        }
    }
    let mut chosen = going_together(&demand, &reported);
    // Bookings of different attempts may not add up to the totals; what is left out is replaced like a loss.
    if seats_of(&chosen).len() == asked && !has_totals(&demand, &chosen) {
        chosen.pop();
    }
    chosen
}

/// Of these, the first ones first, those that have no seat twice, no host twice, and lie at no more sites than are asked for. An
/// attempt that failed, or was replaced, may have left a booking behind.
fn going_together<'a>(demand: &Demand, some: &[&'a Reported]) -> Vec<&'a Reported> {
    let mut chosen: Vec<&Reported> = Vec::new();
    let mut sites = BTreeSet::new();
    for one in some {
        let is_one_more = !sites.contains(&one.0);
        let is_beyond = demand.sites_max().is_some_and(|most| is_one_more && sites.len() >= most);
        if !is_beyond && !chosen.iter().any(|other| overlap(one, other)) {
            sites.insert(&one.0);
            chosen.push(one);
        }
    }
    chosen
}

/// Whether a site can mean these seats as a part of what was asked for: they begin together (with traffic, they end together), each is one of those asked for, and none is
/// named twice.
fn is_sound(demand: &Demand, grants: &[Grant]) -> bool {
    let mut seats = BTreeSet::new();
    grants.iter().all(|grant| {
        let is_asked_for = (grant.seat.0 as usize) < demand.seats();
        let begins_with_others = grant.window.start == grants[0].window.start && grant.window.is_valid();
        let ends_with_others = demand.traffic().is_none() || grant.window.end == grants[0].window.end;
        let is_of_variant = !demand.is_of_shape() && demand.scale().is_none() || is_as_asked(demand, grant);
        is_asked_for
            && is_of_variant
            && begins_with_others
            && ends_with_others
            && grant.agreed.is_bounded()
            && seats.insert(grant.seat)
    })
}

/// Whether a seat is what this variant asks for, and not another one, as far as that can be seen from here.
fn is_as_asked(demand: &Demand, grant: &Grant) -> bool {
    let is_as_long = match demand.length() {
        Length::Duration(duration) => grant.window.duration() == duration,
        Length::Work(_) => true,
    };
    is_as_long && demand.per_host().iter().all(|(name, least)| amount_of(&grant.amounts, name) >= *least)
}

/// Whether a site may have let its seats begin so much later than it has confirmed. Of others what it says is not believed.
fn may_have_waited(request: &Request, part: &FoundBooking, site: &SiteId) -> bool {
    let is_alone = part.participants.as_slice() == std::slice::from_ref(site);
    is_alone && hull(&part.grants).is_some_and(|window| is_granted(request, part.variant.shape, (part.wait, window)))
}

fn start_of((_, part): &Reported) -> Option<Time> {
    part.grants.first().map(|grant| grant.window.start)
}

fn seats_of(some: &[&Reported]) -> BTreeSet<SeatNumber> {
    some.iter().flat_map(|(_, part)| &part.grants).map(|grant| grant.seat).collect()
}

fn overlap((site, part): &Reported, (other_site, other): &Reported) -> bool {
    let is_same = |a: &Grant, b: &Grant| a.seat == b.seat || site == other_site && a.host() == b.host();
    part.grants.iter().any(|grant| other.grants.iter().any(|one| is_same(grant, one)))
}

fn has_totals(demand: &Demand, chosen: &[&Reported]) -> bool {
    demand.total().iter().all(|(name, total)| {
        let grants = chosen.iter().flat_map(|(_, part)| &part.grants);
        grants.fold(Amount::ZERO, |sum, grant| sum + amount_of(&grant.amounts, name)) >= *total
    })
}

impl RequestRecord {
    /// The user's signed text for the present coordinator, if its term is higher than that of `authorization`. The node that shows
    /// the latter is refused with it.
    #[must_use]
    pub fn later_authorization(&self, authorization: &Authorization) -> Option<Arc<SignedText>> {
        let statement = self.statement_of_user(&authorization.request)?;
        let present = self.present_authorization().filter(|_| self.is_higher_term(&statement))?;
        Some(Arc::new(present.request.clone()))
    }

    /// The user's authorization for the present coordinator, as far as this node knows.
    fn present_authorization(&self) -> Option<&Authorization> {
        let is_left = matches!(self.decision, Decision::Closed(Outcome::HandedOver));
        if is_left { self.successor.as_ref() } else { self.authorization.as_ref() }
    }

    /// What the user has signed for the present coordinator, as far as this node knows.
    #[must_use]
    pub fn present_statement(&self) -> Option<RequestStatement> {
        self.present_authorization().and_then(statement_of)
    }

    /// Whether the present coordinator's term, as far as this node knows, is higher than that of `other`.
    fn is_higher_term(&self, other: &RequestStatement) -> bool {
        self.present_statement().is_some_and(|present| present.rank() > other.rank())
    }

    /// The signed statement, if the user of this request has signed it for this request.
    fn statement_of_user(&self, signed: &SignedText) -> Option<RequestStatement> {
        self.authorization.as_ref().filter(|own| own.request.author == signed.author)?;
        let statement = signed.open::<RequestStatement>().ok()?;
        (statement.id == self.id).then_some(statement)
    }

    /// The user's statement for the successor of this node.
    fn statement_of_successor(&self) -> Option<RequestStatement> {
        self.successor.as_ref().and_then(statement_of)
    }

    /// A node other than the present coordinator `by` to which this one has handed the request over.
    #[must_use]
    pub fn former_coordinator(&self, by: &SiteId) -> Option<SiteId> {
        let next = self.statement_of_successor()?.entry_point;
        if next == *by { self.earlier_successor.clone() } else { Some(next) }
    }
}

fn statement_of(authorization: &Authorization) -> Option<RequestStatement> {
    authorization.request.open().ok()
}

impl Negotiation {
    /// The message by which this node takes an attempt of another coordinator over at a site; none for its own attempts.
    pub(super) fn takeover_message(&self, attempt: u32, step: TakeOverStep) -> Option<SiteRequest> {
        let name = self.record.taken_over.get(&attempt)?;
        let authorization = self.record.authorization.clone()?;
        Some(SiteRequest::TakeOver { attempt: name.clone(), authorization: authorization.into(), step })
    }

    /// Whether all that was to be taken over had been given back before its sites learned of it: the user has cancelled it, or
    /// another node coordinates it.
    pub(super) fn is_nothing_left(&self) -> bool {
        let Some(reservation) = &self.record.reservation else { return false };
        let of_another = |part: &Part| self.record.taken_over.contains_key(&part.attempt);
        let is_given_back = |seat: &Seat| reservation.lost.get(&seat.number) == Some(&Loss::TakenBack);
        let is_first = self.record.taken_over.contains_key(&self.record.last_attempt);
        is_first && reservation.parts.iter().all(of_another) && reservation.plan.seats.iter().all(is_given_back)
    }

    /// Notifies a former coordinator of a part that it has been replaced. Sites name it in every answer; it is notified once.
    pub(super) fn notify_former_coordinator(&mut self, now: Now, attempt: u32, before: Option<&SiteId>) {
        let Some(before) = before.filter(|before| **before != self.entry_point) else { return };
        if self.notified.len() >= NOTIFIED_MAX {
            return;
        }
        if self.notified.insert(before.clone()) && !self.bookings().contains(&(attempt, before.clone())) {
            self.owe(now, attempt, [before.clone()]);
            self.persist(self.record.decision.clone());
            self.send_releases(now);
        }
    }

    /// A site names attempts of the request that no site had reported when this node took it over. The reservation does not need
    /// them, so they are taken over and aborted.
    pub(super) fn claim_unreported(&mut self, now: Now, site: &SiteId, others: &[AttemptId]) {
        if matches!(self.state, State::Closed { outcome: Outcome::HandedOver }) {
            return;
        }
        let id = self.record.id.clone();
        let mut is_new = false;
        for other in others.iter().filter(|other| other.request == id) {
            let Some(number) = self.number_of(other) else { break };
            let key = (number, site.clone());
            let is_known = self.bookings().contains(&key) || self.releases.contains(&key);
            if !is_known && self.unreported.len() < UNREPORTED_MAX && self.unreported.insert(key) {
                self.record.taken_over.insert(number, other.clone());
                self.owe(now, number, [site.clone()]);
                is_new = true;
            }
        }
        if is_new {
            self.persist(self.record.decision.clone());
            self.send_releases(now);
        }
    }

    /// The number that an attempt of another node has here, or gets: from above, where this node's own ones never come. None when
    /// too many have got one.
    fn number_of(&self, other: &AttemptId) -> Option<u32> {
        let known = self.record.taken_over.iter().find(|(_, name)| *name == other).map(|(number, _)| *number);
        let free = || (0..UNREPORTED_MAX as u32).map(|below| u32::MAX - below);
        known.or_else(|| free().find(|number| !self.record.taken_over.contains_key(number)))
    }

    /// A site refuses a hold because it has another attempt of the request: when this node has taken the request over, it may be
    /// one that no site had reported. Each site is asked once.
    pub(super) fn look_for_unreported(&mut self, now: Now, site: &SiteId) {
        let Some(&number) = self.record.taken_over.keys().next() else { return };
        let key = (number, site.clone());
        if !self.bookings().contains(&key) && self.unreported.len() < UNREPORTED_MAX && self.unreported.insert(key) {
            self.owe(now, number, [site.clone()]);
            self.persist(self.record.decision.clone());
            self.send_releases(now);
        }
    }

    /// Another node coordinates the request, as its user has signed. This one gives it up unless it knows of a higher term.
    pub(super) fn on_taken_over(&mut self, now: Now, by: &SiteId, authorization: &Authorization) {
        let Some(statement) = self.record.statement_of_user(&authorization.request) else { return };
        if *by == self.entry_point || statement.entry_point != *by || self.record.is_higher_term(&statement) {
            return;
        }
        let is_left = matches!(self.record.decision, Decision::Closed(Outcome::HandedOver));
        let is_known = self.record.successor.as_ref().is_some_and(|known| known.request == authorization.request);
        if matches!(self.state, State::Closed { .. }) && (!is_left || is_known) {
            return;
        }
        let before = self.record.statement_of_successor().map(|statement| statement.entry_point);
        if let Some(before) = before.filter(|before| before != by) {
            self.record.earlier_successor = Some(before);
        }
        self.record.successor = Some(authorization.clone());
        if is_left {
            self.persist(self.record.decision.clone());
        } else {
            self.hand_over(now);
        }
    }

    /// A site refuses because another node coordinates the request. This one gives the request up if the site shows a higher term;
    /// else a site that lies could end what others have reserved. Whether it has been shown one.
    pub(super) fn yields_to(&mut self, now: Now, refusal: &Refusal) -> bool {
        let RefusalReason::HandedOver(signed) = &refusal.reason else { return false };
        let shown = self.record.statement_of_user(signed).filter(|shown| shown.entry_point != self.entry_point);
        let is_shown = shown.is_some_and(|shown| !self.record.is_higher_term(&shown));
        if is_shown && !matches!(self.state, State::Closed { .. }) {
            let request = SignedText::clone(signed);
            self.record.successor = Some(Authorization { request, user: None, entry_point: None });
            self.hand_over(now);
        }
        is_shown
    }

    /// Gives the request up to another coordinator. This node still releases its bookings later; sites refuse that for those that the
    /// other one has taken over.
    pub(super) fn hand_over(&mut self, now: Now) {
        if matches!(self.state, State::Closed { .. }) {
            return;
        }
        let bookings = self.bookings();
        self.owe(now, self.record.last_attempt, super::commit::asked_sites(&self.state));
        for (attempt, site) in bookings {
            self.owe(now, attempt, [site]);
        }
        self.postpone_releases(now);
        self.watch = Watch::new(self.watch.round);
        self.note_elapsed(now);
        self.state = State::Closed { outcome: Outcome::HandedOver };
        self.persist(Decision::Closed(Outcome::HandedOver));
    }

    /// Postpones the releases until the present coordinator has had time to reach all sites.
    pub(super) fn postpone_releases(&mut self, now: Now) {
        let at = now.monotonic + Millis(SUCCESSOR_PATIENCE.saturating_mul(self.settings.lost_after.0));
        self.releases.postpone(at);
    }
}
