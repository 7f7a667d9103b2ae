//! What became of requests.

use std::time::{Duration, Instant};

use broker::request::Request;
use serde::Serialize;
use sim_kit::stats::{Percentiles, percentiles};

use crate::grid::nodes::wire::{Explanation, RequestState, RequestView, Reservation, Round};

/// What became of one request.
#[derive(Debug)]
pub struct Answer {
    /// The request, in the time of the run.
    pub request: Request,
    /// Position of its entry point, and its name.
    pub entry_point: (usize, String),
    /// When it was due; latency counts from here.
    pub due: Instant,
    /// When its end was reported.
    pub ended: Instant,
    /// The first report of its end, or why there was none.
    pub end: Result<Box<RequestView>, String>,
    /// Why there is no reservation, where that was asked.
    pub explanation: Option<Explanation>,
    /// What the user did then.
    pub fate: Fate,
    /// What the entry point reports when the run is over, where that can differ from `end`.
    pub after: Option<Box<RequestView>>,
}

/// What the user did with a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Kept it, or never had it.
    Kept,
    /// Found it, and its cancellation was acknowledged.
    Cancelled,
    /// Found it and cancelled it, without an acknowledgement.
    Unclear,
    /// Came back to it and did not find it.
    Gone,
}

/// How a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Reserved,
    /// No placement in the window.
    Rejected,
    /// Anything else.
    Failed,
}

impl Answer {
    /// The first report of the end; `None` when there was none.
    pub fn view(&self) -> Option<&RequestView> {
        self.end.as_deref().ok()
    }

    /// The last report of the entry point; `None` when it never reported an end.
    pub fn last_view(&self) -> Option<&RequestView> {
        self.after.as_deref().or(self.view())
    }

    /// The first report, when it acknowledges a reservation.
    pub fn acknowledged(&self) -> Option<&RequestView> {
        self.view().filter(|view| view.state.is_reserved())
    }

    /// What was acknowledged to the user.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.acknowledged()?.reservation.as_ref()
    }

    /// From the due moment to the acknowledgement, in milliseconds; `None` when there is no reservation.
    pub fn latency_ms(&self) -> Option<f64> {
        self.acknowledged().map(|_| milliseconds(self.ended - self.due))
    }

    /// How the request is counted.
    pub fn outcome(&self) -> Outcome {
        match self.view().map(|view| view.state) {
            Some(state) if state.is_reserved() => Outcome::Reserved,
            Some(RequestState::Rejected) => Outcome::Rejected,
            Some(_) | None => Outcome::Failed,
        }
    }

    /// The user's name for the request.
    pub fn label(&self) -> &str {
        self.request.id().map_or("?", |id| id.as_str())
    }

    /// Why the request failed, with the state in which it did.
    fn why_failed(&self) -> String {
        let why = self.why_not().unwrap_or_else(|| "no reason given".to_owned());
        self.view()
            .map_or_else(|| why.clone(), |view| format!("{:?} after {} attempts: {why}", view.state, view.attempts))
    }

    /// Why the request is not reserved, in words; `None` when it is, or when the entry point gave no reason.
    pub fn why_not(&self) -> Option<String> {
        let view = match &self.end {
            Err(text) => return Some(text.clone()),
            Ok(view) if view.state.is_reserved() => return None,
            Ok(view) => view,
        };
        let explained = self.explanation.as_ref().and_then(|explanation| explanation.reason.as_ref());
        let reason = explained.or(view.reason.as_ref()).filter(|reason| !reason.detail.is_empty())?;
        let round = self.explanation.as_ref().and_then(|explanation| explanation.rounds.last());
        Some(format!("{}: {}{}", reason.code, reason.detail, round.map(hosts_seen).unwrap_or_default()))
    }
}

/// The hosts that a round of planning looked at, in words.
fn hosts_seen(round: &Round) -> String {
    let cut = round.cut.iter().filter(|cut| cut.hosts > 0);
    let cut: String = cut.map(|cut| format!("; {} cut {}", cut.constraint, cut.hosts)).collect();
    format!(" [{} of {} known hosts looked at{cut}]", round.found_hosts, round.known_hosts)
}

