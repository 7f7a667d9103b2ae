//! The life of one request at its entry point: find, plan, hold, decide, confirm; or release and go round again.
//!
//! A pure state machine. The caller feeds [`Negotiation::handle`] and [`Negotiation::handle_timeout`], then drains
//! [`Negotiation::poll_output`] and arms its timer by [`Negotiation::poll_timeout`] after either call. Outputs come in
//! the order in which they must happen: an [`Output::Persist`] must be on disk before any later output is let out, and
//! before [`Negotiation::stage`] is shown to anybody.
//!
//! Invariants: at most one try is alive; a try is confirmed nowhere before the decision to commit it is on disk; a try
//! that was decided against is released at every site that was asked.

mod events;
mod history;
mod record;
mod reserving;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::reserving::Site;
pub use self::{
    events::{Event, Found, FoundHost, Output, Purpose, Stage},
    history::{History, ReportedAnswer, Round, RoundOutcome, SiteReport, Try},
    record::{Decision, Failure, Outcome, Owed, RequestRecord},
    settings::NegotiationSettings,
};
use crate::{
    ids::{HostId, SiteId},
    phases::{self, Candidate, PhaseObserver},
    plan::{Allocation, PlanOutcome, Reason, Rejection},
    protocol::{AttemptId, AttemptStatus, HostState, LedgerVersion},
    schedule::Schedule,
    time::{Millis, Now},
};

/// How often a request looks again when schedules of hosts that it needs could not be had.
const MISSED_FINDS_MAX: u32 = 4;
/// How far the number of the try jumps after a crash: more tries than any run can make.
const TRIES_A_RUN: u32 = 100_000;

#[derive(Debug)]
enum State {
    Finding,
    Holding { allocation: Allocation, sites: BTreeMap<SiteId, Site>, asked_at: Millis },
    Confirming { allocation: Allocation, sites: BTreeMap<SiteId, Site>, asked_at: Millis, give_up_at: Millis },
    BackingOff { until: Millis },
    Stands { allocation: Allocation },
    Closed { outcome: Outcome },
}

/// What a refusal told of a host.
#[derive(Debug)]
struct Hint {
    version: LedgerVersion,
    state: HostState,
}

/// Why a site is left out from now on.
#[derive(Debug)]
enum Exclusion {
    /// It did not answer.
    Silent,
    /// It refused for a reason that another try would not change.
    Refused(String),
}

#[derive(Debug, Clone, Copy)]
struct Release {
    tries: u32,
    next_at: Millis,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Negotiation {
    entry_point: SiteId,
    settings: NegotiationSettings,
    random: Xoshiro256PlusPlus,
    /// What is kept on disk; `decision` and `owed` are set when it is written.
    record: RequestRecord,
    state: State,
    started: Millis,
    multiplier: u32,
    /// Whether a search beyond what is known is waited for: only when all that is known does not suffice.
    is_thorough: bool,
    /// The hosts of the last round: the same set again means that nothing more will come.
    last_set: BTreeSet<(SiteId, HostId)>,
    excluded: BTreeMap<SiteId, Exclusion>,
    hints: BTreeMap<(SiteId, HostId), Hint>,
    /// Rounds that came short because schedules could not be had.
    missed_finds: u32,
    /// Tries since this negotiation was made; those before a crash do not count against its limits.
    tries: u32,
    /// Tries that failed on a hold of somebody else.
    held_by_others: u32,
    releases: BTreeMap<(u32, SiteId), Release>,
    outputs: VecDeque<Output>,
}

impl Negotiation {
    /// Starts the request in `record`, or goes on with it after a crash of the entry point.
    #[must_use]
    pub fn new(
        entry_point: SiteId,
        settings: NegotiationSettings,
        record: RequestRecord,
        is_resumed: bool,
        seed: u64,
        now: Now,
    ) -> Negotiation {
        let state = match &record.decision {
            Decision::Open => State::Finding,
            Decision::Commit { allocation, held_in, .. } => State::Confirming {
                allocation: allocation.clone(),
                sites: reserving::sites_to_confirm(allocation, held_in),
                asked_at: now.monotonic,
                give_up_at: now.monotonic + settings.hold_for,
            },
            Decision::Stands { allocation, .. } => State::Stands { allocation: allocation.clone() },
            Decision::Closed(outcome) => State::Closed { outcome: outcome.clone() },
        };
        let mut negotiation = Negotiation {
            entry_point,
            multiplier: settings.planner.m_init,
            settings,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            record,
            state,
            started: now.monotonic,
            is_thorough: false,
            last_set: BTreeSet::new(),
            excluded: BTreeMap::new(),
            missed_finds: 0,
            tries: 0,
            hints: BTreeMap::new(),
            held_by_others: 0,
            releases: BTreeMap::new(),
            outputs: VecDeque::new(),
        };
        for owed in negotiation.record.owed.clone() {
            negotiation.release(now, owed.attempt, owed.site);
        }
        match negotiation.state {
            State::Finding => {
                // Tries that a crash has made us forget may still be on their way to sites, or held there. The jump
                // goes to disk before the next try, or a second crash would give the same numbers out again.
                if is_resumed {
                    negotiation.record.last_attempt += TRIES_A_RUN;
                    negotiation.persist(Decision::Open);
                }
                negotiation.find();
            }
            State::Confirming { .. } => negotiation.ask_to_confirm(now),
            _ => {}
        }
        negotiation
    }

