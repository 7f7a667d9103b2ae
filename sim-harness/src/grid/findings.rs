//! What a run has found, and the figures made of it.
//!
//! Invariant: every submitted request is counted once, as reserved, rejected or failed.

use std::time::Duration;

use serde::Serialize;

use super::{
    aftermath::Aftermath,
    crashes::Recovery,
    drive::{Answer, Driven, End},
    hostile::PhaseFigures,
    invariants::Violation,
    load_figures::LoadFigures,
    measure::{Percentiles, milliseconds, percentiles},
    memory::Memory,
    newcomers::{Join, JoinFigures},
    partition::PartitionFigures,
    wire::{RequestState, Round},
};

/// Everything found, as far as the run came.
#[derive(Debug, Default)]
pub struct Findings {
    /// Node processes asked for.
    pub nodes: usize,
    /// Hosts of all nodes.
    pub hosts: usize,
    /// What is special about the run, in words.
    pub conditions: Vec<String>,
    /// From a node's start until it knew the whole grid.
    pub formation: Vec<Duration>,
    /// Answers and how changes spread.
    pub driven: Driven,
    /// What must never be.
    pub violations: Vec<Violation>,
    /// What else went wrong, in words: lost or unexplained answers, processes that did not end well, what ended the run.
    pub failed_checks: Vec<String>,
    /// Processes that ended by themselves.
    pub crashes: usize,
    /// Memory of the nodes at the end.
    pub memory: Option<Memory>,
    /// What became of the promises, where faults or a long load were part of the run.
    pub aftermath: Option<Aftermath>,
    /// How each absence was got over, where nodes were killed or left.
    pub recoveries: Option<Vec<Recovery>>,
    /// How new sites joined, where some could.
    pub joins: Option<Vec<Join>>,
    /// What a partition showed.
    pub partition: Option<PartitionFigures>,
    /// What attackers did to the grid.
    pub hostile: Vec<PhaseFigures>,
    /// From the forming of the grid, or the end of the load before, until it was at rest, where a load waited for that.
    pub rest: Option<Duration>,
    /// Loads at given rates.
    pub loads: Vec<LoadFigures>,
    /// The highest rate that the grid kept up with, where that was looked for.
    pub highest_rate: Option<f64>,
    /// Seed of the run.
    pub seed: u64,
}

/// Figures of a run: the object that `--output json` ends with.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Node processes.
    pub nodes: usize,
    /// Hosts of all nodes.
    pub hosts: usize,
    /// What is special about the run, in words: distances, members, what happens meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Requests that were submitted.
    pub requests: usize,
    /// Requests whose reservation stands.
    pub reserved: usize,
    /// Requests without a placement in their window.
    pub rejected: usize,
    /// All other requests.
    pub failed: usize,
    /// Tries that a site refused.
    pub conflicts: u64,
    /// All tries.
    pub attempts: u64,
    /// Breaches of the invariants.
    pub violations: usize,
    /// Processes that ended by themselves.
    pub crashes: usize,
    /// Other checks that failed.
    pub failed_checks: usize,
    /// From submission to the confirmation, of reserved requests.
    pub latency_ms: Option<Percentiles>,
    /// From a node's start until it knew the whole grid.
    pub formation_ms: Option<Percentiles>,
    /// From the submission of a request that went alone until all other nodes knew the change it made.
    pub gossip_ms: Option<Percentiles>,
    /// Resident memory of a node.
    pub memory_mib: Option<Percentiles>,
    /// Resident memory of a node with shared pages divided by their users.
    pub memory_proportional_mib: Option<Percentiles>,
    /// From the forming of the grid, or the end of the load before, until it was at rest, where a load waited for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_ms: Option<f64>,
    /// Loads at given rates, in the order in which they were run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadFigures>,
    /// The highest rate, in requests a second, that the grid kept up with, where that was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest_rate: Option<f64>,
    /// Seed of the run.
    pub seed: u64,
    /// What became of the promises.
    #[serde(flatten)]
    pub aftermath: Option<Aftermath>,
    /// Absences of nodes, and how they were got over.
    #[serde(flatten)]
    pub crashes_caused: Option<CrashFigures>,
    /// Sites that joined.
    #[serde(flatten)]
    pub joins: Option<JoinFigures>,
    /// What a partition showed.
    #[serde(flatten)]
    pub partition: Option<PartitionFigures>,
    /// What attackers did to the grid, phase by phase; the first one is without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostile: Vec<PhaseFigures>,
}

