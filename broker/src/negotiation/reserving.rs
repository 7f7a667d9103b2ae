//! Phase VI over the network: hold at every site in parallel, decide, confirm; and the releases of what failed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    AttemptReport, Decision, Exclusion, Failure, Hint, Negotiation, Outcome, Output, Purpose, Release, ReportedAnswer,
    SiteReport, State,
};
use crate::{
    ids::SiteId,
    plan::Plan,
    protocol::{
        Grant, HoldRequest, HostState, LedgerVersion, Refusal, RefusalReason, SiteAnswer, SiteRequest, TakeOverStep,
    },
    time::{Millis, Now, Window},
};

/// Wait before a confirm is repeated that got no answer, and before a release is repeated.
const REPEAT_AFTER: Millis = Millis(250);
/// Longest wait between two repetitions of a release.
const REPEAT_AT_MOST: Millis = Millis(60_000);

/// One site in the present attempt.
#[derive(Debug, Clone)]
pub(super) struct Site {
    grants: Vec<Grant>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Asked to hold, no answer yet.
    Asked,
    /// Holds, in this incarnation of its ledger.
    Held { incarnation: u64 },
    /// Asked to confirm.
    Confirming { held_in: u64 },
    /// The confirm got no answer: it is repeated at this time.
    ConfirmAgain { held_in: u64, at: Millis },
    /// Has confirmed.
    Confirmed,
}

impl Site {
    pub(super) fn retry_at(&self) -> Option<Millis> {
        match self.progress {
            Progress::ConfirmAgain { at, .. } => Some(at),
            _ => None,
        }
    }
}

/// The sites of an attempt that was decided before a crash of the entry point, and is to be confirmed now.
pub(super) fn sites_to_confirm(plan: &Plan, held_in: &[(SiteId, u64)]) -> BTreeMap<SiteId, Site> {
    let mut sites = sites_of(plan);
    for (site, incarnation) in held_in {
        if let Some(site) = sites.get_mut(site) {
            site.progress = Progress::Held { incarnation: *incarnation };
        }
    }
    sites
}

/// The sites of a plan, each with what it is asked for.
fn sites_of(plan: &Plan) -> BTreeMap<SiteId, Site> {
    let mut sites = BTreeMap::new();
    for grant in &plan.grants {
        sites
            .entry(grant.site.clone())
            .or_insert_with(|| Site { grants: Vec::new(), progress: Progress::Asked })
            .grants
            .push(Grant { host: grant.host.clone(), amounts: grant.amounts.clone() });
    }
    sites
}

/// Sites that may have something of the present attempt.
pub(super) fn asked_sites(state: &State) -> BTreeSet<SiteId> {
    match state {
        State::Holding { sites, .. } | State::Confirming { sites, .. } => sites.keys().cloned().collect(),
        State::Finding | State::BackingOff { .. } | State::Reserved { .. } | State::Closed { .. } => BTreeSet::new(),
    }
}

