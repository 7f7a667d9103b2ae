//! Phases I to V at the entry point: look for hosts, plan on what was found, widen the search, or say no.

use std::collections::BTreeSet;

use rand::RngExt;

use super::{Exclusion, Failure, Found, FoundHost, Negotiation, Outcome, Output, Round, RoundOutcome, State};
use crate::{
    ids::{HostId, SiteId},
    phases::{self, Candidate, PhaseObserver},
    plan::{PlanOutcome, Reason, Rejection},
    request::Request,
    schedule::Schedule,
    time::{Millis, Now, Time},
};

/// How often a request looks again when schedules of hosts that it needs could not be had.
const MISSED_FINDS_MAX: u32 = 4;

/// What is being looked for: the request itself, or replacements for hosts that its reservation has lost.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) request: Request,
    pub(super) earliest: Time,
    pub(super) latest: Time,
    /// Hosts that must not be chosen: they are part of the reservation, or were lost.
    pub(super) avoid: BTreeSet<(SiteId, HostId)>,
}

impl Negotiation {
    /// Phase I: asks discovery for `M N` hosts.
    pub(super) fn find(&mut self) {
        let request = &self.problem.request;
        let (count, enough) = match request.candidates() {
            Some(candidates) => (candidates.len(), candidates.len()),
            None => {
                // Hosts to avoid may be among those found.
                let avoid = self.problem.avoid.len();
                let count = request.hosts().saturating_mul(self.multiplier as usize) + avoid;
                (count, if self.is_thorough { count } else { request.hosts() + avoid })
            }
        };
        self.state = State::Finding;
        let exclude = self.excluded.keys().cloned().collect();
        self.outputs.push_back(Output::Find { count, enough, seed: self.random.random(), exclude });
    }

    pub(super) fn on_found(&mut self, now: Now, mut found: Found, observer: &mut impl PhaseObserver) {
        if !matches!(self.state, State::Finding) {
            return;
        }
        let avoid = &self.problem.avoid;
        if !avoid.is_empty() {
            found.hosts.retain(|host| !avoid.contains(&(host.site.clone(), host.host.id.clone())));
        }
        let found = &found;
        let needed = self.problem.request.hosts();
        if found.hosts.len() < needed {
            let reason =
                Reason::TooFewHosts { found: found.hosts.len() as u64, asked: needed as u64, cut: found.cut.clone() };
            self.note_round(found, RoundOutcome::Rejected(reason.clone()));
            if !self.looks_again(now, found) {
                let outcome = self.outcome_of_shortage(found, reason);
                self.close(now, outcome);
            }
            return;
        }
        match self.plan(now, found, observer) {
            PlanOutcome::Allocated(plan) => {
                self.note_round(found, RoundOutcome::Planned(plan.start));
                self.ask_to_hold(now, plan);
            }
            PlanOutcome::Rejected(rejection) => {
                self.note_round(found, RoundOutcome::Rejected(rejection.reason.clone()));
                self.widen_or_reject(now, found, rejection);
            }
        }
    }

    /// Hosts fit whose schedules could not be had: they change while they are fetched, or their sites are busy, and a moment
    /// later they are known. Whether they are waited for; not for ever.
    fn looks_again(&mut self, now: Now, found: &Found) -> bool {
        let waits = found.without_schedule > 0 && self.missed_finds < MISSED_FINDS_MAX;
        if waits {
            self.missed_finds += 1;
            let wait = self.settings.backoff_min.0 << (2 * self.missed_finds);
            self.state = State::BackingOff { until: now.monotonic + Millis(wait) };
        }
        waits
    }

    /// Too few hosts are left: because there are no more, or because sites refused or fell silent.
    fn outcome_of_shortage(&self, found: &Found, reason: Reason) -> Outcome {
        for (site, exclusion) in &self.excluded {
            if let Exclusion::Refused(detail) = exclusion {
                return Outcome::Failed(Failure::Refused { site: site.clone(), detail: detail.clone() });
            }
        }
        if self.excluded.is_empty() && found.without_schedule == 0 {
            return Outcome::Rejected { reason, start_proven: true };
        }
        Outcome::Failed(Failure::Unreachable {
            found: found.hosts.len() as u64,
            asked: self.problem.request.hosts() as u64,
            without_schedule: found.without_schedule as u64,
            silent_sites: self.excluded.len() as u64,
        })
    }

