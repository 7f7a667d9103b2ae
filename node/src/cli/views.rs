//! What the node's local API answers, as far as the command line reads it.
//!
//! Invariant: unknown keys are ignored, so that a newer node still answers an older command line; times are whole epoch
//! seconds unless the name says otherwise, amounts base units.

use std::{collections::BTreeMap, fmt};

use broker::{
    request::Request,
    resources::{Amounts, Attributes},
    time::Time,
};
use serde::{Deserialize, Serialize};

use super::error::Exit;

/// One request at its entry point.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RequestView {
    pub id: String,
    pub label: Option<String>,
    #[serde(default)]
    pub user: String,
    pub state: RequestState,
    pub phase: Option<WorkPhase>,
    /// Grows with every change of the view.
    pub revision: u64,
    pub submitted_ms: u64,
    pub elapsed_ms: u64,
    pub attempts: u32,
    pub conflicts: u32,
    pub request: Request,
    pub reservation: Option<ReservationView>,
    pub reason: Option<ReasonView>,
    /// The request whose reservation this one lengthens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// What lengthens this one's reservation; its end counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<ExtensionView>,
}

/// More time for the same hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExtensionView {
    pub id: String,
    pub state: RequestState,
    pub start: Option<Time>,
    pub end: Option<Time>,
    pub hosts: u64,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    Planning,
    Holding,
    Confirming,
    Confirmed,
    Active,
    Ended,
    Rejected,
    Refused,
    Failed,
    Cancelling,
    Cancelled,
    Degraded,
    Rebrokering,
    HandedOver,
}

/// What is being worked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkPhase {
    Find,
    Check,
    StartTimes,
    SelectAndSwap,
    Optimize,
    Reserve,
}

/// What stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReservationView {
    pub start: Time,
    pub end: Time,
    pub efficiency: f64,
    pub efficiency_bound: f64,
    pub start_proven: bool,
    pub hosts: Vec<GrantView>,
}

/// One host of a reservation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantView {
    pub site: String,
    pub site_name: Option<String>,
    pub host: String,
    pub amounts: Amounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// Why there is no reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonView {
    pub code: String,
    pub detail: String,
    /// The site that refuses, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// Requests, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RequestList {
    pub requests: Vec<RequestView>,
}

/// Why a request went as it did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explanation {
    pub id: String,
    #[serde(default)]
    pub user: String,
    pub state: RequestState,
    pub reason: Option<ReasonView>,
    pub rounds: Vec<RoundView>,
    pub attempts: Vec<AttemptView>,
}

/// One round of the find phase and what planning on its hosts gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundView {
    pub multiplier: u32,
    pub asked_hosts: u64,
    pub found_hosts: u64,
    pub known_hosts: u64,
    /// Found hosts whose schedule is not known, which cannot be planned with.
    #[serde(default)]
    pub without_schedule: u64,
    pub cut: Vec<CutView>,
    pub outcome: String,
    pub start: Option<Time>,
    pub detail: String,
}

/// How many hosts one constraint cut.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CutView {
    pub constraint: String,
    pub hosts: u64,
}

/// One try to reserve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptView {
    pub attempt: u32,
    pub start: Time,
    pub sites: Vec<AnswerView>,
}

/// What one site answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AnswerView {
    pub site: String,
    pub site_name: Option<String>,
    pub hosts: u64,
    pub answer: String,
    pub detail: Option<String>,
    pub milliseconds: f64,
}

/// All known sites.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SiteList {
    pub sites: Vec<SiteSummary>,
    /// Where the next page begins; none at the end.
    #[serde(default, skip_serializing)]
    pub next: Option<String>,
    /// Peers that the node refuses to talk to; none of a node that does not tell.
    #[serde(default)]
    pub bans: Vec<BanSummary>,
}

/// A peer that the node refuses to talk to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BanSummary {
    pub site: String,
    pub why: String,
    pub until: Time,
    pub times: u64,
}

