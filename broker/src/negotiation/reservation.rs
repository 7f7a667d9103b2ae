//! A reservation that was taken over, or has lost seats, as its coordinator keeps it on disk.
//!
//! Invariant: the parts name every seat of the plan exactly once, the lost ones among them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    record::{Decision, Outcome},
    search::Problem,
};
use crate::{
    cost::Cost,
    demand::Demand,
    ids::{HostId, SeatNumber, ShapeNumber, SiteId},
    objective,
    plan::{Place, Plan, Seat},
    protocol::Places,
    request::{ObjectiveKind, Request, StartWindow},
    time::{Span, Time, Window},
};

/// The seats of a reservation that one attempt has reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The attempt.
    pub attempt: u32,
    /// Its seats.
    pub seats: BTreeSet<SeatNumber>,
    /// For how long they have waited for own jobs of their site: they begin and end so much later than it has confirmed.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub wait: Span,
}

impl Part {
    /// Seats that begin as they were confirmed.
    pub(super) fn of(attempt: u32, seats: BTreeSet<SeatNumber>) -> Part {
        Part { attempt, seats, wait: Span::default() }
    }
}

/// Why a seat is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Its site has not answered for too long.
    #[error("its site does not answer")]
    SiteSilent,
    /// Its site does not keep the reservation any more.
    #[error("its site has taken it back")]
    TakenBack,
}

/// Why the places that a site tells of its seats are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrongPlaces {
    /// The seats of a request are on hosts of their own.
    #[error("it has seats {first} and {second} on host {host} at the same time")]
    Shared {
        /// A seat.
        first: SeatNumber,
        /// Another one, at a time that they have in common.
        second: SeatNumber,
        /// The host.
        host: HostId,
    },
}

/// Why a site that says that its seats begin later is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it lets seats begin {0} later, which it must not")]
pub(super) struct WrongWait(Span);

/// How lost seats are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// By others at the same start; the seats that are left stay.
    Replace,
    /// By a whole new reservation at another start, which the user allows.
    Move,
}

/// A reservation over all its sites, made by one attempt or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// All N seats, the lost ones among them. Its efficiency is that of the plan that began it; 0 of 1 when the
    /// reservation was taken over, since it is not known then.
    #[serde(rename = "allocation")]
    pub plan: Plan,
    /// Which attempt reserved which seats.
    pub parts: Vec<Part>,
    /// Seats that are lost and not replaced yet.
    pub lost: BTreeMap<SeatNumber, Loss>,
    /// The repair that is under way.
    pub repair: Option<Repair>,
    /// Repairs that have succeeded.
    pub repairs: u32,
    /// Why the last repair failed.
    pub failure: Option<Outcome>,
}

impl Reservation {
    /// The reservation that one attempt has made.
    pub(super) fn of(attempt: u32, plan: &Plan) -> Reservation {
        let part = Part::of(attempt, numbers_of(&plan.seats));
        Reservation {
            plan: plan.clone(),
            parts: vec![part],
            lost: BTreeMap::new(),
            repair: None,
            repairs: 0,
            failure: None,
        }
    }

    /// Whether this seat is lost.
    #[must_use]
    pub fn is_lost(&self, number: SeatNumber) -> bool {
        self.lost.contains_key(&number)
    }

    /// The seats of `request` that are missing. These are more than `lost` names when the reservation was taken over and sites
    /// that held others did not answer.
    #[must_use]
    pub fn missing_seats(&self, request: &Request) -> Vec<SeatNumber> {
        let is_missing = |number: &SeatNumber| self.plan.seat(*number).is_none() || self.is_lost(*number);
        let numbers = request.shape(self.plan.shape).into_iter().flat_map(Demand::numbers);
        numbers.filter(is_missing).collect()
    }

    /// The seats that an attempt has reserved at a site.
    pub(super) fn numbers_at(&self, attempt: u32, site: &SiteId) -> Vec<SeatNumber> {
        let of_attempt = self.parts.iter().filter(|part| part.attempt == attempt).flat_map(|part| &part.seats);
        let is_here = |number: &SeatNumber| self.plan.seat(*number).is_some_and(|seat| seat.site == *site);
        of_attempt.copied().filter(is_here).collect()
    }