/// Absences of nodes, and how they were got over.
#[derive(Debug, Clone, Serialize)]
pub struct CrashFigures {
    /// Processes killed.
    pub kills: usize,
    /// Processes that left in order.
    pub leaves: usize,
    /// Times of the recoveries.
    pub recovery_ms: RecoveryFigures,
}

/// Times of recoveries.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryFigures {
    /// From the start of the new process until its API answered.
    pub start: Option<Percentiles>,
    /// From the end of the old process until the API answered again, the time that it was kept down included.
    pub answers: Option<Percentiles>,
    /// From the end of the old process until everything that it had left open was settled.
    pub settled: Option<Percentiles>,
    /// Recoveries that the next end of the same node cut short.
    pub cut_short: usize,
}

impl CrashFigures {
    fn new(recoveries: &[Recovery]) -> CrashFigures {
        let times = |time: fn(&Recovery) -> Option<Duration>| {
            percentiles(&recoveries.iter().filter_map(time).map(milliseconds).collect::<Vec<_>>())
        };
        CrashFigures {
            kills: recoveries.iter().filter(|recovery| recovery.was_killed).count(),
            leaves: recoveries.iter().filter(|recovery| !recovery.was_killed).count(),
            recovery_ms: RecoveryFigures {
                start: times(|recovery| Some(recovery.start)),
                answers: times(|recovery| Some(recovery.answers)),
                settled: times(|recovery| recovery.settled),
                cut_short: recoveries.iter().filter(|recovery| recovery.settled.is_none()).count(),
            },
        }
    }
}

/// How a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The reservation stands.
    Reserved,
    /// No placement in the window.
    Rejected,
    /// Anything else.
    Failed,
}

impl Answer {
    /// How the request is counted.
    pub fn outcome(&self) -> Outcome {
        match &self.end {
            End::Told { view, .. } if view.state.stands() => Outcome::Reserved,
            End::Told { view, .. } if view.state == RequestState::Rejected => Outcome::Rejected,
            End::Told { .. } | End::Lost(_) => Outcome::Failed,
        }
    }

    /// The writer's name of the request.
    pub fn label(&self) -> &str {
        self.request.id().map_or("?", |id| id.as_str())
    }

    /// Why the request is not reserved, in words; `None` when it is, or when nobody said why.
    pub fn why_not(&self) -> Option<String> {
        match &self.end {
            End::Lost(text) => Some(text.clone()),
            End::Told { view, .. } if view.state.stands() => None,
            End::Told { view, explanation, .. } => {
                let explained = explanation.as_ref().and_then(|explanation| explanation.reason.as_ref());
                let reason = explained.or(view.reason.as_ref()).filter(|reason| !reason.detail.is_empty())?;
                let round = explanation.as_ref().and_then(|explanation| explanation.rounds.last());
                let seen = round.map(hosts_seen).unwrap_or_default();
                Some(format!("{}: {}{seen}", reason.code, reason.detail))
            }
        }
    }
}

/// Which hosts a round of planning looked at, in words.
fn hosts_seen(round: &Round) -> String {
    let cut: Vec<String> = round
        .cut
        .iter()
        .filter(|cut| cut.hosts > 0)
        .map(|cut| format!("; {} cut {}", cut.constraint, cut.hosts))
        .collect();
    format!(" [{} of {} known hosts looked at{}]", round.found_hosts, round.known_hosts, cut.concat())
}

