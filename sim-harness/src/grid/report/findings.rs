//! What a run has found, and the figures made of it.
//!
//! Invariant: every submitted request is counted once, as reserved, rejected or failed.

use std::time::Duration;

use serde::Serialize;

use crate::stats::{Percentiles, percentiles};
use crate::{
    grid::{
        checks::{aftermath::Aftermath, invariants::Violation},
        faults::{
            attack::PhaseFigures,
            crashes::Recovery,
            newcomers::{Join, JoinFigures},
            partition::PartitionFigures,
        },
        load::{
            answer::{Answer, End, Outcome, milliseconds},
            figures::LoadFigures,
            rounds::Driven,
        },
    },
    usage,
};

/// Memory of the nodes, in MiB.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    resident: Option<Percentiles>,
    proportional: Option<Percentiles>,
}

impl Memory {
    /// Measures the processes `pids`, which `nodes` nodes share evenly. A process that cannot be read is left out.
    pub fn measure(pids: &[u32], nodes: usize) -> Memory {
        let nodes_each = nodes as f64 / pids.len().max(1) as f64;
        let column = |size: fn(u32) -> Option<f64>| {
            percentiles(&pids.iter().filter_map(|pid| size(*pid)).map(|size| size / nodes_each).collect::<Vec<_>>())
        };
        Memory { resident: column(usage::resident_mib), proportional: column(usage::proportional_mib) }
    }
}

/// Everything found, as far as the run came.
#[derive(Debug, Default)]
pub struct Findings {
    /// Node processes asked for.
    pub nodes: usize,
    /// Hosts of all nodes.
    pub hosts: usize,
    /// What is special about the run, in words.
    pub conditions: Vec<String>,
    pub seed: u64,
    /// From a node's start until it knew the whole grid.
    pub formation: Vec<Duration>,
    /// From the forming of the grid, or the end of the load before, until it was at rest, where a load waited for that.
    pub rest: Option<Duration>,
    /// Answers and how changes spread.
    pub driven: Driven,
    /// Loads at given rates, in the order in which they were run.
    pub loads: Vec<LoadFigures>,
    /// The highest rate that the grid kept up with, where that was looked for.
    pub highest_rate: Option<f64>,
    /// What became of acknowledged reservations, where faults or a long load were part of the run.
    pub aftermath: Option<Aftermath>,
    /// The absences, where nodes were killed or left.
    pub recoveries: Option<Vec<Recovery>>,
    /// How new sites joined, where some could.
    pub joins: Option<Vec<Join>>,
    pub partition: Option<PartitionFigures>,
    /// What attackers did to the grid, phase by phase; the first one is without them.
    pub hostile: Vec<PhaseFigures>,
    /// Memory of the nodes at the end.
    pub memory: Option<Memory>,
    /// What must never be.
    pub violations: Vec<Violation>,
    /// What else went wrong, in words: lost or unexplained answers, processes that did not end well, the error that ended the run.
    pub failed_checks: Vec<String>,
    /// Processes that ended by themselves.
    pub crashes: usize,
}

/// Figures of a run: the object that `--output json` ends with. What is not said here is as in [`Findings`].
#[derive(Debug, Serialize)]
pub struct Figures {
    pub nodes: usize,
    pub hosts: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Requests that were submitted; each is reserved, rejected (no placement in its window) or failed.
    pub requests: usize,
    pub reserved: usize,
    pub rejected: usize,
    pub failed: usize,
    /// Attempts that a site refused.
    pub conflicts: u64,
    pub attempts: u64,
    pub violations: usize,
    pub crashes: usize,
    pub failed_checks: usize,
    /// From submission to acknowledgement, of reserved requests.
    pub latency_ms: Option<Percentiles>,
    pub formation_ms: Option<Percentiles>,
    /// From the submission of a request that went alone until all other nodes knew the change it made.
    pub gossip_ms: Option<Percentiles>,
    /// Resident memory of a node.
    pub memory_mib: Option<Percentiles>,
    /// Resident memory of a node with shared pages divided by their users.
    pub memory_proportional_mib: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_ms: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadFigures>,
    /// In requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest_rate: Option<f64>,
    pub seed: u64,
    #[serde(flatten)]
    pub aftermath: Option<Aftermath>,
    #[serde(flatten)]
    pub crashes_caused: Option<CrashFigures>,
    #[serde(flatten)]
    pub joins: Option<JoinFigures>,
    #[serde(flatten)]
    pub partition: Option<PartitionFigures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostile: Vec<PhaseFigures>,
}

/// Absences of nodes.
#[derive(Debug, Clone, Serialize)]
pub struct CrashFigures {
    pub kills: usize,
    /// Processes that left in order.
    pub leaves: usize,
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
                    self.failed_checks.push(format!("{}: no end was reported: {text}", answer.label()));
                }
                (End::Reported { view, .. }, Outcome::Rejected | Outcome::Failed, None) => {
                    self.failed_checks.push(format!("{}: {:?}, without a reason", answer.label(), view.state));
                }
                (End::Reported { .. }, ..) => {}
            }
        }
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        let answers = &self.driven.answers;
        let count = |outcome| answers.iter().filter(|answer| answer.outcome() == outcome).count();
        let views = || answers.iter().filter_map(Answer::view);
        let latencies: Vec<f64> = answers.iter().filter_map(Answer::latency_ms).collect();
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
    use crate::grid::load::answer::tests::answer;

    #[test]
    fn every_request_is_counted_once_and_only_reserved_ones_are_timed() {
        let answer = |state, latency_ms| answer(state, &json!(null), latency_ms);
        let mut findings = Findings::default();
        findings.driven.answers = vec![answer("confirmed", 5), answer("active", 7), answer("rejected", 900)];
        findings.driven.answers.push(Answer { end: End::Lost("silence".to_owned()), ..answer("failed", 1) });
        let figures = findings.figures();
        assert_eq!((figures.requests, figures.reserved, figures.rejected, figures.failed), (4, 2, 1, 1));
        assert_eq!((figures.conflicts, figures.attempts), (3, 6));
        assert_eq!(figures.latency_ms, Some(Percentiles { p50: 6.0, p99: 7.0, max: 7.0 }));
        findings.check_answers();
        assert_eq!(findings.failed_checks, ["r1: Rejected, without a reason", "r1: no end was reported: silence"]);
        assert!(!findings.is_good());
    }
}