    /// Phases II to V on what was found, corrected by what refusals have told since. Holds of others are planned
    /// around only after two attempts in a row have met one: most holds go away or become reservations at once, and a plan
    /// around a hold that goes away starts later than it need.
    fn plan(&mut self, now: Now, found: &Found, observer: &mut impl PhaseObserver) -> PlanOutcome {
        let earliest = self.problem.earliest.max(now.utc);
        let latest = self.problem.latest;
        if latest < earliest {
            let reason = Reason::WindowPassed { latest, earliest };
            return PlanOutcome::Rejected(Rejection { reason, start_proven: true });
        }
        let effort = self.problem.request.effort().unwrap_or(self.settings.planner.effort);
        let seed = self.random.random();
        let around_holds = self.held_by_others >= 2;
        let run = |with_holds: bool, observer: &mut _| {
            let schedules: Vec<Schedule> =
                found.hosts.iter().map(|host| self.best_schedule(host, with_holds)).collect();
            let candidates: Vec<Candidate<'_>> = found
                .hosts
                .iter()
                .zip(&schedules)
                .map(|(found, schedule)| Candidate { site: &found.site, host: &found.host, schedule })
                .collect();
            phases::plan(&self.problem.request, earliest, latest, &candidates, effort, seed, observer)
        };
        match run(around_holds, observer) {
            PlanOutcome::Rejected(_) if around_holds => run(false, observer),
            outcome => outcome,
        }
    }

    fn best_schedule(&self, found: &FoundHost, with_holds: bool) -> Schedule {
        match self.hints.get(&(found.site.clone(), found.host.id.clone())) {
            Some(hint) if hint.version >= found.version => {
                let mut schedule = hint.state.schedule.clone();
                if with_holds {
                    for (window, amounts) in &hint.state.held {
                        schedule.add(*window, amounts);
                    }
                }
                schedule
            }
            _ => found.schedule.clone(),
        }
    }

    /// No plan among these hosts: searches wider, then looks at twice as many, unless there are no more.
    fn widen_or_reject(&mut self, now: Now, found: &Found, rejection: Rejection) {
        let set: BTreeSet<_> = found.hosts.iter().map(|found| (found.site.clone(), found.host.id.clone())).collect();
        let asked = self.problem.request.hosts().saturating_mul(self.multiplier as usize);
        let is_named = self.problem.request.candidates().is_some();
        let is_hopeless = matches!(rejection.reason, Reason::WindowPassed { .. });
        if !is_named && !is_hopeless && !self.is_thorough && set.len() < asked {
            self.is_thorough = true;
            self.find();
            return;
        }
        let is_short = is_named || set.len() < asked;
        if is_short && !is_hopeless && self.looks_again(now, found) {
            return;
        }
        let is_everything = is_short || set == self.last_set;
        let next = self.multiplier.saturating_mul(2);
        if is_everything || is_hopeless || next > self.settings.planner.m_max {
            let Rejection { reason, start_proven } = rejection;
            // Hosts that could not be looked at might have served.
            let start_proven = start_proven && (is_hopeless || found.without_schedule == 0);
            self.close(now, Outcome::Rejected { reason, start_proven });
            return;
        }
        self.last_set = set;
        self.multiplier = next;
        self.find();
    }

    fn note_round(&mut self, found: &Found, outcome: RoundOutcome) {
        self.record.history.add_round(Round {
            multiplier: self.multiplier,
            asked_hosts: self.problem.request.hosts().saturating_mul(self.multiplier as usize),
            found_hosts: found.hosts.len(),
            known_hosts: found.known_hosts,
            without_schedule: found.without_schedule,
            cut: found.cut.clone(),
            outcome,
        });
    }
}
