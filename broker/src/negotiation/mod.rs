//! The life of one request at its coordinator: find, plan, hold, decide, confirm; or release and begin again.
//!
//! Each attempt is a two-phase commit with presumed abort: the decision to commit is on disk before the first confirm is sent; of
//! an attempt without such a decision on disk, participants learn that it was aborted.
//!
//! A pure state machine. The caller feeds [`Negotiation::handle`] and [`Negotiation::handle_timeout`], then drains
//! [`Negotiation::poll_output`] and arms its timer by [`Negotiation::poll_timeout`] after either call. Outputs come in
//! the order in which they must happen: an [`Output::Persist`] must be on disk before any later output is let out, and
//! before [`Negotiation::stage`] is shown. Participants that ask are answered from the record on disk
//! ([`RequestRecord::status_of`]).
//!
//! Its parts: `search` finds a plan; `commit` runs the attempts, `quotes` asks what a plan costs the own jobs of its sites; `places` puts what sites give instead into the plan; `receipts` checks what they sign; `releases` repeats what sites have not acknowledged; `waits` takes in what sites tell of reserved seats; `guard`
//! asks whether a reservation is still whole and repairs it; `ownership` is the change of coordinator; `together` ties the requests of a batch; `record` is what is on disk.
//!
//! Invariants: at most one attempt is alive; an attempt is confirmed nowhere before the decision to commit it is on disk; an attempt
//! that was decided against is released at every site that was asked.

mod allowed;
mod commit;
mod events;
mod found;
mod guard;
#[cfg(test)]
mod guard_tests;
mod handed_in;
#[cfg(test)]
mod handed_in_tests;
mod hints;
mod history;
mod lessons;
#[cfg(test)]
mod links_tests;
mod ownership;
#[cfg(test)]
mod ownership_tests;
mod places;
#[cfg(test)]
mod places_tests;
#[cfg(test)]
mod price_tests;
mod quotes;
#[cfg(test)]
mod quotes_tests;
mod receipts;
#[cfg(test)]
mod receipts_tests;
mod record;
mod releases;
mod reservation;
#[cfg(test)]
mod scale_tests;
mod search;
mod settings;
#[cfg(test)]
mod shapes_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod together;
#[cfg(test)]
mod together_tests;
mod waits;
#[cfg(test)]
mod waits_tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use self::{
    allowed::HowToPlan,
    events::{Event, Excluded, Output, Purpose, Stage},
    found::{Found, FoundHost},
    handed_in::{HandedPlan, HandedSeat, PlanMisfit},
    history::{AttemptReport, History, QuoteReport, ReportedAnswer, Round, RoundOutcome, SiteReport, WithoutBudget},
    ownership::{LookupAnswers, TakeOverError},
    receipts::KeptReceipt,
    record::{Decision, Due, Failure, Outcome, Owed, RequestRecord},
    reservation::{Loss, Part, Repair, Reservation},
    settings::NegotiationSettings,
    together::{Member, Step},
};
use self::{
    commit::Site,
    guard::Watch,
    quotes::Quoting,
    receipts::ReceiptCheck,
    releases::{BookingKey, Releases},
    search::{Next, Search},
};
use crate::{
    demand::Demand,
    ids::SiteId,
    phases::PhaseObserver,
    plan::Plan,
    protocol::AttemptId,
    time::{Millis, Now},
};

/// How far the number of the attempt jumps after a crash: more than any run makes attempts.
const ATTEMPTS_PER_RUN: u32 = 100_000;

#[derive(Debug)]
enum State {
    /// Discovery is asked.
    Finding,
    /// An attempt has failed: the next plan is for the hosts of the last one, if that is worth it; if not, discovery is asked after
    /// this wait.
    PlanningAgain {
        wait: Millis,
    },
    /// Sites are asked what a plan would cost the own jobs that wait there.
    Quoting(Box<Quoting>),
    Holding {
        plan: Plan,
        sites: BTreeMap<SiteId, Site>,
        asked_at: Millis,
        refused_until: Option<Millis>,
    },
    Confirming {
        plan: Plan,
        sites: BTreeMap<SiteId, Site>,
        asked_at: Millis,
        give_up_at: Millis,
    },
    BackingOff {
        until: Millis,
    },
    Reserved {
        plan: Plan,
    },
    Closed {
        outcome: Outcome,
    },
}

