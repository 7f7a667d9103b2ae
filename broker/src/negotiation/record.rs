//! The part of a request that survives a crash of its coordinator.
//!
//! Invariant: a [`Decision::Commit`] is on disk before any site is asked to confirm, and everything else before it is
//! reported to the user.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    history::History,
    ownership::{LookupAnswers, TakeOverError, Takeover},
    receipts::KeptReceipt,
    reservation::{Loss, Reservation},
};
use crate::{
    cost::Cost,
    ids::{RequestId, SeatNumber, SiteId},
    plan::{Plan, Seat},
    protocol::{AttemptId, AttemptStatus},
    reason::Reason,
    request::Request,
    time::{Time, Window},
    trust::Authorization,
};

/// A request as its coordinator keeps it on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The request's name in the grid.
    pub id: RequestId,
    /// The user's name.
    pub user: String,
    /// The user of this node for whom its operator has signed; none when the signer asked for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_for: Option<String>,
    /// The request itself.
    pub request: Request,
    /// The user's signed authorization; none in records of the first version, which can only be shown and cancelled.
    #[serde(default)]
    pub authorization: Option<Authorization>,
    /// When it arrived (Unix milliseconds); for display.
    pub submitted_ms: u64,
    /// How long after its arrival it was decided (milliseconds); for display.
    pub elapsed_ms: u64,
    /// Earliest start, made absolute at arrival.
    pub earliest: Time,
    /// Latest start, made absolute at arrival.
    pub latest: Time,
    /// The plan that is to be reserved first, when it was made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_in: Option<Plan>,
    /// When that plan cannot be reserved as it is, the request is planned here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replans: bool,
    /// The batch with which it is reserved or not at all, until all of that is; only with a plan that is not made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<RequestId>,
    /// The number of the last attempt that may have reached a site.
    pub last_attempt: u32,
    /// What has been decided.
    pub decision: Decision,
    /// Releases that sites have not acknowledged.
    pub owed: Vec<Owed>,
    /// The reservation with its bookings, once it was taken over or has lost hosts.
    #[serde(default, rename = "standing")]
    pub reservation: Option<Reservation>,
    /// Attempts of other coordinators that this node has taken over: their number here, and their name.
    #[serde(default)]
    pub taken_over: BTreeMap<u32, AttemptId>,
    /// Bookings of a reservation that was taken over whose sites have not acknowledged its outcome.
    #[serde(default, rename = "untaken")]
    pub unacknowledged: BTreeSet<(u32, SiteId)>,
    /// The takeover is decided: all sites of the reservation that was taken over have acknowledged this node as coordinator, or
    /// count as lost. They are asked to commit; until all have, the reservation is not reported.
    #[serde(default)]
    pub commits_takeover: bool,
    /// The user's authorization for the node that coordinates the request now, once a site or that node has shown it. A node that
    /// shows a lower term is refused with it.
    #[serde(default, rename = "handed_to")]
    pub successor: Option<Authorization>,
    /// The successor before that one. The present one notifies it until it has acknowledged, since the two may have no booking in
    /// common.
    #[serde(default, rename = "handed_over_before")]
    pub earlier_successor: Option<SiteId>,
    /// What sites are owed for bookings that were given back, or may have been.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dues: Vec<Due>,
    /// The receipts of the sites that have confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<KeptReceipt>,
    /// How the command ended that it was reserved for, where its user has given back the rest because of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The rounds and attempts so far.
    pub history: History,
}

/// What a site is owed for a booking of the request that it has given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The attempt that made it.
    pub attempt: u32,
    /// The site.
    pub site: SiteId,
    /// From the first start to the last end of its seats.
    pub window: Window,
    /// How many they are.
    pub seats: u32,
    /// For how much it was reserved.
    pub agreed: Cost,
    /// How much is to be paid: all that was agreed, until the site has said.
    pub cost: Cost,
    /// Whether the site has said.
    pub is_final: bool,
}

