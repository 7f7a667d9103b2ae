//! What a run has found, and the figures made of it.
//!
//! Invariant: every submitted request is counted once, as reserved, rejected or failed.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;
use sim_kit::{
    stats::{Percentiles, percentiles},
    usage,
};

use crate::grid::{
    checks::{aftermath::Aftermath, invariants::Violation},
    faults::{
        attack::PhaseFigures,
        churn::{CrashFigures, JoinFigures},
        partition::PartitionFigures,
    },
    load::{
        answer::{Answer, Counts, times_ms},
        batch::BatchFigures,
        figures::LoadFigures,
    },
    nodes::cluster::Cluster,
};

/// Everything found, as far as the run came.
#[derive(Debug, Default)]
pub struct Findings {
    /// What was measured. [`Findings::finish`] adds what is counted.
    pub figures: Figures,
    pub answers: Vec<Answer>,
    /// From the submission of a request that went alone until all other nodes knew the change it made.
    pub spreads: Vec<Duration>,
    /// What must never be.
    pub violations: Vec<Violation>,
    /// What else went wrong, in words: lost or unexplained answers, processes that did not end well, the error that ended the run.
    pub failed_checks: Vec<String>,
}

/// Figures of a run: the object that `--output json` ends with.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Node processes asked for.
    pub nodes: usize,
    /// Hosts of all nodes.
    pub hosts: usize,
    /// What is special about the run, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    #[serde(flatten)]
    pub counts: Counts,
    pub violations: usize,
    /// Processes that ended by themselves.
    pub crashes: usize,
    pub failed_checks: usize,
    /// From a node's start until it knew the whole grid.
    pub formation_ms: Option<Percentiles>,
    /// From the submission of a request that went alone until all other nodes knew the change it made.
    pub gossip_ms: Option<Percentiles>,
    /// Resident memory of a node, at the end.
    pub memory_mib: Option<Percentiles>,
    /// Resident memory of a node with shared pages divided by their users.
    pub memory_proportional_mib: Option<Percentiles>,
    /// From the forming of the grid, or the end of the load before, until it was at rest, where a load waited for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_ms: Option<f64>,
    /// Loads at given rates, in the order in which they were run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadFigures>,
    /// Where some requests have traffic: these, and the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkFigures>,
    /// Where the same requests were sent by themselves and as a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchFigures>,
    /// In requests a second: the highest that the grid kept up with, where that was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest_rate: Option<f64>,
    pub seed: u64,
    /// What became of acknowledged reservations, where faults or a long load were part of the run.
    #[serde(flatten)]
    pub aftermath: Option<Aftermath>,
    /// Where nodes were killed or left.
    #[serde(flatten)]
    pub crashes_caused: Option<CrashFigures>,
    /// Where new sites could join.
    #[serde(flatten)]
    pub joins: Option<JoinFigures>,
    #[serde(flatten)]
    pub partition: Option<PartitionFigures>,
    /// What attackers did to the grid, phase by phase; the first one is without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostile: Vec<PhaseFigures>,
}

/// Requests with traffic beside those without.
#[derive(Debug, Default, Serialize)]
pub struct LinkFigures {
    pub with_traffic: Counts,
    pub without: Counts,
    /// Of those with traffic, over more than one site.
    pub over_links: usize,
    /// The median latency with traffic as a multiple of that without.
    pub p50_ratio: Option<f64>,
}

impl LinkFigures {
    /// None when no request has traffic.
    fn of(answers: &[Answer]) -> Option<LinkFigures> {
        let (with, without): (Vec<&Answer>, Vec<&Answer>) =
            answers.iter().partition(|answer| answer.request.demand().traffic().is_some());
        let sites = |answer: &&&Answer| {
            let hosts = answer.reservation().into_iter().flat_map(|reservation| &reservation.hosts);
            hosts.map(|host| &host.site).collect::<BTreeSet<_>>().len()
        };
        let over_links = with.iter().filter(|answer| sites(answer) > 1).count();
        let (with_traffic, without) = (Counts::of(with), Counts::of(without));
        let p50 = |counts: &Counts| counts.latency_ms.map(|latency| latency.p50);
        let p50_ratio = p50(&with_traffic).zip(p50(&without)).map(|(with, without)| with / without);
        (with_traffic.requests > 0).then_some(LinkFigures { with_traffic, without, over_links, p50_ratio })
    }
}

impl Figures {
    /// Measures the memory of the nodes, which share their processes evenly. A process that cannot be read is left out.
    pub fn measure_memory(&mut self, cluster: &Cluster) {
        let pids = cluster.pids();
        let nodes_each = cluster.len() as f64 / pids.len().max(1) as f64;
        let measure = |size: fn(u32) -> Option<f64>| {
            percentiles(&pids.iter().filter_map(|pid| size(*pid)).map(|size| size / nodes_each).collect::<Vec<_>>())
        };
        self.memory_mib = measure(usage::resident_mib);
        self.memory_proportional_mib = measure(usage::proportional_mib);
    }
}

impl Findings {
    /// Adds to the failed checks what is missing in the answers, and counts everything.
    pub fn finish(&mut self) {
        for answer in &self.answers {
            let (label, why_not) = (answer.label(), answer.why_not());
            match &answer.end {
                Err(text) => self.failed_checks.push(format!("{label}: no end was reported: {text}")),
                Ok(view) if !view.state.is_reserved() && why_not.is_none() => {
                    self.failed_checks.push(format!("{label}: {:?}, without a reason", view.state));
                }
                Ok(_) => {}
            }
        }
        self.figures.counts = Counts::of(&self.answers);
        self.figures.links = LinkFigures::of(&self.answers);
        self.figures.gossip_ms = times_ms(self.spreads.iter().copied());
        self.figures.violations = self.violations.len();
        self.figures.failed_checks = self.failed_checks.len();
    }

    /// Whether everything is as it must be.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.figures.crashes == 0 && self.failed_checks.is_empty()
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
        let lost = Answer { end: Err("silence".to_owned()), ..answer("failed", 1) };
        let answers = vec![answer("confirmed", 5), answer("active", 7), answer("rejected", 900), lost];
        let mut findings = Findings { answers, ..Findings::default() };
        findings.finish();
        let counts = &findings.figures.counts;
        assert_eq!((counts.requests, counts.reserved, counts.rejected, counts.failed), (4, 2, 1, 1));
        assert_eq!((counts.conflicts, counts.attempts), (3, 6));
        assert_eq!(counts.latency_ms, Some(Percentiles { p50: 6.0, p99: 7.0, max: 7.0 }));
        assert_eq!(findings.failed_checks, ["r1: Rejected, without a reason", "r1: no end was reported: silence"]);
        assert!(!findings.is_good());
    }
}
