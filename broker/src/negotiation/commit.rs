//! Phase VI over the network: hold at every site in parallel, decide, confirm; what failed is [released](super::releases). A plan at a single
//! site is held and confirmed in one round trip.
//!
//! Invariant: the decision to commit, or to abort, is written before the message that follows from it is sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    AttemptReport, Decision, Failure, Member, Negotiation, Outcome, Output, Purpose, ReportedAnswer, SiteReport, State,
    releases::REPEAT_AFTER,
};
use crate::{
    ids::SiteId,
    plan::Plan,
    protocol::{AttemptId, Grant, HoldRequest, Refusal, RefusalReason, SiteAnswer, SiteRequest},
    reason::Reason,
    time::{Millis, Now, Window},
    trust::Authorization,
};

/// One site in the present attempt.
#[derive(Debug, Clone)]
pub(super) struct Site {
    grants: Vec<Grant>,
    progress: Progress,
}

/// An attempt that has a number, and of which nobody was asked anything yet.
struct Begun {
    sites: BTreeMap<SiteId, Site>,
    /// What each site is to hold.
    holds: Vec<(SiteId, HoldRequest)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It was asked to hold and has not answered.
    Asked,
    /// It has refused, and has shown what is free.
    Refused,
    /// It holds, in this incarnation of its ledger.
    Held { incarnation: u64 },
    /// It was asked to hold and to confirm at once.
    Booking,
    /// It was asked to confirm.
    Confirming { held_in: u64 },
    /// The confirm got no answer: it is repeated at this time.
    ConfirmAgain { held_in: u64, at: Millis },
    /// It has confirmed.
    Confirmed,
}

impl Site {
    /// What it was asked for.
    pub(super) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether it holds all that it was asked for.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.progress, Progress::Held { .. })
    }

    pub(super) fn retry_at(&self) -> Option<Millis> {
        match self.progress {
            Progress::ConfirmAgain { at, .. } => Some(at),
            _ => None,
        }
    }
}

/// The sites of an attempt that was committed before a crash of the coordinator, and is to be confirmed now.
pub(super) fn sites_to_confirm(plan: &Plan, held_in: &[(SiteId, u64)]) -> BTreeMap<SiteId, Site> {
    let mut sites = sites_of(plan);
    for (site, incarnation) in held_in {
        if let Some(site) = sites.get_mut(site) {
            site.progress = Progress::Held { incarnation: *incarnation };
        }
    }
    sites
}

/// The sites of a plan, each with the seats that it is asked for.
fn sites_of(plan: &Plan) -> BTreeMap<SiteId, Site> {
    let mut sites = BTreeMap::new();
    for seat in &plan.seats {
        sites
            .entry(seat.site.clone())
            .or_insert_with(|| Site { grants: Vec::new(), progress: Progress::Asked })
            .grants
            .push(Grant::from(seat));
    }
    sites
}

/// Sites that may have a booking of the present attempt.
pub(super) fn asked_sites(state: &State) -> BTreeSet<SiteId> {
    match state {
        State::Holding { sites, .. } | State::Confirming { sites, .. } => sites.keys().cloned().collect(),
        State::Finding
        | State::PlanningAgain { .. }
        | State::Quoting(_)
        | State::BackingOff { .. }
        | State::Reserved { .. }
        | State::Closed { .. } => BTreeSet::new(),
    }
}

impl Negotiation {
    /// First phase: asks every site of the plan to hold.
    pub(super) fn ask_to_hold(&mut self, now: Now, plan: Plan) {
        let Some(Begun { sites, holds }) = self.begin_attempt(now, &plan) else { return };
        for (site, hold) in holds {
            self.ask(site, Purpose::Hold, SiteRequest::Hold(hold));
        }
        self.state = State::Holding { plan, sites, asked_at: now.monotonic, refused_until: None };
    }

