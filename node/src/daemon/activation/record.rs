//! What the owner's hook has been told of one activation, and what comes next.
//!
//! Pure: the record on disk, what stands in the ledger and the time decide. Invariant: the events of an activation are a way
//! through reserved, changed (any number), start, changed (any number), and end or cancelled; each but changed comes at most
//! once, nothing follows the last one, and nothing is undone that was not told.

use broker::{
    ids::RequestId,
    ledger::Booking,
    protocol::{AttemptId, Grant},
    time::{Span, Time, Window},
    trust::{PublicKey, RequestStatement},
};
use serde::{Deserialize, Serialize};

use super::parts::Standing;

/// What a hook is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationEvent {
    /// Its end has come.
    End,
    /// It was taken back before its end.
    Cancelled,
    /// Its start has come.
    Start,
    /// Hosts, amounts or window are not as they were told.
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
    /// When.
    pub window: Window,
    /// What, on which hosts of this site.
    pub grants: Vec<Grant>,
}

impl Terms {
    /// Those of what stands.
    pub fn of(standing: Standing<'_>) -> Terms {
        Terms { window: standing.window, grants: standing.grants.to_vec() }
    }
}

/// How far the hook has been told.
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
    /// Which.
    pub event: ActivationEvent,
    /// Runs so far.
    pub runs: u32,
    /// Those of them that have failed.
    pub failures: u32,
}

/// An event all of whose runs have failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// Which.
    pub event: ActivationEvent,
    /// When the last run failed.
    pub at: Time,
    /// How.
    pub why: String,
}

/// What is on disk of one activation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivationRecord {
    /// The booking that it is named after.
    pub attempt: AttemptId,
    /// Who booked, for people.
    pub user: String,
    /// Who booked.
    pub user_key: Option<PublicKey>,
    /// What the user calls the request.
    pub label: Option<RequestId>,
    /// What the hook was last told of it.
    pub told: Terms,
    /// How far it was told.
    pub stage: Stage,
    /// What it is being told.
    pub begun: Option<Begun>,
    /// The last event that was given up.
    pub given_up: Option<GivenUp>,
}

/// What is to be done about a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until then, or until the ledger changes.
    Wait(Option<Time>),
    /// Run the hook.
    Run(ActivationEvent),
    /// Forget the record.
    Forget,
}

/// How a run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The hook has done it.
    Done,
    /// It has not, for this reason.
    Failed(String),
}

/// What comes next for an activation, of which there is a record, or something stands, or both. `early` is how long before
/// its window a reservation is started.
pub fn next(record: Option<&ActivationRecord>, standing: Option<Standing<'_>>, now: Time, early: Span) -> Next {
    let Some(record) = record else {
        return match standing {
            // What is over, or has lost all its hosts, has nothing that the hook could do.
            Some(standing) if now < standing.window.end && !standing.grants.is_empty() => {
                Next::Run(ActivationEvent::Reserved)
            }
            _ => Next::Wait(None),
        };
    };
    if record.stage == Stage::Over {
        // The ledger keeps what has ended for a moment; without the record it would be taken for a new one.
        return if standing.is_none() { Next::Forget } else { Next::Wait(None) };
    }
    let begun = record.begun.as_ref().map(|begun| begun.event);
    if let Some(event @ (ActivationEvent::End | ActivationEvent::Cancelled)) = begun {
        return Next::Run(event);
    }
    let Some(standing) = standing.filter(|standing| now < standing.window.end) else {
        // What it was told to go on with may have been taken back, and the end before that have passed.
        let is_ended = now >= record.told.window.end;
        return Next::Run(if is_ended { ActivationEvent::End } else { ActivationEvent::Cancelled });
    };
    if let Some(event) = begun {
        return Next::Run(event);
    }
    if Standing::from(&record.told) != standing {
        return Next::Run(ActivationEvent::Changed);
    }
    let start = standing.window.start - early;
    match record.stage {
        Stage::Started => Next::Wait(Some(standing.window.end)),
        _ if now >= start => Next::Run(ActivationEvent::Start),
        _ => Next::Wait(Some(start)),
    }
}

impl ActivationRecord {
    /// The record of a booking that nothing was told of yet.
    pub fn new(booking: &Booking) -> ActivationRecord {
        let statement = booking.statement.as_ref().and_then(|signed| signed.open::<RequestStatement>().ok());
        ActivationRecord {
            attempt: booking.attempt.clone(),
            user: booking.user.clone(),
            user_key: booking.user_key,
            label: statement.and_then(|statement| statement.request.id().cloned()),
            told: Terms::of(booking.into()),
            stage: Stage::New,
            begun: None,
            given_up: None,
        }
    }

    /// Whether it is being ended, or was: nothing is added to it any more.
    pub fn is_closing(&self) -> bool {
        let last = |begun: &Begun| matches!(begun.event, ActivationEvent::End | ActivationEvent::Cancelled);
        self.stage == Stage::Over || self.begun.as_ref().is_some_and(last)
    }

    /// A run for `event` begins; `terms` are those of what stands. To be on disk before it does.
    pub fn begin(&mut self, event: ActivationEvent, terms: Option<Terms>) {
        let before = self.begun.take().filter(|begun| begun.event == event);
        let (runs, failures) = before.map_or((0, 0), |begun| (begun.runs, begun.failures));
        self.begun = Some(Begun { event, runs: runs.saturating_add(1), failures });
        let is_last = matches!(event, ActivationEvent::End | ActivationEvent::Cancelled);
        // What is undone is what was told.
        if let Some(terms) = terms.filter(|_| !is_last) {
            self.told = terms;
        }
    }

    /// The run that was begun has ended at `now`; after more than `tries` failures the event is given up, and counts as told.
    /// True when the event is over.
    pub fn finish(&mut self, outcome: Outcome, now: Time, tries: u32) -> bool {
        let Some(mut begun) = self.begun.take() else { return true };
        if let Outcome::Failed(why) = outcome {
            begun.failures = begun.failures.saturating_add(1);
            if begun.failures <= tries {
                self.begun = Some(begun);
                return false;
            }
            self.given_up = Some(GivenUp { event: begun.event, at: now, why });
        }
        self.stage = match begun.event {
            ActivationEvent::Reserved => Stage::Reserved,
            ActivationEvent::Start => Stage::Started,
            ActivationEvent::Changed => self.stage,
            ActivationEvent::End | ActivationEvent::Cancelled => Stage::Over,
        };
        true
    }
}

#[cfg(test)]
mod tests;
