//! The rounds and attempts of a request, which a coordinator remembers so that it can explain its answer.
//!
//! Invariant: at most [`MAX_ENTRIES`] rounds and as many attempts are kept; older ones make room.

use serde::{Deserialize, Serialize};

use crate::{
    cost::Cost,
    ids::SiteId,
    plan::ObjectiveValue,
    reason::{CutCounts, Reason},
    time::{Millis, Time},
};

/// Most rounds, and most attempts, remembered.
pub const MAX_ENTRIES: usize = 64;

/// One pass through phases I to V.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// M: the schedules of this many times N hosts were asked for, where they were not known.
    pub multiplier: u32,
    /// Hosts asked for.
    pub asked_hosts: usize,
    /// Hosts found, with schedules.
    pub found_hosts: usize,
    /// Hosts known in all.
    pub known_hosts: usize,
    /// Hosts left out because their schedules could not be fetched.
    pub without_schedule: usize,
    /// Hosts that fit, and whose schedules are not known and were not asked for.
    #[serde(default)]
    pub left_out: usize,
    /// What each constraint cut.
    pub cut: CutCounts,
    /// Its result.
    pub outcome: RoundOutcome,
    /// What was planned as if there were no budget; none where there is none, or nothing costs anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_budget: Option<WithoutBudget>,
    /// What its sites said that the plan would cost their own jobs, those that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotes: Vec<QuoteReport>,
}

/// What a site said that a plan would cost its own jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuoteReport {
    /// The site.
    pub site: SiteId,
    /// Its answer, in words.
    pub answer: String,
}

/// The best plan of a round if more could be paid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WithoutBudget {
    /// What it is worth.
    pub objective: ObjectiveValue,
    /// What it costs.
    pub cost: Cost,
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RoundOutcome {
    /// A plan, with this start.
    Planned(Time),
    /// No plan.
    Rejected(Reason),
}

/// One attempt to reserve a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptReport {
    /// Its number.
    pub attempt: u32,
    /// The start planned.
    pub start: Time,
    /// The answer of every site that was asked.
    pub sites: Vec<SiteReport>,
}

/// The answer of one site in one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteReport {
    /// The site.
    pub site: SiteId,
    /// How many of its hosts were asked for.
    pub hosts: usize,
    /// Its last answer.
    pub answer: ReportedAnswer,
    /// How long after the question it answered.
    pub after: Millis,
}

/// The last answer of a site in an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedAnswer {
    /// Nothing yet.
    Asked,
    /// It holds.
    Held,
    /// It has confirmed.
    Confirmed,
    /// It refused, for this reason.
    Refused(String),
    /// It did not answer, for this reason.
    Silent(String),
}

/// The life of a request so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Passes through phases I to V, oldest first.
    pub rounds: Vec<Round>,
    /// Attempts to reserve, oldest first.
    #[serde(rename = "tries")]
    pub attempts: Vec<AttemptReport>,
    /// Attempts that failed because another request was faster.
    pub conflicts: u32,
}

impl History {
    pub(super) fn add_round(&mut self, round: Round) {
        push_bounded(&mut self.rounds, round);
    }

    /// Notes an answer about the last plan.
    pub(super) fn note_quote(&mut self, report: QuoteReport) {
        if let Some(round) = self.rounds.last_mut() {
            round.quotes.push(report);
        }
    }

    pub(super) fn add_attempt(&mut self, new: AttemptReport) {
        push_bounded(&mut self.attempts, new);
    }

    pub(super) fn report(&mut self, site: &SiteId, answer: ReportedAnswer, after: Millis) {
        let report =
            self.attempts.last_mut().and_then(|last| last.sites.iter_mut().find(|report| report.site == *site));
        if let Some(report) = report {
            report.answer = answer;
            report.after = after;
        }
    }
}

fn push_bounded<T>(entries: &mut Vec<T>, entry: T) {
    if entries.len() >= MAX_ENTRIES {
        entries.remove(0);
    }
    entries.push(entry);
}