    /// Both phases in one, at the only site of the plan. As before every confirm, the decision is written first; the site may still
    /// refuse, and then the attempt is aborted as one whose confirm is refused.
    pub(super) fn book(&mut self, now: Now, plan: Plan, incarnation: u64) {
        let Some(Begun { mut sites, holds }) = self.begin_attempt(now, &plan) else { return };
        sites.values_mut().for_each(|site| site.progress = Progress::Booking);
        let attempt = self.record.last_attempt;
        let held_in = sites.keys().map(|site| (site.clone(), incarnation)).collect();
        let decision = Decision::Commit { attempt, plan: plan.clone(), held_in };
        let give_up_at = now.monotonic + self.settings.hold_for;
        self.state = State::Confirming { plan, sites, asked_at: now.monotonic, give_up_at };
        self.persist(decision);
        for (site, hold) in holds {
            self.ask(site, Purpose::Confirm, SiteRequest::Book { hold, incarnation });
        }
    }

    pub(super) fn ask(&mut self, site: SiteId, purpose: Purpose, request: SiteRequest) {
        let (attempt, timeout) = (self.record.last_attempt, self.settings.answer_timeout);
        self.outputs.push_back(Output::Ask { site, attempt, purpose, request, timeout });
    }

    /// Numbers a new attempt and notes it in the history; none when the request cannot be proven to be its user's, and then it is
    /// closed.
    fn begin_attempt(&mut self, now: Now, plan: &Plan) -> Option<Begun> {
        let Some(authorization) = self.record.authorization.clone() else {
            let detail = "it was kept by an earlier version, without the user's signature: submit it again".to_owned();
            self.close(now, Outcome::Failed(Failure::Refused { site: self.entry_point.clone(), detail }));
            return None;
        };
        // A plan that was handed in comes back after a restart, when earlier attempts may already have cost something.
        self.search.note_due(self.record.due_at_most());
        if let Some(budget) = self.search.budget().filter(|budget| plan.cost() > *budget) {
            let reason = Reason::Budget { budget, cheapest: Some(plan.cost()) };
            self.close(now, Outcome::Rejected { reason, start_proven: false });
            return None;
        }
        let authorization = Arc::new(authorization);
        self.record.last_attempt += 1;
        self.search.note_attempt();
        let attempt = self.attempt_id(self.record.last_attempt);
        let sites = sites_of(plan);
        let report = |(site, of_site): (&SiteId, &Site)| SiteReport {
            site: site.clone(),
            hosts: of_site.grants.len(),
            answer: ReportedAnswer::Asked,
            after: Millis(0),
        };
        let reports = sites.iter().map(report).collect();
        let holds = self.holds_of(plan, &attempt, &authorization);
        self.record.history.add_attempt(AttemptReport { attempt: attempt.attempt, start: plan.start, sites: reports });
        Some(Begun { sites, holds })
    }

    /// What each site of a plan is to hold.
    pub(super) fn holds_of(
        &self,
        plan: &Plan,
        attempt: &AttemptId,
        authorization: &Arc<Authorization>,
    ) -> Vec<(SiteId, HoldRequest)> {
        let sites = sites_of(plan);
        let participants: Vec<SiteId> = sites.keys().cloned().collect();
        let hold = |(site, of_site): (SiteId, Site)| {
            let hold = HoldRequest {
                attempt: attempt.clone(),
                variant: plan.variant(),
                grants: of_site.grants,
                participants: participants.clone(),
                hold_for: self.settings.hold_for,
                may_substitute: self.may_substitute(),
                authorization: authorization.clone(),
            };
            (site, hold)
        };
        sites.into_iter().map(hold).collect()
    }

