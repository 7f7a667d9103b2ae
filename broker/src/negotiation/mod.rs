//! The life of one request at its coordinator: find, plan, hold, decide, confirm; or release and go round again.
//!
//! Each attempt is a two-phase commit with presumed abort: the decision to commit is on disk before the first confirm; of an attempt
//! without such a record, whatever a crash has left of it, participants learn that it was aborted.
//!
//! A pure state machine. The caller feeds [`Negotiation::handle`] and [`Negotiation::handle_timeout`], then drains
//! [`Negotiation::poll_output`] and arms its timer by [`Negotiation::poll_timeout`] after either call. Outputs come in
//! the order in which they must happen: an [`Output::Persist`] must be on disk before any later output is let out, and
//! before [`Negotiation::stage`] is shown to anybody. Participants that ask are answered from the record on disk
//! ([`RequestRecord::status_of`]).
//!
//! Invariants: at most one attempt is alive; an attempt is confirmed nowhere before the decision to commit it is on disk; an attempt
//! that was decided against is released at every site that was asked.

mod events;
mod history;
mod losses;
#[cfg(test)]
mod losses_tests;
mod planning;
mod record;
mod reservation;
mod reserving;
mod settings;
mod takeover;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use self::{
    events::{Event, Found, FoundHost, Output, Purpose, Stage},
    history::{AttemptReport, History, ReportedAnswer, Round, RoundOutcome, SiteReport},
    record::{Decision, Failure, Outcome, Owed, RequestRecord},
    reservation::{Loss, Part, Repair, Reservation},
    settings::NegotiationSettings,
    takeover::{LookupAnswers, TakeOverError},
};
use self::{losses::Watch, planning::Problem, reserving::Site};
use crate::{
    ids::{HostId, SiteId},
    phases::PhaseObserver,
    plan::Plan,
    protocol::{AttemptId, HostState, LedgerVersion},
    request::Request,
    time::{Millis, Now},
};

/// How far the number of the attempt jumps after a crash: more attempts than any run can make.
const ATTEMPTS_PER_RUN: u32 = 100_000;

#[derive(Debug)]
enum State {
    Finding,
    Holding { plan: Plan, sites: BTreeMap<SiteId, Site>, asked_at: Millis },
    Confirming { plan: Plan, sites: BTreeMap<SiteId, Site>, asked_at: Millis, give_up_at: Millis },
    BackingOff { until: Millis },
    Reserved { plan: Plan },
    Closed { outcome: Outcome },
}

/// What a refusal shows of a host.
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
    /// It refused for a reason that another attempt would not change.
    Refused(String),
}

#[derive(Debug, Clone, Copy)]
struct Release {
    tries: u32,
    next_at: Millis,
    /// Its site has not acknowledged this node as coordinator yet: it is of an attempt that was taken over.
    needs_takeover: bool,
}

