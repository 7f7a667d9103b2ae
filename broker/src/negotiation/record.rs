//! What of a request survives a crash of its entry point.
//!
//! Invariant: a [`Decision::Commit`] is on disk before any site is asked to confirm, and everything else before the
//! user learns it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    history::History,
    reservation::Reservation,
    takeover::{LookupAnswers, TakeOverError, Takeover},
};
use crate::{
    ids::{RequestId, SiteId},
    plan::{Plan, Reason},
    protocol::{AttemptId, AttemptStatus},
    request::Request,
    time::Time,
    trust::Authorization,
};

/// A request as its entry point keeps it on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The request's name in the grid.
    pub id: RequestId,
    /// Who asked.
    pub user: String,
    /// What was asked.
    pub request: Request,
    /// What the user has signed; none in records of the first version, which can only be shown and cancelled.
    #[serde(default)]
    pub authorization: Option<Authorization>,
    /// When it arrived, for people (Unix milliseconds).
    pub submitted_ms: u64,
    /// When it was decided, for people (milliseconds after its arrival).
    pub elapsed_ms: u64,
    /// Earliest start, made absolute at arrival.
    pub earliest: Time,
    /// Latest start, made absolute at arrival.
    pub latest: Time,
    /// The number of the last attempt that may have reached a site.
    pub last_attempt: u32,
    /// What has been decided.
    pub decision: Decision,
    /// Sites that may still hold something of an attempt that was decided against.
    pub owed: Vec<Owed>,
    /// The reservation in parts, once it has lost hosts.
    #[serde(default, rename = "standing")]
    pub reservation: Option<Reservation>,
    /// Attempts that another entry point has made, which this one has taken over: by number, with the name they have.
    #[serde(default)]
    pub taken_over: BTreeMap<u32, AttemptId>,
    /// Parts of the reservation that was taken over whose sites have not said yet that they know its outcome.
    #[serde(default, rename = "untaken")]
    pub unacknowledged: BTreeSet<(u32, SiteId)>,
    /// The takeover is decided: all sites of the reservation that was taken over have acknowledged this node as coordinator, or
    /// count as lost. They are asked to commit, and until they have, the reservation is not reported to anybody.
    #[serde(default)]
    pub commits_takeover: bool,
    /// What its user has signed for the node that it was handed over to: a node that comes with an earlier word hears that the
    /// request is in other hands. Absent unless that node has shown it.
    #[serde(default, rename = "handed_to")]
    pub successor: Option<Authorization>,
    /// The node that this one had handed it over to before the user went to the one of `successor`: that one is told of it
    /// until it has heard, since it may know of no booking that the other one coordinates.
    #[serde(default, rename = "handed_over_before")]
    pub earlier_successor: Option<SiteId>,
    /// The way there.
    pub history: History,
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
            request,
            authorization: Some(authorization),
            submitted_ms,
            elapsed_ms: 0,
            earliest,
            latest,
            last_attempt: 0,
            decision: Decision::Open,
            owed: Vec::new(),
            reservation: None,
            taken_over: BTreeMap::new(),
            unacknowledged: BTreeSet::new(),
            commits_takeover: false,
            successor: None,
            earlier_successor: None,
            history: History::default(),
        }
    }
}

impl RequestRecord {
    /// What `coordinator`, the node that keeps this record, tells `asker`, a participant, of an attempt. Ask it of the record
    /// as it is on disk: an attempt is committed there before any site is asked to confirm it, so that the answer is true of
    /// whatever a participant can have confirmed, and stays true after a crash.
    ///
    /// [`AttemptStatus::Aborted`] is a promise, so it is said only of attempts that the record knows: one that is newer than the
    /// record is pending. Of the others, those that are neither committed nor, as far as that site is concerned, part of the
    /// reservation were aborted, were replaced, or were made in a run that a crash has ended before a decision.
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
        match &self.decision {
            Decision::Commit { attempt, .. } if *attempt == number => AttemptStatus::Confirmed,
            _ if !is_closed && self.bookings().contains(&(number, asker.clone())) => AttemptStatus::Confirmed,
            _ if is_left_to_another() => AttemptStatus::Unknown,
            _ if is_own && number > self.last_attempt => AttemptStatus::Pending,
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

    /// Goes on with a reservation that another entry point has made: `heard` is what sites report of it.
    ///
    /// # Errors
    /// [`TakeOverError`] when they tell of nothing.
    pub fn take_over(self, heard: &LookupAnswers) -> Result<RequestRecord, TakeOverError> {
        let Takeover { reservation, names, owed } = Takeover::of(&self.request, heard, self.last_attempt)?;
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
    /// Nothing; after a crash the request starts again.
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
    /// It is over, with nothing reserved.
    Closed(Outcome),
}

/// How a request ended without a reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// There is no placement.
    Rejected {
        /// Why.
        reason: Reason,
        /// No feasible start exists among the hosts looked at.
        start_proven: bool,
    },
    /// It could not be carried out.
    Failed(Failure),
    /// The user took it back; this is what stood, if anything did.
    Cancelled(Option<Plan>),
    /// The user has let another node act for it.
    HandedOver,
}

/// Why a request could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// Time or attempts are used up.
    #[error("given up after {attempts} tries: other requests were faster, or sites did not answer in time")]
    PatienceOver {
        /// Attempts made.
        attempts: u32,
    },
    /// Hosts that could have served did not answer.
    #[error(
        "only {found} of {asked} hosts can be reached; {silent_sites} sites did not answer, \
         {without_schedule} more hosts fit but their schedule could not be had"
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
    /// A site refused by its own policy, not for lack of resources.
    #[error("refused by site {site}: {detail}")]
    Refused {
        /// The site.
        site: SiteId,
        /// Its reason.
        detail: String,
    },
}