    pub(super) fn on_answer(
        &mut self,
        now: Now,
        site: &SiteId,
        attempt: u32,
        purpose: Purpose,
        answer: Result<SiteAnswer, String>,
    ) {
        match purpose {
            Purpose::Release => self.on_release_answer(now, site, attempt, &answer),
            Purpose::Quote(round) => self.on_quoted(site, round, answer),
            Purpose::Inspect(round) => self.on_inspected(now, site, (attempt, round), answer),
            Purpose::Hold if attempt == self.record.last_attempt => self.on_hold_answer(now, site, answer),
            Purpose::Confirm if attempt == self.record.last_attempt => self.on_confirm_answer(now, site, answer),
            Purpose::Hold => self.learn_late(site, answer),
            // An answer to an earlier attempt: that attempt was released when it ended.
            Purpose::Confirm => {}
            Purpose::Settle => {
                if matches!(answer, Ok(SiteAnswer::Settled)) {
                    self.settled.insert((attempt, site.clone()));
                }
            }
        }
    }

    fn on_hold_answer(&mut self, now: Now, site: &SiteId, answer: Result<SiteAnswer, String>) {
        if !matches!(self.state, State::Holding { .. }) {
            return self.learn_late(site, answer);
        }
        let answer = self.with_places(site, answer);
        let State::Holding { sites, asked_at, refused_until, .. } = &mut self.state else { return };
        let Some(of_site) = sites.get_mut(site) else { return };
        let after = now.monotonic - *asked_at;
        match answer {
            Ok(SiteAnswer::Held { version, .. }) => {
                of_site.progress = Progress::Held { incarnation: version.incarnation };
                self.record.history.report(site, ReportedAnswer::Held, after);
                match sites.values().all(Site::is_held) {
                    true if self.waits_for_batch() => {}
                    true => self.commit(now),
                    false => self.end_refused_attempt(now),
                }
            }
            Ok(SiteAnswer::Refused(refusal)) => {
                // What the other sites refuse spares the next attempt the same, so they have a little longer to answer.
                let shows = refusal.shows_what_is_free();
                let is_first = refused_until.is_none();
                if shows {
                    of_site.progress = Progress::Refused;
                    refused_until.get_or_insert(now.monotonic + Millis((after.0 / 4).max(1)));
                }
                self.record.history.report(site, ReportedAnswer::Refused(refusal.reason.to_string()), after);
                if refusal.reason == RefusalReason::OtherAttempt {
                    self.look_for_unreported(now, site);
                }
                if is_first || !shows {
                    self.learn(site, refusal, is_first);
                } else {
                    self.learn_late(site, Ok(SiteAnswer::Refused(refusal)));
                }
                match shows {
                    true => self.end_refused_attempt(now),
                    false => self.give_up_attempt(now),
                }
            }
            Ok(_) => {
                let what = "an answer that does not fit the question".to_owned();
                self.record.history.report(site, ReportedAnswer::Silent(what), after);
                self.search.lessons().exclude_silent(site);
                self.give_up_attempt(now);
            }
            Err(why) => {
                self.record.history.report(site, ReportedAnswer::Silent(why), after);
                self.search.lessons().exclude_silent(site);
                self.give_up_attempt(now);
            }
        }
    }

    /// An attempt that a site has refused ends when every site has answered, or has had the time to.
    pub(super) fn end_refused_attempt(&mut self, now: Now) {
        let State::Holding { sites, refused_until: Some(until), .. } = &self.state else { return };
        if *until <= now.monotonic || sites.values().all(|site| site.progress != Progress::Asked) {
            self.give_up_attempt(now);
        }
    }

    /// Sites that have not answered in time are left out from here on.
    pub(super) fn on_silence(&mut self, now: Now) {
        if self.member() == Some(Member::Held) {
            let detail = "not all of it was held in time".to_owned();
            return self.close(now, Outcome::Failed(Failure::Batch { detail }));
        }
        let State::Holding { sites, asked_at, .. } = &self.state else { return };
        let after = now.monotonic - *asked_at;
        let silent: Vec<SiteId> =
            sites.iter().filter(|(_, site)| site.progress == Progress::Asked).map(|(id, _)| id.clone()).collect();
        for site in silent {
            let why = "no answer in time".to_owned();
            self.record.history.report(&site, ReportedAnswer::Silent(why), after);
            self.search.lessons().exclude_silent(&site);
        }
        self.give_up_attempt(now);
    }