    /// What is kept on disk, as of now.
    #[must_use]
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// Where the request stands.
    #[must_use]
    pub fn stage(&self) -> Stage<'_> {
        match &self.state {
            State::Finding => Stage::Planning,
            State::Holding { allocation, .. } => Stage::Holding(allocation),
            State::Confirming { allocation, .. } => Stage::Confirming(allocation),
            State::BackingOff { .. } => Stage::BackingOff,
            State::Stands { allocation } => Stage::Stands(allocation),
            State::Closed { outcome } => Stage::Closed { outcome, releasing: !self.releases.is_empty() },
        }
    }

    /// What this entry point answers to a participant that asks about a try.
    #[must_use]
    pub fn status_of(&self, attempt: u32) -> AttemptStatus {
        match &self.state {
            State::Confirming { .. } | State::Stands { .. } if attempt == self.record.last_attempt => {
                AttemptStatus::Confirmed
            }
            State::Holding { .. } if attempt == self.record.last_attempt => AttemptStatus::Pending,
            _ => AttemptStatus::Dead,
        }
    }

    /// Whether nothing will happen any more unless the user cancels.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self.state, State::Stands { .. } | State::Closed { .. }) && self.releases.is_empty()
    }

    /// Something happened. Drain [`Negotiation::poll_output`] and call [`Negotiation::poll_timeout`] afterwards.
    pub fn handle(&mut self, now: Now, event: Event, observer: &mut impl PhaseObserver) {
        match event {
            Event::Found(found) => self.on_found(now, &found, observer),
            Event::Answer { site, attempt, purpose, answer } => self.on_answer(now, &site, attempt, purpose, answer),
            Event::Cancel => self.on_cancel(now),
        }
    }

    /// When [`Negotiation::handle_timeout`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let patience = self.started + self.settings.patience;
        let of_state = match &self.state {
            State::Finding => Some(patience),
            State::Holding { asked_at, .. } => Some((*asked_at + self.settings.answer_timeout).min(patience)),
            State::Confirming { sites, give_up_at, .. } => {
                let retries = sites.values().filter_map(Site::retry_at).min();
                Some(retries.map_or(*give_up_at, |at| at.min(*give_up_at)))
            }
            State::BackingOff { until } => Some((*until).min(patience)),
            State::Stands { .. } | State::Closed { .. } => None,
        };
        let of_releases = self.releases.values().map(|release| release.next_at).min();
        [of_state, of_releases].into_iter().flatten().min()
    }

    /// Goes on after a wait: the next try, a repeated message, or giving up.
    pub fn handle_timeout(&mut self, now: Now) {
        self.repeat_releases(now);
        let out_of_patience = self.started + self.settings.patience <= now.monotonic;
        match &self.state {
            State::Finding | State::BackingOff { .. } | State::Holding { .. } if out_of_patience => {
                self.close(now, Outcome::Failed(Failure::PatienceOver { attempts: self.tries }));
            }
            State::BackingOff { until } if *until <= now.monotonic => self.find(),
            State::Holding { asked_at, .. } if *asked_at + self.settings.answer_timeout <= now.monotonic => {
                self.on_silence(now);
            }
            State::Confirming { give_up_at, .. } if *give_up_at <= now.monotonic => self.abort(now),
            State::Confirming { .. } => self.repeat_confirms(now),
            _ => {}
        }
    }

    /// The next thing to do, until none is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Phase I: asks discovery for `M N` hosts.
    fn find(&mut self) {
        let request = &self.record.request;
        let (count, enough) = match request.candidates() {
            Some(candidates) => (candidates.len(), candidates.len()),
            None => {
                let count = request.hosts().saturating_mul(self.multiplier as usize);
                (count, if self.is_thorough { count } else { request.hosts() })
            }
        };
        self.state = State::Finding;
        let exclude = self.excluded.keys().cloned().collect();
        self.outputs.push_back(Output::Find { count, enough, seed: self.random.random(), exclude });
    }

    fn on_found(&mut self, now: Now, found: &Found, observer: &mut impl PhaseObserver) {
        if !matches!(self.state, State::Finding) {
            return;
        }
        let needed = self.record.request.hosts();
        if found.hosts.len() < needed {
            let reason =
                Reason::TooFewHosts { found: found.hosts.len() as u64, asked: needed as u64, cut: found.cut.clone() };
            self.note_round(found, RoundOutcome::Rejected(reason.clone()));
            if found.without_schedule > 0 && self.missed_finds < MISSED_FINDS_MAX {
                // Schedules change while they are fetched; a moment later they are known again.
                self.missed_finds += 1;
                let wait = self.settings.backoff_min.0 << (2 * self.missed_finds);
                self.state = State::BackingOff { until: now.monotonic + Millis(wait) };
                return;
            }
            let outcome = self.outcome_of_shortage(found, reason);
            self.close(now, outcome);
            return;
        }
        match self.plan(now, found, observer) {
            PlanOutcome::Allocated(allocation) => {
                self.note_round(found, RoundOutcome::Planned(allocation.start));
                self.ask_to_hold(now, allocation);
            }
            PlanOutcome::Rejected(rejection) => {
                self.note_round(found, RoundOutcome::Rejected(rejection.reason.clone()));
                self.widen_or_reject(now, found, rejection);
            }
        }
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
            asked: self.record.request.hosts() as u64,
            without_schedule: found.without_schedule as u64,
            silent_sites: self.excluded.len() as u64,
        })
    }

    /// Phases II to V on what was found, corrected by what refusals have told since. Holds of others are planned
    /// around only after two tries in a row have met one: most holds go away or become reservations at once, and a plan
    /// around a hold that goes away starts later than it need.
    fn plan(&mut self, now: Now, found: &Found, observer: &mut impl PhaseObserver) -> PlanOutcome {
        let earliest = self.record.earliest.max(now.utc);
        let latest = self.record.latest;
        if latest < earliest {
            let reason = Reason::WindowPassed { latest, earliest };
            return PlanOutcome::Rejected(Rejection { reason, start_proven: true });
        }
        let effort = self.record.request.effort().unwrap_or(self.settings.planner.effort);
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
            phases::plan(&self.record.request, earliest, latest, &candidates, effort, seed, observer)
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
        let asked = self.record.request.hosts().saturating_mul(self.multiplier as usize);
        let is_named = self.record.request.candidates().is_some();
        let is_hopeless = matches!(rejection.reason, Reason::WindowPassed { .. });
        if !is_named && !is_hopeless && !self.is_thorough && set.len() < asked {
            self.is_thorough = true;
            self.find();
            return;
        }
        let is_everything = is_named || set.len() < asked || set == self.last_set;
        let next = self.multiplier.saturating_mul(2);
        if is_everything || is_hopeless || next > self.settings.planner.m_max {
            let Rejection { reason, start_proven } = rejection;
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
            asked_hosts: self.record.request.hosts().saturating_mul(self.multiplier as usize),
            found_hosts: found.hosts.len(),
            known_hosts: found.known_hosts,
            without_schedule: found.without_schedule,
            cut: found.cut.clone(),
            outcome,
        });
    }

    fn on_cancel(&mut self, now: Now) {
        let stood = match &self.state {
            State::Closed { .. } => return,
            State::Confirming { allocation, .. } | State::Stands { allocation } => Some(allocation.clone()),
            State::Finding | State::Holding { .. } | State::BackingOff { .. } => None,
        };
        self.close(now, Outcome::Cancelled(stood));
    }

    /// Ends the request: the decision goes to disk, then every site that may have something of it is told.
    fn close(&mut self, now: Now, outcome: Outcome) {
        let state = std::mem::replace(&mut self.state, State::Closed { outcome: outcome.clone() });
        let sites = reserving::asked_sites(&state);
        self.note_elapsed(now);
        self.owe(now, sites);
        self.persist(Decision::Closed(outcome));
        self.send_releases(now);
    }

    fn note_elapsed(&mut self, now: Now) {
        if matches!(self.record.decision, Decision::Open | Decision::Commit { .. }) {
            self.record.elapsed_ms = (now.monotonic - self.started).0;
        }
    }

    fn persist(&mut self, decision: Decision) {
        self.record.decision = decision;
        self.record.owed =
            self.releases.keys().map(|(attempt, site)| Owed { site: site.clone(), attempt: *attempt }).collect();
        self.outputs.push_back(Output::Persist(Box::new(self.record.clone())));
    }

    fn attempt_id(&self, attempt: u32) -> AttemptId {
        AttemptId { entry_point: self.entry_point.clone(), request: self.record.id.clone(), attempt }
    }

    /// Waits before the next try: longer after every conflict, with jitter so that two rivals part.
    fn back_off(&mut self, now: Now) {
        if self.tries >= self.settings.max_attempts {
            self.close(now, Outcome::Failed(Failure::PatienceOver { attempts: self.tries }));
            return;
        }
        let doublings = self.held_by_others.saturating_sub(1).min(16);
        let longest = (self.settings.backoff_min.0 << doublings).min(self.settings.backoff_max.0);
        let wait = if self.held_by_others == 0 { 0 } else { self.random.random_range(longest / 2..=longest) };
        if wait == 0 {
            self.find();
        } else {
            self.state = State::BackingOff { until: now.monotonic + Millis(wait) };
        }
    }
}