/// One request at its coordinator.
#[derive(Debug)]
pub struct Negotiation {
    entry_point: SiteId,
    settings: NegotiationSettings,
    random: Xoshiro256PlusPlus,
    /// The record on disk; `decision` and `owed` are set when it is written.
    record: RequestRecord,
    state: State,
    search: Search,
    watch: Watch,
    releases: Releases,
    /// Bookings whose sites have reported, in this run, that they know the whole attempt to have been confirmed.
    settled: BTreeSet<BookingKey>,
    /// Former coordinators of the request that were notified in this run.
    notified: BTreeSet<SiteId>,
    /// Attempts that sites have named in this run although no site had reported them before; each is owed a release.
    unreported: BTreeSet<BookingKey>,
    /// None: no receipts are asked for.
    receipts: Option<ReceiptCheck>,
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
                sites: commit::sites_to_confirm(plan, held_in),
                asked_at: now.monotonic,
                give_up_at: now.monotonic + settings.hold_for,
            },
            Decision::Reserved { plan, .. } => State::Reserved { plan: plan.clone() },
            Decision::Closed(outcome) => State::Closed { outcome: outcome.clone() },
        };
        let problem = Negotiation::problem_of(&record);
        let mut negotiation = Negotiation {
            search: Search::new(problem, entry_point.clone(), &settings, now.monotonic, seed),
            entry_point,
            watch: Watch::new((seed >> 32) as u32),
            settings,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            record,
            state,
            releases: Releases::default(),
            settled: BTreeSet::new(),
            notified: BTreeSet::new(),
            unreported: BTreeSet::new(),
            receipts: None,
            outputs: VecDeque::new(),
        };
        for Owed { site, attempt } in negotiation.record.owed.clone() {
            negotiation.owe(now, attempt, [site]);
        }
        if matches!(negotiation.state, State::Closed { outcome: Outcome::HandedOver }) {
            negotiation.postpone_releases(now);
        }
        negotiation.send_releases(now);
        match negotiation.state {
            State::Finding => {
                // Messages of attempts that were lost in a crash may still travel, or be held at sites. The jump is on disk
                // before the next attempt, or a second crash would lead to the same numbers again.
                if is_resumed {
                    negotiation.record.last_attempt += ATTEMPTS_PER_RUN;
                    negotiation.persist(Decision::Open);
                }
                negotiation.begin(now);
            }
            State::Confirming { .. } => negotiation.ask_to_confirm(now),
            State::Reserved { .. } if !negotiation.waits_for_batch() => negotiation.watch(now),
            _ => {}
        }
        negotiation
    }

    /// What hosts the search looks for: such as the user wants, for any of the shapes, or such as its reservation has lost.
    #[must_use]
    pub fn wanted(&self) -> &Demand {
        self.search.wanted()
    }

    /// On how many hosts it may plan in the next call, other than those of an [`Event::Found`].
    #[must_use]
    pub fn hosts_planned_on(&self) -> usize {
        self.search.hosts_planned_on()
    }

    /// The record, as it is on disk once all outputs are handled.
    #[must_use]
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// How far the request is.
    #[must_use]
    pub fn stage(&self) -> Stage<'_> {
        if self.member() == Some(Member::Reserved)
            && let Some(plan) = self.reserved_plan()
        {
            return Stage::Confirming(plan);
        }
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
            State::Finding | State::PlanningAgain { .. } | State::Quoting(_) => Stage::Planning,
            State::Holding { plan, .. } => Stage::Holding(plan),
            State::Confirming { plan, .. } => Stage::Confirming(plan),
            State::BackingOff { .. } => Stage::BackingOff,
            State::Reserved { plan } => Stage::Reserved(plan),
            State::Closed { outcome } => Stage::Closed { outcome, releasing: !self.releases.is_empty() },
        }
    }

    /// Whether a check of the reservation, or the repair that follows from one, is under way.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        let is_repairing = self.record.reservation.as_ref().is_some_and(|reservation| reservation.repair.is_some());
        !matches!(self.state, State::Closed { .. }) && (is_repairing || self.watch.is_asking())
    }

    /// Whether nothing happens any more unless the user cancels.
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
            Event::GiveBack(exit_code) => self.on_given_back(now, exit_code),
            Event::Check if !self.watch.is_asking() => self.watch_now(now),
            Event::Check => {}
            Event::AllHeld => self.on_all_held(now),
            Event::BatchReserved => self.on_batch_reserved(now),
            Event::BatchFailed(detail) => self.on_batch_failed(now, detail),
            Event::TakenOver { by, authorization } => self.on_taken_over(now, &by, &authorization),
        }
        self.end_quoting(now, observer);
        self.plan_again(now, observer);
    }

    /// When [`Negotiation::handle_timeout`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let patience = self.search.started() + self.settings.patience;
        let of_state = match &self.state {
            State::Finding | State::PlanningAgain { .. } => Some(patience),
            State::Quoting(quoting) => Some(self.quotes_end_at(quoting).min(patience)),
            State::Holding { asked_at, refused_until, .. } => {
                let timeout = self.holding_ends_at(*asked_at).min(patience);
                Some(refused_until.map_or(timeout, |until| until.min(timeout)))
            }
            State::Confirming { sites, give_up_at, .. } => {
                let retries = sites.values().filter_map(Site::retry_at).min();
                Some(retries.map_or(*give_up_at, |at| at.min(*give_up_at)))
            }
            State::BackingOff { until } => Some((*until).min(patience)),
            State::Reserved { .. } => self.watch.next_at,
            State::Closed { .. } => None,
        };
        let of_releases = self.releases.next_at(&self.unsettled());
        [of_state, of_releases].into_iter().flatten().min()
    }

    /// Goes on after a wait: the next attempt, a repeated message, or giving up.
    pub fn handle_timeout(&mut self, now: Now) {
        self.repeat_releases(now);
        let out_of_patience = self.search.started() + self.settings.patience <= now.monotonic;
        match &self.state {
            State::Finding | State::Quoting(_) | State::BackingOff { .. } | State::Holding { .. }
                if out_of_patience =>
            {
                self.close(now, Outcome::Failed(Failure::PatienceOver { attempts: self.search.attempts() }));
            }
            State::BackingOff { until } if *until <= now.monotonic => self.find(),
            State::Holding { asked_at, .. } if self.holding_ends_at(*asked_at) <= now.monotonic => {
                self.on_silence(now);
            }
            State::Holding { .. } => self.end_refused_attempt(now),
            State::Confirming { give_up_at, .. } if *give_up_at <= now.monotonic => self.abort(now),
            State::Confirming { .. } => self.repeat_confirms(now),
            State::Reserved { .. } if self.watch.next_at.is_some_and(|at| at <= now.monotonic) => self.watch_now(now),
            _ => {}
        }
        self.end_quoting(now, &mut ());
        self.plan_again(now, &mut ());
    }

    /// The next thing to do, until none is left.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn on_given_back(&mut self, now: Now, exit_code: u8) {
        if !matches!(self.state, State::Closed { .. }) {
            self.record.exit_code = Some(exit_code);
        }
        self.on_cancel(now);
    }

    fn on_cancel(&mut self, now: Now) {
        let reserved = match &self.state {
            State::Closed { .. } => return,
            State::Confirming { plan, .. } if !self.is_repairing() => Some(plan.clone()),
            _ => self.reserved_plan().cloned(),
        };
        self.close(now, Outcome::Cancelled(reserved));
    }

    /// Ends the request, or the repair of its reservation: writes the decision, then asks every site that may have a booking that
    /// is no longer wanted to release it.
    fn close(&mut self, now: Now, outcome: Outcome) {
        self.search.forget_found();
        let gives_up_all = matches!(outcome, Outcome::Cancelled(_) | Outcome::Failed(Failure::Batch { .. }));
        let bookings = if gives_up_all || !self.is_repairing() { self.bookings() } else { Vec::new() };
        self.owe(now, self.record.last_attempt, commit::asked_sites(&self.state));
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
            self.record.elapsed_ms = (now.monotonic - self.search.started()).0;
        }
    }

    fn persist(&mut self, decision: Decision) {
        self.record.decision = decision;
        self.record.owed = self.releases.owed();
        self.outputs.push_back(Output::Persist(Box::new(self.record.clone())));
    }

    fn attempt_id(&self, attempt: u32) -> AttemptId {
        if let Some(name) = self.record.taken_over.get(&attempt) {
            return name.clone();
        }
        AttemptId { entry_point: self.entry_point.clone(), request: self.record.id.clone(), attempt }
    }

    /// The first round: a plan that was handed in needs none of the phases before the last. After a restart it is tried once more, unless
    /// it has failed and any other plan will do as well.
    fn begin(&mut self, now: Now) {
        let has_failed = self.record.replans && !self.record.history.attempts.is_empty();
        match self.record.handed_in.clone().filter(|_| !has_failed) {
            Some(plan) => self.ask_to_hold(now, plan),
            None => self.find(),
        }
    }

    /// After an attempt that has failed: plans on the hosts of the last plan, or asks discovery.
    fn plan_again(&mut self, now: Now, observer: &mut impl PhaseObserver) {
        let State::PlanningAgain { wait } = self.state else { return };
        self.search.note_due(self.record.due_at_most());
        match self.search.plan_again(now, &self.settings, &mut self.random, observer) {
            Some((round, proposal)) => self.go_on(now, round, Next::Hold(proposal)),
            None if wait == Millis(0) => self.find(),
            None => self.state = State::BackingOff { until: now.monotonic + wait },
        }
    }

    /// Asks discovery for hosts.
    fn find(&mut self) {
        self.state = State::Finding;
        let find = self.search.find(self.random.random());
        self.outputs.push_back(find);
    }

    fn on_found(&mut self, now: Now, found: Found, observer: &mut impl PhaseObserver) {
        if !matches!(self.state, State::Finding) {
            return;
        }
        self.search.note_due(self.record.due_at_most());
        let (round, next) = self.search.on_found(now, found, &self.settings, &mut self.random, observer);
        self.go_on(now, round, next);
    }

    fn go_on(&mut self, now: Now, round: Round, next: Next) {
        self.record.history.add_round(round);
        match next {
            Next::Hold(proposal) => self.propose(now, proposal),
            Next::Find => self.find(),
            Next::Wait(wait) => self.state = State::BackingOff { until: now.monotonic + wait },
            Next::End(outcome) => self.close(now, outcome),
        }
    }

    /// The end of a request with a plan that was handed in, of which an attempt has failed: it is tried once, since whoever made it knows
    /// whether another would do; or has said that any will.
    fn outcome_of_handed_plan(&self) -> Option<Outcome> {
        if self.record.handed_in.is_none() || self.record.replans || self.is_repairing() {
            return None;
        }
        let reports = self.record.history.attempts.last().map_or(&[][..], |attempt| &attempt.sites);
        let refused = reports.iter().find_map(|report| match &report.answer {
            ReportedAnswer::Refused(why) | ReportedAnswer::Silent(why) => Some((report.site.clone(), why.clone())),
            _ => None,
        });
        let unconfirmed = || reports.iter().find(|report| report.answer != ReportedAnswer::Confirmed);
        let (site, why) = refused.unwrap_or_else(|| {
            let site = unconfirmed().map_or(&self.entry_point, |report| &report.site);
            (site.clone(), "it has not confirmed in time".to_owned())
        });
        Some(Outcome::Failed(Failure::Refused { site, detail: format!("the plan that was handed in: {why}") }))
    }

    /// Plans again with what the refusal has shown, or waits before the next attempt; gives up when none is left.
    fn back_off(&mut self, now: Now) {
        if let Some(outcome) = self.outcome_of_handed_plan() {
            return self.close(now, outcome);
        }
        let Some(wait) = self.search.wait_for_attempt(&self.settings, &mut self.random) else {
            return self.close(now, Outcome::Failed(Failure::PatienceOver { attempts: self.search.attempts() }));
        };
        if wait == Millis(0) || self.search.lessons().has_learned() {
            self.state = State::PlanningAgain { wait };
        } else {
            self.state = State::BackingOff { until: now.monotonic + wait };
        }
    }
}