    /// An attempt counts as one conflict, however many sites refuse it.
    fn learn(&mut self, site: &SiteId, refusal: Refusal, is_first: bool) {
        let asked = (self.record.request.seats_max(), self.window_at(site));
        let is_conflict = self.search.learn(site, refusal, asked);
        self.record.history.conflicts += u32::from(is_conflict && is_first);
    }

    /// The window of the present attempt's seats at a site.
    fn window_at(&self, site: &SiteId) -> Option<Window> {
        let (State::Holding { plan, .. } | State::Confirming { plan, .. }) = &self.state else { return None };
        let windows = plan.seats.iter().filter(|seat| seat.site == *site).map(|seat| seat.window);
        windows.reduce(|all, one| Window { start: all.start.min(one.start), end: all.end.max(one.end) })
    }

    /// The hosts that later refusals show spare the next attempt the same conflict.
    fn learn_late(&mut self, site: &SiteId, answer: Result<SiteAnswer, String>) {
        if let Ok(SiteAnswer::Refused(refusal)) = answer {
            self.search.remember(site, refusal, (self.record.request.seats_max(), None));
        }
    }

    /// The present attempt has failed before it was decided: every asked site is released, and a new round begins.
    fn give_up_attempt(&mut self, now: Now) {
        if let Some(outcome) = self.outcome_of_handed_plan() {
            return self.close(now, outcome);
        }
        let sites = asked_sites(&self.state);
        for site in sites {
            // Sent once: where it does not arrive the hold lapses.
            self.outputs.push_back(self.release_message(&site, self.record.last_attempt));
        }
        self.back_off(now);
    }

    /// All sites hold: the decision is written before the first confirm is sent.
    pub(super) fn commit(&mut self, now: Now) {
        let State::Holding { plan, sites, .. } = std::mem::replace(&mut self.state, State::Finding) else {
            return;
        };
        let attempt = self.record.last_attempt;
        let held_in = sites.iter().filter_map(|(site, of_site)| match of_site.progress {
            Progress::Held { incarnation } => Some((site.clone(), incarnation)),
            _ => None,
        });
        let decision = Decision::Commit { attempt, plan: plan.clone(), held_in: held_in.collect() };
        self.state = State::Confirming {
            plan,
            sites,
            asked_at: now.monotonic,
            give_up_at: now.monotonic + self.settings.hold_for,
        };
        self.persist(decision);
        self.ask_to_confirm(now);
    }

    /// Asks every site that has not confirmed yet.
    pub(super) fn ask_to_confirm(&mut self, now: Now) {
        let attempt = self.attempt_id(self.record.last_attempt);
        let State::Confirming { sites, asked_at, .. } = &mut self.state else { return };
        *asked_at = now.monotonic;
        for (site, of_site) in sites {
            let held_in = match of_site.progress {
                Progress::Held { incarnation } => incarnation,
                Progress::ConfirmAgain { held_in, at } if at <= now.monotonic => held_in,
                _ => continue,
            };
            of_site.progress = Progress::Confirming { held_in };
            self.outputs.push_back(Output::Ask {
                site: site.clone(),
                attempt: attempt.attempt,
                purpose: Purpose::Confirm,
                request: SiteRequest::Confirm { attempt: attempt.clone(), held_in },
                timeout: self.settings.answer_timeout,
            });
        }
    }

    pub(super) fn repeat_confirms(&mut self, now: Now) {
        let State::Confirming { sites, .. } = &self.state else { return };
        if sites.values().filter_map(Site::retry_at).any(|at| at <= now.monotonic) {
            self.ask_to_confirm(now);
        }
    }