impl RequestRecord {
    /// A request that has just arrived (`submitted_ms`, Unix milliseconds), with its earliest and latest start.
    #[must_use]
    pub fn arrived(
        id: RequestId,
        user: String,
        request: Request,
        authorization: Authorization,
        submitted_ms: u64,
        (earliest, latest): (Time, Time),
    ) -> RequestRecord {
        RequestRecord {
            id,
            user,
            submitted_for: None,
            request,
            authorization: Some(authorization),
            submitted_ms,
            elapsed_ms: 0,
            earliest,
            latest,
            handed_in: None,
            replans: false,
            together: None,
            last_attempt: 0,
            decision: Decision::Open,
            owed: Vec::new(),
            reservation: None,
            taken_over: BTreeMap::new(),
            unacknowledged: BTreeSet::new(),
            commits_takeover: false,
            successor: None,
            earlier_successor: None,
            dues: Vec::new(),
            receipts: Vec::new(),
            exit_code: None,
            history: History::default(),
        }
    }

    /// What the bookings cost at most that were given back.
    pub(super) fn due_at_most(&self) -> Cost {
        self.dues.iter().map(|due| due.cost).sum()
    }

    /// Whether no other node may know of more that is due.
    pub(super) fn knows_all_dues(&self) -> bool {
        self.taken_over.is_empty()
    }

    /// What is due for the booking of an attempt at a site when it is given back, at most; none when it costs nothing.
    pub(super) fn due_of(&self, attempt: u32, site: &SiteId) -> Option<Due> {
        let of = |reservation: &Reservation| {
            let numbers = reservation.numbers_at(attempt, site);
            // What its site has taken back costs nothing.
            let is_due = |number: &&SeatNumber| reservation.lost.get(number) != Some(&Loss::TakenBack);
            let seats = numbers.iter().filter(is_due).filter_map(|number| reservation.plan.seat(*number));
            Due::of((attempt, site), seats)
        };
        match (&self.reservation, &self.decision) {
            (Some(reservation), _) => of(reservation),
            (None, Decision::Reserved { attempt, plan } | Decision::Commit { attempt, plan, .. }) => {
                of(&Reservation::of(*attempt, plan))
            }
            (None, Decision::Open | Decision::Closed(_)) => None,
        }
    }
}

impl Due {
    /// For these seats, until their site has said; none when they cost nothing.
    pub(super) fn of<'s>(
        (attempt, site): (u32, &SiteId),
        seats: impl Iterator<Item = &'s Seat> + Clone,
    ) -> Option<Due> {
        let agreed: Cost = seats.clone().map(|seat| seat.agreed.cost).sum();
        let window = Window::hull(seats.clone().map(|seat| seat.window)).filter(|_| !agreed.is_zero())?;
        // A request has at most 10,000 seats.
        let seats = seats.count() as u32;
        Some(Due { attempt, site: site.clone(), window, seats, agreed, cost: agreed, is_final: false })
    }
}

impl RequestRecord {
    /// The status of an attempt, with which `coordinator`, the node that keeps this record, answers `asker`, a participant. The
    /// record must be the one on disk: an attempt is committed there before any site is asked to confirm it, so the answer is true
    /// of all that a participant can have confirmed, and stays true after a crash.
    ///
    /// [`AttemptStatus::Confirmed`] says that all sites have confirmed, so an attempt that is still being confirmed is pending.
    /// [`AttemptStatus::Aborted`] is a promise, so only attempts that the record knows are aborted; a newer one is pending. A known
    /// attempt that is neither committed nor, at the asker, part of the reservation was aborted, was replaced, or ended
    /// undecided in a crash.
    #[must_use]
    pub fn status_of(&self, coordinator: &SiteId, attempt: &AttemptId, asker: &SiteId) -> AttemptStatus {
        // A node that has the request back takes its own earlier attempts over like those of others.
        let taken_over = self.taken_over.iter().find(|(_, name)| *name == attempt).map(|(number, _)| *number);
        let is_own = taken_over.is_none() && attempt.entry_point == *coordinator && attempt.request == self.id;
        let Some(number) = taken_over.or(is_own.then_some(attempt.attempt)) else {
            return AttemptStatus::Unknown;
        };
        let is_closed = matches!(self.decision, Decision::Closed(_));
        let is_handed_over = matches!(self.decision, Decision::Closed(Outcome::HandedOver));
        let is_left_to_another = || {
            let is_owed = self.owed.iter().any(|owed| owed.attempt == number && owed.site == *asker);
            is_handed_over && (is_owed || number == self.last_attempt)
        };
        // A takeover that is not decided decides for nothing: its user may still cancel, and then this node may be gone for good.
        let is_open = taken_over.is_some() && !is_closed && !self.unacknowledged.is_empty();
        match &self.decision {
            Decision::Commit { attempt, .. } if *attempt == number => AttemptStatus::Pending,
            // Another request of its batch may yet end, and this one with it.
            Decision::Reserved { attempt, .. } if *attempt == number && self.together.is_some() => {
                AttemptStatus::Pending
            }
            _ if is_open && !self.commits_takeover => AttemptStatus::Pending,
            _ if !is_closed && self.bookings().contains(&(number, asker.clone())) => AttemptStatus::Confirmed,
            _ if is_left_to_another() => AttemptStatus::Unknown,
            _ if is_own && number > self.last_attempt => AttemptStatus::Pending,
            // Until it is complete, a site that was silent may have a part of it.
            _ if is_open => AttemptStatus::Pending,
            _ => AttemptStatus::Aborted,
        }
    }