/// One known site.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SiteSummary {
    pub site: String,
    pub name: String,
    pub this_node: bool,
    pub hosts: u64,
    pub advert_age_s: Option<f64>,
    pub expires_in_s: Option<f64>,
    pub schedule: String,
    pub ledger_version: Option<serde_json::Value>,
    pub schedule_age_s: Option<f64>,
    pub addresses: Vec<String>,
}

/// All known hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostList {
    pub hosts: Vec<HostSummary>,
    /// Where the next page begins; none at the end.
    #[serde(default, skip_serializing)]
    pub next: Option<String>,
}

/// One known host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostSummary {
    pub site: String,
    pub site_name: Option<String>,
    pub host: String,
    pub resources: Amounts,
    pub attributes: Attributes,
    pub free_now: Option<Amounts>,
    pub schedule_age_s: Option<f64>,
}

/// A plan: nothing is held.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PlanView {
    Allocated(AllocatedPlan),
    Rejected(RejectedPlan),
}

/// A placement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AllocatedPlan {
    #[serde(default)]
    pub id: Option<String>,
    pub start: Time,
    pub hosts: Vec<PlannedHost>,
    pub efficiency: f64,
    pub efficiency_bound: f64,
    pub start_proven: bool,
    #[serde(default)]
    pub phases_us: BTreeMap<String, f64>,
    /// Of every site whose hosts were looked at.
    #[serde(default)]
    pub schedules: Vec<UsedSchedule>,
}

/// The schedule of a site, as it was used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsedSchedule {
    pub site: String,
    pub site_name: Option<String>,
    /// Hosts of the site that were looked at.
    pub hosts: u64,
    pub age_s: Option<f64>,
}

/// One host of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedHost {
    pub id: String,
    pub site: String,
    #[serde(default)]
    pub site_name: Option<String>,
    pub amounts: Amounts,
    #[serde(default)]
    pub schedule_age_s: Option<f64>,
}

/// No placement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RejectedPlan {
    #[serde(default)]
    pub id: Option<String>,
    pub reason: ReasonView,
    pub start_proven: bool,
    #[serde(default)]
    pub phases_us: BTreeMap<String, f64>,
    /// As for a placement.
    #[serde(default)]
    pub schedules: Vec<UsedSchedule>,
}

/// RFC 9457: what the API says when it refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Problem {
    pub title: String,
    pub detail: String,
    /// The offending key of the request, if any.
    pub key: Option<String>,
    /// The rule that it breaks, if any.
    pub rule: Option<String>,
}

impl RequestState {
    /// Whether nothing will change any more without a user (or time, for what stands).
    #[must_use]
    pub fn is_settled(self) -> bool {
        !matches!(
            self,
            RequestState::Planning
                | RequestState::Holding
                | RequestState::Confirming
                | RequestState::Rebrokering
                | RequestState::Cancelling
        )
    }

    /// Whether the reservation stands or stood.
    #[must_use]
    pub fn stands(self) -> bool {
        matches!(
            self,
            RequestState::Confirmed
                | RequestState::Active
                | RequestState::Ended
                | RequestState::Degraded
                | RequestState::Rebrokering
        )
    }

    /// The state in one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            RequestState::Planning => "planning",
            RequestState::Holding => "holding",
            RequestState::Confirming => "confirming",
            RequestState::Confirmed => "confirmed",
            RequestState::Active => "active",
            RequestState::Ended => "ended",
            RequestState::Rejected => "rejected",
            RequestState::Refused => "refused",
            RequestState::Failed => "failed",
            RequestState::Cancelling => "cancelling",
            RequestState::Cancelled => "cancelled",
            RequestState::Degraded => "degraded",
            RequestState::Rebrokering => "rebrokering",
            RequestState::HandedOver => "handed over",
        }
    }
}

