//! What became of a request.

use std::time::Duration;

use broker::request::Request;

use crate::grid::nodes::wire::{Explanation, RequestState, RequestView, Reservation, Round};

/// What became of one request.
#[derive(Debug)]
pub struct Answer {
    /// The request, in the time of the run.
    pub request: Request,
    /// Name of its entry point.
    pub entry_point: String,
    pub end: End,
    /// What the entry point reports when the run is over, where that can differ from `end`.
    pub after: Option<Box<RequestView>>,
}

/// How a request ended.
#[derive(Debug)]
pub enum End {
    /// The entry point reported its end.
    Reported {
        /// The report.
        view: Box<RequestView>,
        /// From the submission to the report.
        latency: Duration,
        /// Why there is no reservation.
        explanation: Option<Explanation>,
    },
    /// The entry point never reported an end, for this reason.
    Lost(String),
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
        match &self.end {
            End::Reported { view, .. } => Some(view),
            End::Lost(_) => None,
        }
    }

    /// The last report of the entry point; `None` when it never reported an end.
    pub fn last_view(&self) -> Option<&RequestView> {
        self.after.as_deref().or(self.view())
    }

    /// What was acknowledged to the user.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.view().filter(|view| view.state.is_reserved())?.reservation.as_ref()
    }

    /// From the submission to the acknowledgement, in milliseconds; `None` when there is no reservation.
    pub fn latency_ms(&self) -> Option<f64> {
        match &self.end {
            End::Reported { view, latency, .. } if view.state.is_reserved() => Some(milliseconds(*latency)),
            End::Reported { .. } | End::Lost(_) => None,
        }
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

    /// Why the request is not reserved, in words; `None` when it is, or when the entry point gave no reason.
    pub fn why_not(&self) -> Option<String> {
        match &self.end {
            End::Lost(text) => Some(text.clone()),
            End::Reported { view, .. } if view.state.is_reserved() => None,
            End::Reported { view, explanation, .. } => {
                let explained = explanation.as_ref().and_then(|explanation| explanation.reason.as_ref());
                let reason = explained.or(view.reason.as_ref()).filter(|reason| !reason.detail.is_empty())?;
                let round = explanation.as_ref().and_then(|explanation| explanation.rounds.last());
                let seen = round.map(hosts_seen).unwrap_or_default();
                Some(format!("{}: {}{seen}", reason.code, reason.detail))
            }
        }
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

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// The answer to a request for one host that ended in `state`, after `latency_ms`.
    pub fn answer(state: &str, reservation: &serde_json::Value, latency_ms: u64) -> Answer {
        let view = json!({"id": "q", "state": state, "attempts": 2, "conflicts": 1, "reservation": reservation, "reason": null});
        Answer {
            request: serde_json::from_value(json!({"id": "r1", "hosts": 1, "duration": 60})).unwrap(),
            entry_point: "node-001".to_owned(),
            end: End::Reported {
                view: serde_json::from_value(view).unwrap(),
                latency: Duration::from_millis(latency_ms),
                explanation: None,
            },
            after: None,
        }
    }

    #[test]
    fn the_reason_names_what_was_looked_at() {
        let mut rejected = answer("rejected", &json!(null), 1);
        assert_eq!(rejected.why_not(), None);
        let explained = json!({"reason": {"code": "no_window", "detail": "8 of 10"}, "rounds": [{"found_hosts": 15,
            "known_hosts": 60, "cut": [{"constraint": "attribute arch=x86_64", "hosts": 9}]}]});
        if let End::Reported { explanation, .. } = &mut rejected.end {
            *explanation = Some(serde_json::from_value(explained).unwrap());
        }
        let expected = "no_window: 8 of 10 [15 of 60 known hosts looked at; attribute arch=x86_64 cut 9]";
        assert_eq!(rejected.why_not().as_deref(), Some(expected));
    }
}