    /// The bookings that make up the reservation, or made it up before it ended: the number of the attempt, and the site.
    pub(super) fn bookings(&self) -> Vec<(u32, SiteId)> {
        match (&self.reservation, &self.decision) {
            (Some(reservation), _) => reservation.bookings(),
            (None, Decision::Reserved { attempt, plan }) => Reservation::of(*attempt, plan).bookings(),
            (None, Decision::Open | Decision::Commit { .. } | Decision::Closed(_)) => Vec::new(),
        }
    }

    /// The record of a reservation that another coordinator has made, from the answers of the sites.
    ///
    /// # Errors
    /// [`TakeOverError`] when no site reports a booking.
    pub fn take_over(self, answers: &LookupAnswers) -> Result<RequestRecord, TakeOverError> {
        let Takeover { reservation, names, owed } = Takeover::of(&self.request, answers, self.last_attempt)?;
        Ok(RequestRecord {
            last_attempt: names.keys().next_back().copied().unwrap_or(self.last_attempt),
            decision: reservation.decision(),
            unacknowledged: reservation.bookings().into_iter().collect(),
            reservation: Some(reservation),
            taken_over: names,
            owed,
            ..self
        })
    }
}

/// A release that a site has not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// The site.
    pub site: SiteId,
    /// The attempt.
    pub attempt: u32,
}

/// What has been decided about a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    /// Nothing is decided; after a crash the request starts again.
    Open,
    /// All sites hold this attempt: it is to be confirmed.
    Commit {
        /// The attempt.
        attempt: u32,
        /// The plan.
        #[serde(rename = "allocation")]
        plan: Plan,
        /// The incarnation of each site's ledger that holds it.
        held_in: Vec<(SiteId, u64)>,
    },
    /// All sites have confirmed this attempt.
    #[serde(rename = "Stands")]
    Reserved {
        /// The attempt.
        attempt: u32,
        /// The plan.
        #[serde(rename = "allocation")]
        plan: Plan,
    },
    /// It has ended, with nothing reserved.
    Closed(Outcome),
}

/// How a request ended without a reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// There is no placement.
    Rejected {
        /// The reason.
        reason: Reason,
        /// No feasible start exists among the hosts looked at.
        start_proven: bool,
    },
    /// It could not be carried out.
    Failed(Failure),
    /// The user cancelled it; with the reservation that ended, if there was one.
    Cancelled(Option<Plan>),
    /// Another node coordinates it.
    HandedOver,
}

/// Why a request could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// Time or attempts are used up.
    #[error("given up after {attempts} attempts: other requests were faster, or sites did not answer in time")]
    PatienceOver {
        /// Attempts made.
        attempts: u32,
    },
    /// Hosts that could have served did not answer.
    #[error(
        "only {found} of {asked} hosts can be reached; {silent_sites} sites did not answer, \
         {without_schedule} more hosts fit but their schedule could not be had (kolo sites says why)"
    )]
    Unreachable {
        /// Hosts that can be reached.
        found: u64,
        /// N.
        asked: u64,
        /// Hosts left out because their schedule could not be had.
        without_schedule: u64,
        /// Sites that did not answer.
        silent_sites: u64,
    },
    /// Another request of a batch that is reserved as a whole or not at all has ended, or was not held in time.
    #[error("its batch is not reserved: {detail}")]
    Batch {
        /// Why.
        detail: String,
    },
    /// A site refused by its own policy, or for any reason a plan that was handed in.
    #[error("refused by site {site}: {detail}")]
    Refused {
        /// The site.
        site: SiteId,
        /// Its reason.
        detail: String,
    },
}