    /// Notes that a seat is lost or found again; true when that changes the reservation.
    pub(super) fn note_seat(&mut self, number: SeatNumber, loss: Option<Loss>) -> bool {
        let Some(loss) = loss else { return self.lost.remove(&number).is_some() };
        // What a site has reported is certain, also when it does not answer afterwards.
        let known = self.lost.get(&number);
        let is_new = known.is_none_or(|known| *known == Loss::SiteSilent && loss == Loss::TakenBack);
        if is_new {
            self.lost.insert(number, loss);
        }
        is_new
    }

    /// Checks what a site tells of the places of its seats of an attempt. Those of one answer are of one moment; a seat that floated when
    /// it was told of before may have moved since.
    ///
    /// # Errors
    /// Two seats that are on one host at the same time.
    pub(super) fn check_places(&self, (attempt, site): (u32, &SiteId), told: &Places) -> Result<(), WrongPlaces> {
        let numbers = self.numbers_at(attempt, site);
        let told = told.iter().filter(|(number, _)| numbers.contains(number));
        let told = told.filter_map(|(number, place)| Some((self.plan.seat(*number)?, place)));
        let told: Vec<(&Seat, &HostId)> =
            told.filter(|(seat, place)| is_later(seat, place)).map(|(seat, place)| (seat, place.host())).collect();
        let is_told = |seat: &&Seat| told.iter().any(|(one, _)| one.number == seat.number);
        let here = self.kept().filter(|seat| seat.site == *site);
        let known = here.filter(|seat| !seat.place.is_floating() && !is_told(seat)).collect::<Vec<_>>();
        let mut seats_on: BTreeMap<&HostId, Vec<&Seat>> = BTreeMap::new();
        for (seat, host) in known.into_iter().map(|seat| (seat, seat.host())).chain(told.iter().copied()) {
            let there = seats_on.entry(host).or_default();
            let shares = |other: &&&Seat| other.number != seat.number && other.window.overlaps(seat.window);
            if let Some(other) = there.iter().find(shares) {
                let (first, second, host) = (other.number, seat.number, host.clone());
                return Err(WrongPlaces::Shared { first, second, host });
            }
            there.push(seat);
        }
        Ok(())
    }

    /// Notes where a seat of a class is now; true when it is bound there. What is no later place of it is not believed.
    pub(super) fn note_place(&mut self, number: SeatNumber, place: Place) -> bool {
        let at = self.plan.seats.binary_search_by_key(&number, |seat| seat.number).ok();
        let Some(seat) = at.map(|at| &mut self.plan.seats[at]).filter(|seat| is_later(seat, &place)) else {
            return false;
        };
        let is_new = seat.place != place;
        seat.place = place;
        is_new && !seat.place.is_floating()
    }

    /// For how long the seats of an attempt have waited for own jobs of their site, as far as is known.
    pub(super) fn wait_of(&self, attempt: u32) -> Span {
        let part = self.parts.iter().find(|part| part.attempt == attempt);
        part.map(|part| part.wait).unwrap_or_default()
    }

    /// How much later than reserved it begins; nothing once hosts of it were replaced, since these begin as reserved.
    #[must_use]
    pub fn wait(&self) -> Span {
        match self.parts.as_slice() {
            [part] => part.wait,
            _ => Span::default(),
        }
    }

    /// Whether its seats may yet be told to begin later: all were reserved by one attempt at one site, and their user has granted slack.
    pub(super) fn may_wait(&self, request: &Request) -> bool {
        let [part] = self.parts.as_slice() else { return false };
        let Some(demand) = request.shape(self.plan.shape) else { return false };
        let is_whole = part.seats.len() == demand.seats() && self.bookings().len() == 1;
        is_whole && part.wait.is_zero() && !demand.slack().is_zero()
    }