impl Negotiation {
    pub(super) fn ask_to_hold(&mut self, now: Now, plan: Plan) {
        let Some(authorization) = self.record.authorization.clone() else {
            let detail = "it was kept by an earlier version, without the user's signature: submit it again".to_owned();
            self.close(now, Outcome::Failed(Failure::Refused { site: self.entry_point.clone(), detail }));
            return;
        };
        let authorization = Arc::new(authorization);
        self.record.last_attempt += 1;
        self.attempts += 1;
        let attempt = self.attempt_id(self.record.last_attempt);
        let sites = sites_of(&plan);
        let window = Window::starting(plan.start, self.record.request.duration());
        let participants: Vec<SiteId> = sites.keys().cloned().collect();
        let mut reports = Vec::with_capacity(sites.len());
        for (site, of_site) in &sites {
            reports.push(SiteReport {
                site: site.clone(),
                hosts: of_site.grants.len(),
                answer: ReportedAnswer::Asked,
                after: Millis(0),
            });
            let hold = HoldRequest {
                attempt: attempt.clone(),
                window,
                grants: of_site.grants.clone(),
                participants: participants.clone(),
                hold_for: self.settings.hold_for,
                authorization: authorization.clone(),
            };
            self.outputs.push_back(Output::Ask {
                site: site.clone(),
                attempt: attempt.attempt,
                purpose: Purpose::Hold,
                request: SiteRequest::Hold(hold),
                timeout: self.settings.answer_timeout,
            });
        }
        self.record.history.add_attempt(AttemptReport { attempt: attempt.attempt, start: plan.start, sites: reports });
        self.state = State::Holding { plan, sites, asked_at: now.monotonic };
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
            Purpose::Inspect => self.on_inspected(now, site, attempt, answer),
            Purpose::Hold if attempt == self.record.last_attempt => self.on_hold_answer(now, site, answer),
            Purpose::Confirm if attempt == self.record.last_attempt => self.on_confirm_answer(now, site, &answer),
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
        let State::Holding { sites, asked_at, .. } = &mut self.state else { return self.learn_late(site, answer) };
        let Some(of_site) = sites.get_mut(site) else { return };
        let after = now.monotonic - *asked_at;
        match answer {
            Ok(SiteAnswer::Held { version, .. }) => {
                of_site.progress = Progress::Held { incarnation: version.incarnation };
                self.record.history.report(site, ReportedAnswer::Held, after);
                let all_held = sites.values().all(|site| matches!(site.progress, Progress::Held { .. }));
                if all_held {
                    self.commit(now);
                }
            }
            Ok(SiteAnswer::Refused(refusal)) => {
                self.record.history.report(site, ReportedAnswer::Refused(refusal.reason.to_string()), after);
                if refusal.reason == RefusalReason::OtherAttempt {
                    self.look_for_unreported(now, site);
                }
                self.learn(site, refusal);
                self.give_up_attempt(now);
            }
            Ok(_) => {
                let what = "an answer that does not fit the question".to_owned();
                self.record.history.report(site, ReportedAnswer::Silent(what), after);
                self.excluded.insert(site.clone(), Exclusion::Silent);
                self.give_up_attempt(now);
            }
            Err(why) => {
                self.record.history.report(site, ReportedAnswer::Silent(why), after);
                self.excluded.insert(site.clone(), Exclusion::Silent);
                self.give_up_attempt(now);
            }
        }
    }

    /// Sites that have not answered in time are left out from here on.
    pub(super) fn on_silence(&mut self, now: Now) {
        let State::Holding { sites, asked_at, .. } = &self.state else { return };
        let after = now.monotonic - *asked_at;
        let silent: Vec<SiteId> =
            sites.iter().filter(|(_, site)| site.progress == Progress::Asked).map(|(id, _)| id.clone()).collect();
        for site in silent {
            let why = "no answer in time".to_owned();
            self.record.history.report(&site, ReportedAnswer::Silent(why), after);
            self.excluded.insert(site, Exclusion::Silent);
        }
        self.give_up_attempt(now);
    }

    fn learn(&mut self, site: &SiteId, refusal: Refusal) {
        match refusal.reason {
            RefusalReason::HeldByAnother { .. } | RefusalReason::OtherAttempt => {
                self.held_by_others += 1;
                self.record.history.conflicts += 1;
            }
            RefusalReason::NotEnough { .. } => self.record.history.conflicts += 1,
            RefusalReason::Busy => {
                self.excluded.insert(site.clone(), Exclusion::Silent);
            }
            // The site would say the same again: look elsewhere.
            reason => {
                self.excluded.insert(site.clone(), Exclusion::Refused(reason.to_string()));
            }
        }
        self.remember(site, refusal.version, refusal.hosts);
    }

    /// An attempt ends with its first refusal, but what later ones say of their hosts spares the next attempt the same conflict.
    fn learn_late(&mut self, site: &SiteId, answer: Result<SiteAnswer, String>) {
        if let Ok(SiteAnswer::Refused(refusal)) = answer {
            self.remember(site, refusal.version, refusal.hosts);
        }
    }

    /// No site was asked for more hosts than the request has, so no more are taken from a refusal.
    fn remember(&mut self, site: &SiteId, version: LedgerVersion, hosts: Vec<HostState>) {
        for state in hosts.into_iter().take(self.record.request.hosts()) {
            let key = (site.clone(), state.host.clone());
            if self.hints.get(&key).is_none_or(|known| known.version <= version) {
                self.hints.insert(key, Hint { version, state });
            }
        }
    }