impl fmt::Display for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl WorkPhase {
    /// What is being done, for a progress line.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            WorkPhase::Find => "finding hosts",
            WorkPhase::Check => "checking capacities",
            WorkPhase::StartTimes => "looking for start times",
            WorkPhase::SelectAndSwap => "selecting hosts",
            WorkPhase::Optimize => "improving the choice",
            WorkPhase::Reserve => "reserving",
        }
    }
}

impl RequestView {
    /// What the shell is told when this is the end of the request.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let unreachable = self.reason.as_ref().is_some_and(|reason| reason.code == "unreachable");
        match self.state {
            state if state.stands() => Exit::Done,
            RequestState::Rejected => Exit::NoPlacement,
            RequestState::Refused => Exit::Refused,
            RequestState::Failed if unreachable => Exit::Unreachable,
            _ => Exit::Failure,
        }
    }

    /// What became of the request, in one sentence.
    #[must_use]
    pub fn outcome(&self) -> String {
        let head = match self.state {
            RequestState::Rejected => format!("no placement in the window for request {}", self.id),
            state => format!("request {} is {state}", self.id),
        };
        match &self.reason {
            Some(reason) => format!("{head}: {}", reason.detail),
            None => head,
        }
    }

    /// What is going on, for a progress line.
    #[must_use]
    pub fn progress(&self) -> String {
        let doing = match (self.state, self.phase) {
            (RequestState::Holding, _) => "holding hosts",
            (RequestState::Confirming, _) => "confirming",
            (RequestState::Planning, Some(phase)) => phase.words(),
            (state, _) => state.word(),
        };
        let attempt = self.attempts.max(1);
        match self.conflicts {
            0 => format!("{doing} (try {attempt})"),
            conflicts => format!("{doing} (try {attempt}, {conflicts} lost to others)"),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A view in `state`, with a reservation on three hosts of two sites when it stands.
    pub fn view(state: &str, reason: Option<(&str, &str)>) -> RequestView {
        let reservation = r#"{"start":1763712000,"end":1763719200,"efficiency":0.8123,"efficiency_bound":0.815,
            "start_proven":true,"hosts":[
              {"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h1","amounts":{"cpu":2400,"memory":3072}},
              {"site":"12D3KooWbbbb2222","site_name":"beta\u001b[31m","host":"b1","amounts":{"cpu":1000,"memory":512}},
              {"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h2","amounts":{"cpu":1000,"memory":1024}}]}"#;
        let stands = matches!(state, "confirmed" | "active" | "ended");
        let reason = reason.map_or("null".to_owned(), |(code, detail)| {
            serde_json::json!({"code": code, "detail": detail}).to_string()
        });
        let text = format!(
            r#"{{"id":"r-42","label":"mine","state":"{state}","phase":null,"revision":7,"submitted_ms":1763700000000,
            "elapsed_ms":9,"attempts":2,"conflicts":1,"request":{{"hosts":3,"duration":7200}},
            "reservation":{},"reason":{reason},"new_key":1}}"#,
            if stands { reservation } else { "null" }
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_end_of_a_request_decides_the_exit_code() {
        for (state, code, expected) in [
            ("confirmed", None, 0),
            ("active", None, 0),
            ("ended", None, 0),
            ("rejected", Some("no_window"), 2),
            ("failed", Some("unreachable"), 3),
            ("failed", Some("patience_over"), 1),
            ("refused", Some("refused"), 4),
            ("cancelled", Some("cancelled"), 1),
        ] {
            let view = view(state, code.map(|code| (code, "because")));
            assert_eq!(view.exit().code(), expected, "{state}");
            assert!(view.state.is_settled());
        }
        assert!(!view("planning", None).state.is_settled());
    }

    #[test]
    fn progress_names_phase_and_try() {
        let mut at = view("planning", None);
        at.phase = Some(WorkPhase::SelectAndSwap);
        assert_eq!(at.progress(), "selecting hosts (try 2, 1 lost to others)");
        at.conflicts = 0;
        assert_eq!(at.progress(), "selecting hosts (try 2)");
    }
}