    /// Checks that a site may have let its seats of an attempt begin so much later than it has confirmed.
    ///
    /// # Errors
    /// [`WrongWait`] where its user has not granted that.
    pub(super) fn check_wait(&self, attempt: u32, wait: Span, request: &Request) -> Result<(), WrongWait> {
        if wait == self.wait_of(attempt) || wait.is_zero() {
            return Ok(());
        }
        let later = Window { start: self.plan.start, end: self.plan.end() }.later(wait);
        let is_granted = is_granted(request, self.plan.shape, (wait, later));
        if self.may_wait(request) && is_granted { Ok(()) } else { Err(WrongWait(wait)) }
    }

    /// Notes that the seats of its only attempt begin so much later than was confirmed, which was checked; whether that is new.
    pub(super) fn begin_later(&mut self, wait: Span) -> bool {
        let [part] = self.parts.as_mut_slice() else { return false };
        if wait.is_zero() || !part.wait.is_zero() {
            return false;
        }
        part.wait = wait;
        let plan = &mut self.plan;
        plan.start = plan.start + wait;
        plan.seats.iter_mut().for_each(|seat| seat.window = seat.window.later(wait));
        // What is proven is proven of the time without the wait.
        plan.objective = objective::unproven(plan.objective.kind, plan.start, &plan.seats);
        plan.start_proven = false;
        true
    }

    /// The bookings with seats that are there and float.
    pub(super) fn floating_bookings(&self) -> Vec<(u32, SiteId)> {
        let floats = |seat: &&Seat| seat.place.is_floating() && !self.is_lost(seat.number);
        let of_part = |part| self.seats_of(part).filter(floats).map(|seat| (part.attempt, seat.site.clone()));
        self.parts.iter().flat_map(of_part).collect()
    }

    /// The decision of a request that has this reservation.
    pub(super) fn decision(&self) -> Decision {
        let attempt = self.parts.first().map_or(0, |part| part.attempt);
        Decision::Reserved { attempt, plan: self.plan.clone() }
    }

    fn kept(&self) -> impl Iterator<Item = &Seat> + Clone {
        self.plan.seats.iter().filter(|seat| !self.is_lost(seat.number))
    }

    /// Adds the seats that a repair has reserved. Returns the bookings to release: those that have no seat of the reservation any
    /// more.
    pub(super) fn repaired(&mut self, repair: Repair, attempt: u32, new: &Plan) -> Vec<(u32, SiteId)> {
        let before: Vec<(u32, SiteId)> = self.bookings();
        match repair {
            Repair::Move => *self = Reservation { repairs: self.repairs, ..Reservation::of(attempt, new) },
            Repair::Replace => {
                let mut seats: Vec<Seat> = self.kept().chain(&new.seats).cloned().collect();
                seats.sort_by_key(|seat| seat.number);
                for part in &mut self.parts {
                    part.seats.retain(|number| !self.lost.contains_key(number));
                }
                self.parts.retain(|part| !part.seats.is_empty());
                self.parts.push(Part::of(attempt, numbers_of(&new.seats)));
                // Nothing is known of better seats; a start that was the earliest still is.
                if self.plan.objective.kind != ObjectiveKind::Start {
                    self.plan.objective = objective::unproven(self.plan.objective.kind, self.plan.start, &seats);
                    self.plan.start_proven = false;
                }
                self.plan.seats = seats;
                self.lost.clear();
            }
        }
        self.repair = None;
        self.failure = None;
        self.repairs += 1;
        let after = self.bookings();
        before.into_iter().filter(|booking| !after.contains(booking)).collect()
    }

    /// Its bookings: the number of the attempt, and the site.
    #[must_use]
    pub fn bookings(&self) -> Vec<(u32, SiteId)> {
        let mut bookings = Vec::new();
        for part in &self.parts {
            let sites: BTreeSet<&SiteId> = self.seats_of(part).map(|seat| &seat.site).collect();
            bookings.extend(sites.into_iter().map(|site| (part.attempt, site.clone())));
        }
        bookings
    }