    /// The present attempt has failed before it was decided: every asked site gives back, and a new round begins.
    fn give_up_attempt(&mut self, now: Now) {
        let sites = asked_sites(&self.state);
        for site in sites {
            // Reported once: what does not arrive lapses with the hold.
            self.outputs.push_back(self.release_message(&site, self.record.last_attempt));
        }
        self.back_off(now);
    }

    /// All sites hold: the decision goes to disk before the first confirm goes out.
    fn commit(&mut self, now: Now) {
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

    fn on_confirm_answer(&mut self, now: Now, site: &SiteId, answer: &Result<SiteAnswer, String>) {
        let State::Confirming { plan, sites, asked_at, .. } = &mut self.state else { return };
        let Some(of_site) = sites.get_mut(site) else { return };
        let after = now.monotonic - *asked_at;
        match answer {
            Ok(SiteAnswer::Confirmed { .. }) => {
                of_site.progress = Progress::Confirmed;
                self.record.history.report(site, ReportedAnswer::Confirmed, after);
                if sites.values().all(|site| site.progress == Progress::Confirmed) {
                    let plan = plan.clone();
                    self.stand(now, plan);
                }
            }
            Ok(SiteAnswer::Refused(refusal)) if refusal.reason != RefusalReason::Busy => {
                if self.yields_to(now, refusal) {
                    return;
                }
                self.record.history.report(site, ReportedAnswer::Refused(refusal.reason.to_string()), after);
                self.abort(now);
            }
            // Silence may mean that it has confirmed: only the same question settles that.
            _ => {
                if let Progress::Confirming { held_in } = of_site.progress {
                    of_site.progress = Progress::ConfirmAgain { held_in, at: now.monotonic + REPEAT_AFTER };
                }
            }
        }
    }

    fn stand(&mut self, now: Now, plan: Plan) {
        if let Some(outcome) = self.expired_move(now) {
            return self.close(now, outcome);
        }
        let attempt = self.record.last_attempt;
        let id = self.attempt_id(attempt);
        let sites = asked_sites(&self.state);
        if self.is_repairing() {
            self.on_repaired(now, &plan);
        } else {
            self.note_elapsed(now);
            self.state = State::Reserved { plan: plan.clone() };
            self.persist(Decision::Reserved { attempt, plan });
            self.watch(now);
        }
        for site in sites {
            self.outputs.push_back(Output::Ask {
                site,
                attempt,
                purpose: Purpose::Settle,
                request: SiteRequest::Settle(id.clone()),
                timeout: self.settings.answer_timeout,
            });
        }
    }

    /// The decided try cannot be completed: decided against it, durably, then released everywhere, then a new round.
    pub(super) fn abort(&mut self, now: Now) {
        let sites = asked_sites(&self.state);
        self.state = State::BackingOff { until: now.monotonic };
        self.owe(now, self.record.last_attempt, sites);
        self.persist(self.decision_without_attempt());
        self.send_releases(now);
        self.back_off(now);
    }

    /// What is decided when the present attempt is not: nothing, or what a repair began with.
    fn decision_without_attempt(&self) -> Decision {
        match &self.record.reservation {
            Some(reservation) => reservation.decision(),
            None => Decision::Open,
        }
    }

    /// Bookings that stay of attempts of which others are owed a release, and whose sites have not said that they know the attempt
    /// to have been complete.
    pub(super) fn unsettled(&self) -> BTreeSet<(u32, SiteId)> {
        let reservation = self.record.reservation.as_ref().filter(|_| !matches!(self.state, State::Closed { .. }));
        let Some(reservation) = reservation.filter(|_| !self.releases.is_empty()) else { return BTreeSet::new() };
        let is_owed = |attempt: u32| self.releases.keys().any(|(of, _)| *of == attempt);
        let kept = reservation.kept_bookings().into_iter();
        kept.filter(|booking| is_owed(booking.0) && !self.settled.contains(booking)).collect()
    }

    /// Notes that `sites` are owed the release of an attempt, until they have acknowledged it.
    pub(super) fn owe(&mut self, now: Now, attempt: u32, sites: impl IntoIterator<Item = SiteId>) {
        let needs_takeover = self.record.taken_over.contains_key(&attempt);
        for site in sites {
            let release = Release { tries: 0, next_at: now.monotonic, needs_takeover };
            self.releases.insert((attempt, site), release);
        }
    }

    /// What another entry point has made is given back under the name that its site knows, by a node that shows that it
    /// coordinates it. While other parts of that attempt are not settled it only learns which node does.
    fn release_message(&self, site: &SiteId, attempt: u32) -> Output {
        let is_settled = self.unsettled().iter().all(|(of, _)| *of != attempt);
        let step = if is_settled { TakeOverStep::Abort } else { TakeOverStep::Prepare };
        let of_another = self.takeover_message(attempt, step);
        Output::Ask {
            site: site.clone(),
            attempt,
            purpose: Purpose::Release,
            request: of_another.unwrap_or_else(|| SiteRequest::Release(self.attempt_id(attempt))),
            timeout: self.settings.answer_timeout,
        }
    }

    pub(super) fn repeat_releases(&mut self, now: Now) {
        let max_tries = self.settings.max_releases;
        let before = self.releases.len();
        self.releases.retain(|_, release| release.tries < max_tries || release.next_at > now.monotonic);
        if self.releases.len() < before && self.releases.is_empty() {
            self.persist(self.record.decision.clone());
        }
        self.send_releases(now);
    }

    /// Sends every release that is due; each is due again after a wait that doubles.
    pub(super) fn send_releases(&mut self, now: Now) {
        let unsettled = self.unsettled();
        let due: Vec<(u32, SiteId)> = self
            .releases
            .iter()
            .filter(|(key, release)| release.next_at <= now.monotonic && !release.is_withheld(key.0, &unsettled))
            .map(|(key, _)| key.clone())
            .collect();
        for (attempt, site) in due {
            let message = self.release_message(&site, attempt);
            if let Some(release) = self.releases.get_mut(&(attempt, site)) {
                let wait = (REPEAT_AFTER.0 << release.tries.min(16)).min(REPEAT_AT_MOST.0);
                release.tries += 1;
                release.next_at = now.monotonic + self.settings.answer_timeout + Millis(wait);
            }
            self.outputs.push_back(message);
        }
    }

    fn on_release_answer(&mut self, now: Now, site: &SiteId, attempt: u32, answer: &Result<SiteAnswer, String>) {
        let key = (attempt, site.clone());
        let is_of_another = self.record.taken_over.contains_key(&attempt);
        match answer {
            // To the release of an own attempt this is no answer.
            Ok(SiteAnswer::Booked { hosts, before, others, .. }) if is_of_another => {
                self.notify_former_coordinator(now, attempt, before.as_ref());
                self.claim_unreported(now, site, others);
                if hosts.is_empty() {
                    return self.on_released(&key);
                }
                if let Some(release) = self.releases.get_mut(&key).filter(|release| release.needs_takeover) {
                    (release.needs_takeover, release.next_at) = (false, now.monotonic);
                    self.send_releases(now);
                }
            }
            Ok(SiteAnswer::Refused(refusal)) if matches!(refusal.reason, RefusalReason::HandedOver(_)) => {
                self.on_released(&key);
                self.yields_to(now, refusal);
            }
            // Of what was taken over nothing is there any more, so its site does not know who coordinates it.
            Ok(SiteAnswer::Refused(refusal)) if refusal.reason == RefusalReason::NotYours => self.on_released(&key),
            Ok(SiteAnswer::Released { .. }) => self.on_released(&key),
            _ => {
                if let Some(release) = self.releases.get_mut(&key) {
                    let wait = (REPEAT_AFTER.0 << release.tries.min(16)).min(REPEAT_AT_MOST.0);
                    release.next_at = release.next_at.min(now.monotonic + Millis(wait));
                }
            }
        }
    }

    fn on_released(&mut self, key: &(u32, SiteId)) {
        if self.releases.remove(key).is_some() && self.releases.is_empty() {
            self.persist(self.record.decision.clone());
        }
    }
}