/// A time in milliseconds, to the microsecond.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Median, 99th percentile and largest of some times, in milliseconds.
pub fn times_ms(times: impl IntoIterator<Item = Duration>) -> Option<Percentiles> {
    percentiles(&times.into_iter().map(milliseconds).collect::<Vec<_>>())
}

/// As many reasons are kept of those that failed.
const FAILURES_MAX: usize = 5;

/// What became of some requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Requests that were submitted; each is reserved, rejected (no placement in its window) or failed.
    pub requests: usize,
    pub reserved: usize,
    pub rejected: usize,
    pub failed: usize,
    /// Why the first [`FAILURES_MAX`] of them failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Attempts that a site refused.
    pub conflicts: u64,
    pub attempts: u64,
    /// From the due moment to the acknowledgement, of the reserved ones.
    pub latency_ms: Option<Percentiles>,
}

impl Counts {
    /// Counts `answers`.
    pub fn of<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Counts {
        let (mut counts, mut latencies) = (Counts::default(), Vec::new());
        for answer in answers {
            counts.add(answer);
            latencies.extend(answer.latency_ms());
        }
        Counts { latency_ms: percentiles(&latencies), ..counts }
    }

    /// Counts one more, without its latency.
    pub fn add(&mut self, answer: &Answer) {
        self.requests += 1;
        match answer.outcome() {
            Outcome::Reserved => self.reserved += 1,
            Outcome::Rejected => self.rejected += 1,
            Outcome::Failed => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(format!("{}: {}", answer.label(), answer.why_failed()));
                }
            }
        }
        self.conflicts += answer.view().map_or(0, |view| view.conflicts);
        self.attempts += answer.view().map_or(0, |view| view.attempts);
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// The answer to a request for one host that ended in `state`, after `latency_ms`.
    pub fn answer(state: &str, reservation: &serde_json::Value, latency_ms: u64) -> Answer {
        let view = json!({"id": "q", "state": state, "attempts": 2, "conflicts": 1, "reservation": reservation, "reason": null});
        let due = Instant::now();
        Answer {
            request: serde_json::from_value(json!({"id": "r1", "hosts": 1, "duration": 60})).unwrap(),
            entry_point: (0, "node-001".to_owned()),
            due,
            ended: due + Duration::from_millis(latency_ms),
            end: Ok(serde_json::from_value(view).unwrap()),
            explanation: None,
            fate: Fate::Kept,
            after: None,
        }
    }

    #[test]
    fn counts_say_why_requests_failed() {
        let lost = Answer { end: Err("gone".to_owned()), ..answer("failed", &json!(null), 1) };
        let refused = (0..FAILURES_MAX).map(|_| answer("refused", &json!(null), 1));
        let answers: Vec<Answer> = std::iter::once(lost).chain(refused).collect();
        let counts = Counts::of(&answers);
        assert_eq!((counts.failed, counts.failures.len()), (6, 5));
        assert_eq!(counts.failures[..2], ["r1: gone", "r1: Refused after 2 attempts: no reason given"]);
    }

    #[test]
    fn the_reason_names_what_was_looked_at() {
        let mut rejected = answer("rejected", &json!(null), 1);
        assert_eq!(rejected.why_not(), None);
        let explained = json!({"reason": {"code": "no_window", "detail": "8 of 10"}, "rounds": [{"found_hosts": 15,
            "known_hosts": 60, "cut": [{"constraint": "attribute arch=x86_64", "hosts": 9}]}]});
        rejected.explanation = Some(serde_json::from_value(explained).unwrap());
        let expected = "no_window: 8 of 10 [15 of 60 known hosts looked at; attribute arch=x86_64 cut 9]";
        assert_eq!(rejected.why_not().as_deref(), Some(expected));
    }
}
