//! What is on disk of one activation: which events of a reservation the owner's hook has run for.
//!
//! Invariant: an event that is done, or given up, is never begun again.

use std::collections::BTreeSet;

use broker::{
    ids::{HostId, RequestId},
    ledger::Booking,
    plan::Place,
    protocol::{AttemptId, Grant, hull},
    time::{Time, Window},
    trust::{PublicKey, RequestStatement},
};
use serde::{Deserialize, Serialize};

/// How often other hosts of a class are tried for the seats of an activation.
const HOST_ROUNDS_MAX: u32 = 3;

/// What a hook runs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationEvent {
    /// Its end has come.
    End,
    /// It was taken back before its end.
    Cancelled,
    /// Its start has come.
    Start,
    /// Hosts, amounts or window are not as the hook knows them.
    Changed,
    /// It is confirmed.
    Reserved,
}

impl ActivationEvent {
    /// All of them.
    pub const ALL: [ActivationEvent; 5] = [
        ActivationEvent::End,
        ActivationEvent::Cancelled,
        ActivationEvent::Start,
        ActivationEvent::Changed,
        ActivationEvent::Reserved,
    ];

    /// Its name, as hooks, metrics and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            ActivationEvent::End => "end",
            ActivationEvent::Cancelled => "cancelled",
            ActivationEvent::Start => "start",
            ActivationEvent::Changed => "changed",
            ActivationEvent::Reserved => "reserved",
        }
    }
}

/// What of an activation may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub window: Window,
    /// The seats at this site, as they were booked first.
    pub grants: Vec<Grant>,
}

impl Terms {
    /// Those of a booking. It ends with its last seat that is still there.
    pub fn of(booking: &Booking) -> Terms {
        let window = hull(&booking.grants).unwrap_or(booking.window);
        Terms { window, grants: booking.grants.clone() }
    }

    /// When a seat of them ends: where the reservation was lengthened, all of them end together.
    pub fn end_of(&self, grant: &Grant) -> Time {
        if self.is_lengthened() { self.window.end } else { grant.window.end }
    }

    /// Whether it goes on after its seats as they were booked first.
    pub fn is_lengthened(&self) -> bool {
        hull(&self.grants).is_some_and(|last| last.end < self.window.end)
    }
}

/// How far the hook has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Not even `reserved` is over.
    New,
    /// `reserved`.
    Reserved,
    /// `start`.
    Started,
    /// `end` or `cancelled`.
    Over,
}

/// An event that was begun and is not over: its run goes on, was cut off by the end of the node, or is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub event: ActivationEvent,
    pub runs: u32,
    /// Those of them that have failed.
    pub failures: u32,
}

/// An event all of whose runs have failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    pub event: ActivationEvent,
    /// When the last run failed.
    pub at: Time,
    pub why: String,
}

/// Hosts of classes that the hook could not make usable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedHosts {
    pub hosts: BTreeSet<HostId>,
    /// How often others have been asked for.
    pub rounds: u32,
}

impl FailedHosts {
    fn is_none(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Whether others are still tried in the place of the last ones.
    pub fn may_move(&self) -> bool {
        self.rounds <= HOST_ROUNDS_MAX
    }

    /// Whether a seat is bound to one of them.
    pub fn has(&self, grant: &Grant) -> bool {
        matches!(&grant.place, Place::Bound { host, .. } if self.hosts.contains(host))
    }
}

/// What is on disk of one activation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivationRecord {
    /// The booking that it is named after.
    pub attempt: AttemptId,
    /// Who booked, for people.
    pub user: String,
    pub user_key: Option<PublicKey>,
    /// What the user calls the request.
    pub label: Option<RequestId>,
    /// The request whose reservation it lengthens.
    pub extends: Option<RequestId>,
    /// What the hook knows of it.
    pub told: Terms,
    /// The last event that is done.
    pub stage: Stage,
    /// The event that it runs for.
    pub begun: Option<Begun>,
    /// The last event that was given up, on all hosts or on some.
    pub given_up: Option<GivenUp>,
    /// Where `start` was given up, so that seats begin elsewhere.
    #[serde(default, skip_serializing_if = "FailedHosts::is_none")]
    pub failed: FailedHosts,
}

