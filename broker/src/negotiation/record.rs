//! What of a request survives a crash of its entry point.
//!
//! Invariant: a [`Decision::Commit`] is on disk before any site is asked to confirm, and everything else before the
//! user is told.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    history::History,
    standing::Standing,
    takeover::{Heard, TakeOverError, Taken},
};
use crate::{
    ids::{RequestId, SiteId},
    plan::{Allocation, Reason},
    protocol::AttemptId,
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
    /// The number of the last try that may have reached a site.
    pub last_attempt: u32,
    /// What has been decided.
    pub decision: Decision,
    /// Sites that may still hold something of a try that was decided against.
    pub owed: Vec<Owed>,
    /// The reservation in parts, once it has lost hosts.
    #[serde(default)]
    pub standing: Option<Standing>,
    /// Tries that another entry point has made, which this one has taken over: by number, with the name they have.
    #[serde(default)]
    pub taken_over: BTreeMap<u32, AttemptId>,
    /// Parts of the reservation that was taken over whose sites have not said yet that this node acts for them.
    #[serde(default)]
    pub untaken: BTreeSet<(u32, SiteId)>,
    /// What its user has signed for the node that it was handed over to: a node that comes with an earlier word hears that the
    /// request is in other hands. Absent unless that node has shown it.
    #[serde(default)]
    pub handed_to: Option<Authorization>,
    /// The node that this one had handed it over to before the user went to the one of `handed_to`: that one is told of it
    /// until it has heard, since it may know of no booking that the other one acts for.
    #[serde(default)]
    pub handed_before: Option<SiteId>,
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
            standing: None,
            taken_over: BTreeMap::new(),
            untaken: BTreeSet::new(),
            handed_to: None,
            handed_before: None,
            history: History::default(),
        }
    }
}

impl RequestRecord {
    /// Goes on with a reservation that another entry point has made: `heard` is what sites tell of it.
    ///
    /// # Errors
    /// [`TakeOverError`] when they tell of nothing.
    pub fn take_over(self, heard: &Heard) -> Result<RequestRecord, TakeOverError> {
        let Taken { standing, names, owed } = Taken::of(&self.request, heard, self.last_attempt)?;
        Ok(RequestRecord {
            last_attempt: names.keys().next_back().copied().unwrap_or(self.last_attempt),
            decision: standing.decision(),
            untaken: standing.bookings().into_iter().collect(),
            standing: Some(standing),
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
    /// The try.
    pub attempt: u32,
}

/// What has been decided about a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    /// Nothing; after a crash the request starts again.
    Open,
    /// All sites hold this try: it is to be confirmed.
    Commit {
        /// The try.
        attempt: u32,
        /// The plan.
        allocation: Allocation,
        /// The incarnation of each site's ledger that holds it.
        held_in: Vec<(SiteId, u64)>,
    },
    /// All sites have confirmed this try.
    Stands {
        /// The try.
        attempt: u32,
        /// The plan.
        allocation: Allocation,
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
    Cancelled(Option<Allocation>),
    /// The user has let another node act for it.
    HandedOver,
}

/// Why a request could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// Time or tries are used up.
    #[error("given up after {attempts} tries: other requests were faster, or sites did not answer in time")]
    PatienceOver {
        /// Tries made.
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
        /// Its words.
        detail: String,
    },
}