impl Release {
    /// Whether it must wait for sites that keep a part of the attempt: one that does not know that the attempt was complete asks the
    /// others, and one that has given it back, and forgotten that in a crash, would say that it never was.
    fn is_withheld(&self, attempt: u32, unsettled: &BTreeSet<(u32, SiteId)>) -> bool {
        !self.needs_takeover && unsettled.iter().any(|(of, _)| *of == attempt)
    }
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
    problem: Problem,
    watch: Watch,
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
    /// Attempts since this negotiation was made; those before a crash do not count against its limits.
    attempts: u32,
    /// Attempts that failed on a hold of somebody else.
    held_by_others: u32,
    releases: BTreeMap<(u32, SiteId), Release>,
    /// Bookings whose sites have said, in this run, that they know the whole attempt to have been confirmed.
    settled: BTreeSet<(u32, SiteId)>,
    /// Former coordinators of the request that were notified in this run.
    notified: BTreeSet<SiteId>,
    /// Attempts that sites have named in this run although nobody had reported them before; each is owed a release.
    unreported: BTreeSet<(u32, SiteId)>,
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
            Decision::Commit { plan, held_in, .. } => State::Confirming {
                plan: plan.clone(),
                sites: reserving::sites_to_confirm(plan, held_in),
                asked_at: now.monotonic,
                give_up_at: now.monotonic + settings.hold_for,
            },
            Decision::Reserved { plan, .. } => State::Reserved { plan: plan.clone() },
            Decision::Closed(outcome) => State::Closed { outcome: outcome.clone() },
        };
        let mut negotiation = Negotiation {
            entry_point,
            problem: Negotiation::problem_of(&record),
            watch: Watch::default(),
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
            attempts: 0,
            hints: BTreeMap::new(),
            held_by_others: 0,
            releases: BTreeMap::new(),
            settled: BTreeSet::new(),
            notified: BTreeSet::new(),
            unreported: BTreeSet::new(),
            outputs: VecDeque::new(),
        };
        for owed in negotiation.record.owed.clone() {
            negotiation.owe(now, owed.attempt, [owed.site]);
        }
        if matches!(negotiation.state, State::Closed { outcome: Outcome::HandedOver }) {
            negotiation.postpone_releases(now);
        }
        negotiation.send_releases(now);
        match negotiation.state {
            State::Finding => {
                // Attempts that a crash has made us forget may still be on their way to sites, or held there. The jump
                // goes to disk before the next attempt, or a second crash would give the same numbers out again.
                if is_resumed {
                    negotiation.record.last_attempt += ATTEMPTS_PER_RUN;
                    negotiation.persist(Decision::Open);
                }
                negotiation.find();
            }
            State::Confirming { .. } => negotiation.ask_to_confirm(now),
            State::Reserved { .. } => negotiation.watch(now),
            _ => {}
        }
        negotiation
    }

    /// What is being looked for: the request itself, or what would make its reservation whole again.
    #[must_use]
    pub fn wanted(&self) -> &Request {
        &self.problem.request
    }

    /// What is kept on disk, as of now.
    #[must_use]
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// How far the request is.
    #[must_use]
    pub fn stage(&self) -> Stage<'_> {
        if let Some(reservation) = &self.record.reservation
            && !matches!(self.state, State::Closed { .. })
        {
            return if !self.record.unacknowledged.is_empty() || self.watch.is_taking_over() {
                Stage::Confirming(&reservation.plan)
            } else if self.is_degraded() {
                Stage::Degraded { reservation, is_rebrokering: reservation.repair.is_some() }
            } else {
                Stage::Reserved(&reservation.plan)
            };
        }
        match &self.state {
            State::Finding => Stage::Planning,
            State::Holding { plan, .. } => Stage::Holding(plan),
            State::Confirming { plan, .. } => Stage::Confirming(plan),
            State::BackingOff { .. } => Stage::BackingOff,
            State::Reserved { plan } => Stage::Reserved(plan),
            State::Closed { outcome } => Stage::Closed { outcome, releasing: !self.releases.is_empty() },
        }
    }

    /// Whether nothing will happen any more unless the user cancels.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self.state, State::Reserved { .. } | State::Closed { .. }) && self.releases.is_empty()
    }

    /// Something happened. Drain [`Negotiation::poll_output`] and call [`Negotiation::poll_timeout`] afterwards.
    pub fn handle(&mut self, now: Now, event: Event, observer: &mut impl PhaseObserver) {
        match event {
            Event::Found(found) => self.on_found(now, found, observer),
            Event::Answer { site, attempt, purpose, answer } => self.on_answer(now, &site, attempt, purpose, answer),
            Event::Cancel => self.on_cancel(now),
            Event::Check if !self.watch.is_asking() => self.watch_now(now),
            Event::Check => {}
            Event::TakenOver { by, authorization } => self.on_taken_over(now, &by, &authorization),
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
            State::Reserved { .. } => self.watch.next_at,
            State::Closed { .. } => None,
        };
        let unsettled = self.unsettled();
        let may_go = self.releases.iter().filter(|(key, release)| !release.is_withheld(key.0, &unsettled));
        let of_releases = may_go.map(|(_, release)| release.next_at).min();
        [of_state, of_releases].into_iter().flatten().min()
    }

    /// Goes on after a wait: the next attempt, a repeated message, or giving up.
    pub fn handle_timeout(&mut self, now: Now) {
        self.repeat_releases(now);
        let out_of_patience = self.started + self.settings.patience <= now.monotonic;
        match &self.state {
            State::Finding | State::BackingOff { .. } | State::Holding { .. } if out_of_patience => {
                self.close(now, Outcome::Failed(Failure::PatienceOver { attempts: self.attempts }));
            }
            State::BackingOff { until } if *until <= now.monotonic => self.find(),
            State::Holding { asked_at, .. } if *asked_at + self.settings.answer_timeout <= now.monotonic => {
                self.on_silence(now);
            }
            State::Confirming { give_up_at, .. } if *give_up_at <= now.monotonic => self.abort(now),
            State::Confirming { .. } => self.repeat_confirms(now),
            State::Reserved { .. } if self.watch.next_at.is_some_and(|at| at <= now.monotonic) => self.watch_now(now),
            _ => {}
        }
    }

    /// The next thing to do, until none is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn on_cancel(&mut self, now: Now) {
        let stood = match &self.state {
            State::Closed { .. } => return,
            State::Confirming { plan, .. } if !self.is_repairing() => Some(plan.clone()),
            _ => self.reserved_plan().cloned(),
        };
        self.close(now, Outcome::Cancelled(stood));
    }

    /// Ends the request, or the repair of its reservation: the decision goes to disk, then every site that may have
    /// something that is not wanted any more is asked to release it.
    fn close(&mut self, now: Now, outcome: Outcome) {
        let gives_up_all = matches!(outcome, Outcome::Cancelled(_));
        let bookings = if gives_up_all || !self.is_repairing() { self.bookings() } else { Vec::new() };
        self.owe(now, self.record.last_attempt, reserving::asked_sites(&self.state));
        for (attempt, site) in bookings {
            self.owe(now, attempt, [site]);
        }
        if self.is_repairing() && !gives_up_all {
            self.on_repair_failed(now, &outcome);
        } else {
            self.note_elapsed(now);
            self.state = State::Closed { outcome: outcome.clone() };
            self.persist(Decision::Closed(outcome));
        }
        self.send_releases(now);
    }

    fn note_elapsed(&mut self, now: Now) {
        let is_first = self.record.reservation.is_none();
        if is_first && matches!(self.record.decision, Decision::Open | Decision::Commit { .. }) {
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
        if let Some(of_another) = self.record.taken_over.get(&attempt) {
            return of_another.clone();
        }
        AttemptId { entry_point: self.entry_point.clone(), request: self.record.id.clone(), attempt }
    }

    /// Waits before the next attempt: longer after every conflict, with jitter so that two rivals part.
    fn back_off(&mut self, now: Now) {
        if self.attempts >= self.settings.max_attempts {
            self.close(now, Outcome::Failed(Failure::PatienceOver { attempts: self.attempts }));
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