    fn on_confirm_answer(&mut self, now: Now, site: &SiteId, answer: Result<SiteAnswer, String>) {
        let answer = self.with_places(site, answer);
        let answer = &self.with_receipt(site, self.record.last_attempt, answer);
        let State::Confirming { plan, sites, asked_at, .. } = &mut self.state else { return };
        let Some(of_site) = sites.get_mut(site) else { return };
        let after = now.monotonic - *asked_at;
        match answer {
            Ok(SiteAnswer::Confirmed { .. }) => {
                of_site.progress = Progress::Confirmed;
                self.record.history.report(site, ReportedAnswer::Confirmed, after);
                if sites.values().all(|site| site.progress == Progress::Confirmed) {
                    let plan = plan.clone();
                    self.reserved(now, plan);
                }
            }
            Ok(SiteAnswer::Refused(refusal)) if refusal.reason != RefusalReason::Busy => {
                let is_new = of_site.progress == Progress::Booking;
                if self.yields_to(now, refusal) {
                    return;
                }
                self.record.history.report(site, ReportedAnswer::Refused(refusal.reason.to_string()), after);
                // A site that has restarted since it was last looked at has nothing against the request.
                if is_new && refusal.reason != RefusalReason::NoSuchHold {
                    self.learn(site, refusal.clone(), true);
                }
                self.abort(now);
            }
            // Whether it has booked is open; it will be told that it has not.
            _ if of_site.progress == Progress::Booking => {
                let what = match answer {
                    Ok(SiteAnswer::Refused(refusal)) => refusal.reason.to_string(),
                    Ok(_) => "an answer that does not fit the question".to_owned(),
                    Err(why) => why.clone(),
                };
                self.record.history.report(site, ReportedAnswer::Silent(what), after);
                match answer {
                    Ok(SiteAnswer::Refused(_)) => self.search.lessons().note_busy(site),
                    _ => self.search.lessons().exclude_silent(site),
                }
                self.abort(now);
            }
            // Without an answer the site may have confirmed or not: only the same question settles that.
            _ => {
                if let Progress::Confirming { held_in } = of_site.progress {
                    of_site.progress = Progress::ConfirmAgain { held_in, at: now.monotonic + REPEAT_AFTER };
                }
            }
        }
    }

    fn reserved(&mut self, now: Now, plan: Plan) {
        if let Some(outcome) = self.expired_move(now) {
            return self.close(now, outcome);
        }
        let (attempt, sites) = (self.record.last_attempt, asked_sites(&self.state));
        self.search.forget_found();
        if self.is_repairing() {
            self.on_repaired(now, &plan);
        } else {
            self.note_elapsed(now);
            self.state = State::Reserved { plan: plan.clone() };
            self.persist(Decision::Reserved { attempt, plan });
            // What its sites know to be settled costs something when it is given back.
            if self.waits_for_batch() {
                return;
            }
            self.watch(now);
        }
        self.settle(sites);
    }

    /// Tells sites that the present attempt is complete.
    pub(super) fn settle(&mut self, sites: impl IntoIterator<Item = SiteId>) {
        let id = self.attempt_id(self.record.last_attempt);
        for site in sites {
            self.ask(site, Purpose::Settle, SiteRequest::Settle(id.clone()));
        }
    }

    /// A committed attempt cannot be completed: the decision to abort is written, every site is released, and a new round begins.
    pub(super) fn abort(&mut self, now: Now) {
        self.owe(now, self.record.last_attempt, asked_sites(&self.state));
        self.record.drop_receipts(self.record.last_attempt);
        self.state = State::BackingOff { until: now.monotonic };
        self.persist(self.decision_without_attempt());
        self.send_releases(now);
        self.back_off(now);
    }

    /// The decision that holds without the present attempt: none, or the reservation that a repair began with.
    fn decision_without_attempt(&self) -> Decision {
        match &self.record.reservation {
            Some(reservation) => reservation.decision(),
            None => Decision::Open,
        }
    }
}