impl Findings {
    /// Whether everything is as it must be.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.crashes == 0 && self.failed_checks.is_empty()
    }

    /// Adds to the failed checks what is missing in the answers.
    pub fn check_answers(&mut self) {
        for answer in &self.driven.answers {
            match (&answer.end, answer.outcome(), answer.why_not()) {
                (End::Lost(text), ..) => {
                    self.failed_checks.push(format!("{}: no end was told: {text}", answer.label()));
                }
                (End::Told { view, .. }, Outcome::Rejected | Outcome::Failed, None) => {
                    self.failed_checks.push(format!("{}: {:?}, and nothing says why", answer.label(), view.state));
                }
                (End::Told { .. }, ..) => {}
            }
        }
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        let answers = &self.driven.answers;
        let count = |outcome| answers.iter().filter(|answer| answer.outcome() == outcome).count();
        let views = || {
            answers.iter().filter_map(|answer| match &answer.end {
                End::Told { view, .. } => Some(view),
                End::Lost(_) => None,
            })
        };
        let latencies: Vec<f64> = answers
            .iter()
            .filter_map(|answer| match &answer.end {
                End::Told { view, latency, .. } if view.state.stands() => Some(milliseconds(*latency)),
                _ => None,
            })
            .collect();
        let times = |times: &[Duration]| percentiles(&times.iter().copied().map(milliseconds).collect::<Vec<_>>());
        Figures {
            nodes: self.nodes,
            hosts: self.hosts,
            conditions: self.conditions.clone(),
            requests: answers.len(),
            reserved: count(Outcome::Reserved),
            rejected: count(Outcome::Rejected),
            failed: count(Outcome::Failed),
            conflicts: views().map(|view| view.conflicts).sum(),
            attempts: views().map(|view| view.attempts).sum(),
            violations: self.violations.len(),
            crashes: self.crashes,
            failed_checks: self.failed_checks.len(),
            latency_ms: percentiles(&latencies),
            formation_ms: times(&self.formation),
            gossip_ms: times(&self.driven.spreads),
            memory_mib: self.memory.and_then(|memory| memory.resident),
            memory_proportional_mib: self.memory.and_then(|memory| memory.proportional),
            rest_ms: self.rest.map(milliseconds),
            loads: self.loads.clone(),
            highest_rate: self.highest_rate,
            seed: self.seed,
            aftermath: self.aftermath.clone(),
            crashes_caused: self.recoveries.as_deref().map(CrashFigures::new),
            joins: self.joins.as_deref().map(|joins| JoinFigures::new(joins, answers)),
            partition: self.partition.clone(),
            hostile: self.hostile.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(state: &str, reason: bool, latency_ms: u64) -> Answer {
        let reason = if reason { json!({"code": "no_window", "detail": "too busy"}) } else { json!(null) };
        let view = json!({"id": "q", "state": state, "attempts": 2, "conflicts": 1, "reservation": null,
            "reason": reason});
        Answer {
            request: serde_json::from_value(json!({"id": "r1", "hosts": 1, "duration": 1})).unwrap(),
            entry_point: "node-001".to_owned(),
            end: End::Told {
                view: serde_json::from_value(view).unwrap(),
                latency: Duration::from_millis(latency_ms),
                explanation: None,
            },
            after: None,
        }
    }

    #[test]
    fn every_request_is_counted_once_and_only_reserved_ones_are_timed() {
        let mut findings = Findings::default();
        findings.driven.answers =
            vec![answer("confirmed", false, 5), answer("active", false, 7), answer("rejected", true, 900)];
        findings.driven.answers.push(Answer { end: End::Lost("silence".to_owned()), ..answer("failed", true, 1) });
        let figures = findings.figures();
        assert_eq!((figures.requests, figures.reserved, figures.rejected, figures.failed), (4, 2, 1, 1));
        assert_eq!((figures.conflicts, figures.attempts), (3, 6));
        assert_eq!(figures.latency_ms, Some(Percentiles { p50: 5.0, p99: 7.0, max: 7.0 }));
        findings.check_answers();
        assert_eq!(findings.failed_checks, ["r1: no end was told: silence"]);
    }

    #[test]
    fn an_answer_without_a_reason_is_a_failed_check() {
        let mut findings = Findings::default();
        findings.driven.answers = vec![answer("rejected", false, 1), answer("failed", true, 1)];
        assert_eq!(findings.driven.answers[1].why_not().as_deref(), Some("no_window: too busy"));
        let explained = json!({"reason": {"code": "no_window", "detail": "8 of 10"}, "rounds": [{"found_hosts": 15,
            "known_hosts": 60, "cut": [{"constraint": "attribute arch=x86_64", "hosts": 9}]}]});
        if let End::Told { explanation, .. } = &mut findings.driven.answers[1].end {
            *explanation = Some(serde_json::from_value(explained).unwrap());
        }
        assert_eq!(
            findings.driven.answers[1].why_not().as_deref(),
            Some("no_window: 8 of 10 [15 of 60 known hosts looked at; attribute arch=x86_64 cut 9]")
        );
        findings.check_answers();
        assert_eq!(findings.failed_checks.len(), 1);
        assert!(!findings.is_good());
    }
}