/// How a run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The hook has done it.
    Done,
    /// It has not, for this reason.
    Failed(String),
}

impl ActivationRecord {
    /// The record of a booking for which the hook has not run.
    pub fn new(booking: &Booking) -> ActivationRecord {
        let statement = booking.statement.as_ref().and_then(|signed| signed.open::<RequestStatement>().ok());
        let request = statement.map(|statement| statement.request);
        ActivationRecord {
            attempt: booking.attempt.clone(),
            user: booking.user.clone(),
            user_key: booking.user_key,
            label: request.as_ref().and_then(|request| request.id().cloned()),
            extends: request.as_ref().and_then(|request| request.extends().cloned()),
            told: Terms::of(booking),
            stage: Stage::New,
            begun: None,
            given_up: None,
            failed: FailedHosts::default(),
        }
    }

    /// Whether it is being ended, or was: nothing is added to it any more.
    pub fn is_closing(&self) -> bool {
        let last = |begun: &Begun| matches!(begun.event, ActivationEvent::End | ActivationEvent::Cancelled);
        self.stage == Stage::Over || self.begun.as_ref().is_some_and(last)
    }

    /// A run for `event` begins; `terms` are those of what is reserved. To be on disk before it does.
    pub fn begin(&mut self, event: ActivationEvent, terms: Option<Terms>) {
        let before = self.begun.take().filter(|begun| begun.event == event);
        let (runs, failures) = before.map_or((0, 0), |begun| (begun.runs, begun.failures));
        self.begun = Some(Begun { event, runs: runs.saturating_add(1), failures });
        let is_last = matches!(event, ActivationEvent::End | ActivationEvent::Cancelled);
        // What is undone is what the hook knows.
        if let Some(terms) = terms.filter(|_| !is_last) {
            self.told = terms;
        }
    }

    /// The run that was begun has ended at `now`; after more than `tries` failures the event is given up, and counts as done. Where it is
    /// `start` on hosts of a class it is given up on these alone, on those of them that the hook `named` if it did, and goes on with what
    /// the ledger gives instead. True when the event is over.
    pub fn finish(&mut self, (outcome, named): (Outcome, &BTreeSet<HostId>), now: Time, tries: u32) -> bool {
        let Some(mut begun) = self.begun.take() else { return true };
        if let Outcome::Failed(why) = outcome {
            begun.failures = begun.failures.saturating_add(1);
            if begun.failures <= tries {
                self.begun = Some(begun);
                return false;
            }
            self.given_up = Some(GivenUp { event: begun.event, at: now, why });
            let hosts = self.hosts_to_leave(begun.event, named);
            if !hosts.is_empty() {
                self.failed.hosts.extend(hosts);
                self.failed.rounds = self.failed.rounds.saturating_add(1);
                self.begun = Some(Begun { failures: 0, ..begun });
                return false;
            }
        }
        self.stage = match begun.event {
            ActivationEvent::Reserved => Stage::Reserved,
            ActivationEvent::Start => Stage::Started,
            ActivationEvent::Changed => self.stage,
            ActivationEvent::End | ActivationEvent::Cancelled => Stage::Over,
        };
        true
    }

    /// The hosts on which an event has failed and in whose place others may be had: those that seats of a class were bound to. What
    /// lengthens a reservation stays on its hosts.
    fn hosts_to_leave(&self, event: ActivationEvent, named: &BTreeSet<HostId>) -> BTreeSet<HostId> {
        let bound = |grant: &Grant| matches!(grant.place, Place::Bound { .. }) && !self.failed.has(grant);
        let may_leave = event == ActivationEvent::Start && !self.told.is_lengthened();
        let bound = self.told.grants.iter().filter(|grant| may_leave && bound(grant)).map(|grant| grant.host().clone());
        let bound: BTreeSet<HostId> = bound.collect();
        let of_named: BTreeSet<HostId> = bound.intersection(named).cloned().collect();
        if of_named.is_empty() { bound } else { of_named }
    }
}