    /// The bookings that still have a seat of the reservation.
    pub(super) fn kept_bookings(&self) -> BTreeSet<(u32, SiteId)> {
        let of_part = |part| {
            let kept = self.seats_of(part).filter(|seat| !self.is_lost(seat.number));
            kept.map(|seat| (part.attempt, seat.site.clone()))
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// What the budget leaves for new seats and what is due for bookings that were given back. A seat that its site has taken back costs nothing; one of a silent site may. Where not all that is
    /// due is known, since another node has coordinated the request before, new seats cost no more than those
    /// taken back.
    fn budget_left(&self, request: &Request, knows_all: bool) -> Option<Cost> {
        let is_taken_back = |seat: &&Seat| self.lost.get(&seat.number) == Some(&Loss::TakenBack);
        let (back, paid): (Vec<&Seat>, Vec<&Seat>) = self.plan.seats.iter().partition(is_taken_back);
        let cost = |seats: Vec<&Seat>| seats.into_iter().map(|seat| seat.agreed.cost).sum::<Cost>();
        let left = Cost(request.budget()?.0.saturating_sub(cost(paid).0));
        Some(if knows_all { left } else { left.min(cost(back)) })
    }

    fn seats_of(&self, part: &Part) -> impl Iterator<Item = &Seat> {
        part.seats.iter().filter_map(|number| self.plan.seat(*number))
    }

    /// The problem whose solution makes the reservation of `request` whole again by `repair`. A move may start from `earliest` to
    /// `latest`. None when the request names its candidates and too few of them are left.
    pub(super) fn problem(
        &self,
        (request, knows_all): (&Request, bool),
        (earliest, latest): (Time, Time),
        repair: Repair,
    ) -> Option<Problem> {
        let shape = self.plan.shape;
        let demand = request.demand_of(self.plan.variant())?;
        let host_of = |seat: &Seat| (seat.site.clone(), seat.host().clone());
        // A site that answers says itself what its hosts and its uplink have left. It may have taken back only what its uplink no longer
        // bears, and of these hosts some may still serve. One that is silent says nothing.
        let is_silent = |seat: &&Seat| self.lost.get(&seat.number) == Some(&Loss::SiteSilent);
        let silent = self.plan.seats.iter().filter(is_silent);
        if repair == Repair::Move {
            let avoid = silent.map(host_of).collect();
            let budget = self.budget_left(request, knows_all);
            let (numbers, demand) = (demand.numbers().collect(), demand.into_owned());
            let problem = Problem::of(request, (earliest, latest)).narrowed(shape, demand, numbers);
            return Some(Problem { avoid, budget, is_repair: true, ..problem });
        }
        let avoid: BTreeSet<(SiteId, HostId)> = silent.chain(self.kept()).map(host_of).collect();
        let numbers = self.missing_seats(request);
        let missing = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let demand = demand.rest(
            missing,
            &self.kept().map(|seat| &seat.amounts),
            (&avoid, self.plan.end().since(self.plan.start)),
        )?;
        let kept_sites = self.kept().map(|seat| seat.site.clone()).collect();
        let (start, budget) = (self.plan.start, self.budget_left(request, knows_all));
        let problem = Problem::of(request, (start, start)).narrowed(shape, demand, numbers);
        Some(Problem { kept_sites, avoid, budget, is_repair: true, ..problem })
    }
}

/// Whether a seat may have come to this place: one that floats to any of its class, and one that is bound to another, where its site's
/// hook has failed on the first.
fn is_later(seat: &Seat, place: &Place) -> bool {
    let is_possible = match (&seat.place, place) {
        (Place::Floating { .. }, Place::Floating { .. } | Place::Bound { .. }) => true,
        (Place::Bound { .. }, Place::Bound { .. }) => true,
        (Place::Host(_), _) | (_, Place::Host(_)) | (Place::Bound { .. }, Place::Floating { .. }) => false,
    };
    is_possible && place.promised() == seat.place.promised()
}

/// Whether a user grants that seats of this shape begin so much later than was confirmed, and so have this window.
pub(super) fn is_granted(request: &Request, shape: ShapeNumber, (wait, window): (Span, Window)) -> bool {
    let StartWindow { latest, deadline, .. } = request.window();
    request.shape(shape).is_some_and(|demand| wait <= demand.slack())
        && latest.is_none_or(|latest| window.start <= latest)
        && deadline.is_none_or(|deadline| window.end <= deadline)
}

fn numbers_of(seats: &[Seat]) -> BTreeSet<SeatNumber> {
    seats.iter().map(|seat| seat.number).collect()
}
