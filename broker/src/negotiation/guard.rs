//! The guard of a reservation: the coordinator asks the sites now and then, until it ends, whether they still keep it, and replaces hosts that
//! are lost before it begins.
//!
//! Invariant: a repair reserves only what is missing, by an attempt of its own with the same all-or-nothing protocol; what is
//! left of the reservation is released only when a whole one has replaced it. Of a reservation that has begun losses are noted, and nothing
//! is replaced.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use rand::RngExt;

use super::{
    ATTEMPTS_PER_RUN, Decision, Due, Failure, Loss, Negotiation, Outcome, Output, Purpose, Repair, Reservation, State,
    search::{Problem, Search},
};
use crate::{
    cost::Cost,
    ids::SiteId,
    plan::{Plan, Seat},
    protocol::{Places, SiteAnswer, SiteRequest, TakeOverStep},
    reason::Reason,
    time::{Millis, Now, Span},
    trust::asked::CLOCKS_DIFFER,
};

/// The rounds of questions about one reservation.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When something is due: the next round of questions, or the end of the present one.
    pub(super) next_at: Option<Millis>,
    /// The number of this round. Two runs of a coordinator count from different numbers.
    pub(super) round: u32,
    /// Bookings whose site has been asked in this round and has not answered.
    waiting: BTreeSet<(u32, SiteId)>,
    /// The sites that do not answer, each with the time of the first question that it left unanswered.
    silent_since: BTreeMap<SiteId, Millis>,
    /// This round has changed the record, which is not written yet.
    pub(super) is_new: bool,
    /// Since when a repair has paused the questions; that time does not count as silence.
    paused_at: Option<Millis>,
    /// A site has answered so long after the start that, by any clock, it had decided whether its seats wait.
    has_told_start: bool,
    /// This round was begun when the reservation had begun.
    is_after_start: bool,
    /// This round is part of a takeover that is not complete.
    is_taking: bool,
    /// Parts of a takeover whose sites have acknowledged this node as coordinator in this run.
    prepared: BTreeSet<(u32, SiteId)>,
}

impl Watch {
    /// Nothing has been asked; the rounds count from this number.
    pub(super) fn new(round: u32) -> Watch {
        Watch { round, ..Watch::default() }
    }

    /// Whether a round of questions is under way.
    pub(super) fn is_asking(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it is known how the reservation began.
    pub(super) fn has_told_start(&self) -> bool {
        self.has_told_start
    }

    /// Whether a takeover of the reservation is under way: it is reported when all sites have answered.
    pub(super) fn is_taking_over(&self) -> bool {
        self.is_taking && self.is_asking()
    }
}

/// The next round of questions comes after this part of the time that is left until the start, or from then on until the end, and after an
/// eighth of that while something is wrong.
const PART_OF_WHAT_IS_LEFT: u64 = 16;
/// From the start on, all sites are asked so often while seats float as far as is known: their user waits for the hosts.
const HOSTS_ASKED_EVERY: Millis = Millis(2_000);
/// For so long after the start. Sites that have not bound by then are asked as seldom as the others.
const HOSTS_AWAITED: Span = Span(600);

/// Whether a seat does not end soon by any clock.
fn goes_on(seat: &Seat, now: Now) -> bool {
    now.utc + CLOCKS_DIFFER < seat.window.end
}

impl Negotiation {
    /// The reservation, if there is one: whole, degraded, or being repaired.
    #[must_use]
    pub fn reserved_plan(&self) -> Option<&Plan> {
        match (&self.state, &self.record.reservation) {
            (State::Closed { .. }, _) => None,
            (_, Some(reservation)) => Some(&reservation.plan),
            (State::Reserved { plan }, None) => Some(plan),
            _ => None,
        }
    }

    /// The bookings that make up the reservation.
    pub(super) fn bookings(&self) -> Vec<(u32, SiteId)> {
        self.record.bookings()
    }

    /// A reservation was made, or is there again after a crash of the coordinator.
    pub(super) fn watch(&mut self, now: Now) {
        let was_repairing =
            self.record.reservation.as_mut().is_some_and(|reservation| reservation.repair.take().is_some());
        self.schedule_watch(now);
        let is_asked_for = !self.record.unacknowledged.is_empty() || !self.unsettled().is_empty();
        if was_repairing && self.watch.next_at.is_some() || is_asked_for {
            self.watch.next_at = Some(now.monotonic);
        }
    }

    /// Sets the time of the next round of questions; none once the reservation is about to end, unless sites do not know yet
    /// that it was taken over, or something of it cannot be given back before they have answered.
    pub(super) fn schedule_watch(&mut self, now: Now) {
        self.watch.waiting.clear();
        self.watch.next_at = None;
        let State::Reserved { plan } = &self.state else { return };
        let (plan_start, has_begun) = (plan.start, plan.start <= now.utc);
        let until = if has_begun { plan.end() } else { plan.start };
        let left_ms = until.since(now.utc).0.saturating_mul(1000);
        if has_begun && self.asked_after_start(now).is_empty() {
            return self.end_watch();
        }
        let (shortest, longest) = (self.settings.check_min.0.max(1), self.settings.check_max.0.max(1));
        let is_watched_closely =
            !self.watch.silent_since.is_empty() || self.is_degraded() || !self.unsettled().is_empty();
        let part = if is_watched_closely { 8 * PART_OF_WHAT_IS_LEFT } else { PART_OF_WHAT_IS_LEFT };
        let wait = (left_ms / part).clamp(shortest, longest.max(shortest));
        // Jitter, so that reservations that were made together are not checked together for ever.
        let wait = wait - self.random.random_range(0..=wait / 8);
        // The user waits for the hosts, and for the start.
        let is_open = !self.floating_bookings().is_empty() && now.utc.since(plan_start) <= HOSTS_AWAITED;
        let is_awaited = is_open || self.may_yet_wait(now);
        let hosts_wait = if has_begun { HOSTS_ASKED_EVERY.0 } else { left_ms + HOSTS_ASKED_EVERY.0 };
        let wait = if is_awaited { wait.min(hosts_wait) } else { wait };
        self.watch.next_at = Some(now.monotonic + Millis(wait));
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.record
            .reservation
            .as_ref()
            .is_some_and(|reservation| !reservation.missing_seats(&self.record.request).is_empty())
    }

    /// Asks no more questions, so nothing waits for answers.
    fn end_watch(&mut self) {
        let Watch { round, has_told_start, .. } = self.watch;
        self.watch = Watch { has_told_start, ..Watch::new(round) };
        self.settled.extend(self.bookings());
    }

    /// Bookings whose sites have not acknowledged this node as coordinator, or must answer before other bookings are released.
    /// Silent ones count as lost after a while, but where another node has coordinated them it may still go on: they are asked
    /// until the reservation ends.
    fn unacknowledged_bookings(&self, now: Now) -> BTreeSet<(u32, SiteId)> {
        let mut unacknowledged_bookings = self.record.unacknowledged.clone();
        let Some(reservation) = &self.record.reservation else { return unacknowledged_bookings };
        if reservation.plan.end() > now.utc {
            let is_silent = |site: &SiteId| {
                let mut here = reservation.plan.seats.iter().filter(|seat| seat.site == *site);
                here.any(|seat| reservation.lost.get(&seat.number) == Some(&Loss::SiteSilent))
            };
            let of_another = |attempt: &u32| self.record.taken_over.contains_key(attempt);
            let silent = reservation.bookings().into_iter();
            unacknowledged_bookings.extend(silent.filter(|(attempt, site)| of_another(attempt) && is_silent(site)));
            unacknowledged_bookings.extend(self.unsettled());
        }
        unacknowledged_bookings
    }

    /// The bookings with a seat that goes on: of what is over soon, by the clock of its site, the site may have nothing more.
    fn lasting_bookings(&self, now: Now) -> Vec<(u32, SiteId)> {
        let Some(reservation) = self.reservation() else { return Vec::new() };
        let lasts = |(attempt, site): &(u32, SiteId)| {
            let mut seats = reservation.numbers_at(*attempt, site).into_iter();
            seats.any(|number| reservation.plan.seat(number).is_some_and(|seat| goes_on(seat, now)))
        };
        reservation.bookings().into_iter().filter(lasts).collect()
    }

    /// The bookings that are asked for although the reservation has begun: those with a seat that goes on, those that have not acknowledged
    /// this node, those with seats whose hosts are open, as far as is known, and those of which it is not known yet whether they begin later.
    fn asked_after_start(&self, now: Now) -> BTreeSet<(u32, SiteId)> {
        let mut asked = self.unacknowledged_bookings(now);
        asked.extend(self.lasting_bookings(now));
        if self.reserved_plan().is_some_and(|plan| now.utc < plan.end()) {
            asked.extend(self.floating_bookings());
        }
        if self.may_have_waited(now) {
            asked.extend(self.bookings());
        }
        asked
    }

    /// The bookings with seats whose hosts are open, as far as is known.
    fn floating_bookings(&self) -> Vec<(u32, SiteId)> {
        self.reservation().map(|reservation| reservation.floating_bookings()).unwrap_or_default()
    }

    /// The reservation, also one of which nothing is known but its plan.
    pub(super) fn reservation(&self) -> Option<Cow<'_, Reservation>> {
        match (&self.record.reservation, &self.record.decision) {
            (Some(reservation), _) => Some(Cow::Borrowed(reservation)),
            (None, Decision::Reserved { attempt, plan }) => Some(Cow::Owned(Reservation::of(*attempt, plan))),
            (None, _) => None,
        }
    }

    /// Whether all that this round learns of a booking counts: it has not begun, or was taken over.
    fn is_guarded(&self, now: Now, (attempt, site): (u32, &SiteId)) -> bool {
        !self.watch.is_after_start || self.unacknowledged_bookings(now).contains(&(attempt, site.clone()))
    }

    /// Begins a round of questions, or ends the one that is under way.
    pub(super) fn watch_now(&mut self, now: Now) {
        let State::Reserved { plan } = &self.state else { return };
        let has_begun = plan.start <= now.utc;
        let asked_after_start = self.asked_after_start(now);
        if has_begun && asked_after_start.is_empty() {
            return self.end_watch();
        }
        if self.watch.is_asking() {
            self.end_watch_round(now);
            return;
        }
        self.watch.round = self.watch.round.wrapping_add(1);
        self.watch.is_after_start = has_begun;
        self.watch.is_taking = !self.record.unacknowledged.is_empty();
        let step = if self.record.commits_takeover { TakeOverStep::Commit } else { TakeOverStep::Prepare };
        for (attempt, site) in self.bookings() {
            if has_begun && !asked_after_start.contains(&(attempt, site.clone())) {
                continue;
            }
            let takeover = self.takeover_message(attempt, step);
            self.outputs.push_back(Output::Ask {
                site: site.clone(),
                attempt,
                purpose: Purpose::Inspect(self.watch.round),
                request: takeover.unwrap_or_else(|| SiteRequest::Inspect(self.attempt_id(attempt))),
                timeout: self.settings.answer_timeout,
            });
            self.watch.waiting.insert((attempt, site));
        }
        self.watch.next_at = Some(now.monotonic + self.settings.answer_timeout);
    }

    pub(super) fn on_inspected(
        &mut self,
        now: Now,
        site: &SiteId,
        (attempt, round): (u32, u32),
        answer: Result<SiteAnswer, String>,
    ) {
        let answer = self.with_receipt(site, attempt, answer);
        let answer = self.with_possible_seats(site, attempt, answer);
        if let Ok(SiteAnswer::Booked { is_settled, .. }) = &answer {
            // A late answer is not used, but its site is not silent.
            self.watch.silent_since.remove(site);
            self.watch.prepared.insert((attempt, site.clone()));
            if *is_settled {
                self.settled.insert((attempt, site.clone()));
            }
        }
        if !matches!(self.state, State::Reserved { .. }) {
            return;
        }
        if round != self.watch.round {
            // It says what was there before this round was asked.
            return self.on_late_answer(site, (attempt, round), &answer);
        }
        if !self.watch.waiting.remove(&(attempt, site.clone())) {
            return;
        }
        if matches!(&answer, Ok(SiteAnswer::Refused(refusal)) if self.yields_to(now, refusal)) {
            return;
        }
        if let Ok(SiteAnswer::Booked { seats, places, is_settled, before, others, charged, wait, .. }) = answer {
            self.watch.has_told_start |= self.is_start_decided(now);
            self.note_wait(wait);
            self.notify_former_coordinator(now, attempt, before.as_ref());
            self.claim_unreported(now, site, &others);
            self.note_charged_before(attempt, site, charged);
            let is_guarded = self.is_guarded(now, (attempt, site));
            if let Some(reservation) = self.reservation_mut() {
                let mut is_new = false;
                for number in reservation.numbers_at(attempt, site) {
                    // What is over is gone.
                    let goes_on = reservation.plan.seat(number).is_some_and(|seat| goes_on(seat, now));
                    let is_lost = !seats.contains(&number);
                    // Other participants can still end what is not settled: a seat that was reported as lost stays so until then.
                    if (is_guarded || goes_on) && (is_lost || is_settled) {
                        is_new |= reservation.note_seat(number, is_lost.then_some(Loss::TakenBack));
                    }
                }
                self.watch.is_new |= is_new;
            }
            self.note_places(site, attempt, places);
            // The reservation is shown once the last site has answered, so it must be on disk.
            let knows_outcome = is_settled || seats.is_empty();
            if knows_outcome && self.record.unacknowledged.remove(&(attempt, site.clone())) {
                self.persist(self.record.decision.clone());
            }
        } else {
            self.watch.silent_since.entry(site.clone()).or_insert(now.monotonic);
        }
        if self.watch.waiting.is_empty() && matches!(self.state, State::Reserved { .. }) {
            self.end_watch_round(now);
        }
    }

    /// Notes the hosts that a site has given to floating seats. Where they float its site may give others, so only what is bound is worth
    /// a write.
    fn note_places(&mut self, site: &SiteId, attempt: u32, places: Places) {
        let Some(reservation) = &mut self.record.reservation else { return };
        let numbers = reservation.numbers_at(attempt, site);
        let mut is_bound = false;
        for (number, place) in places.into_iter().filter(|(number, _)| numbers.contains(number)) {
            is_bound |= reservation.note_place(number, place);
        }
        self.watch.is_new |= is_bound;
    }

    /// A site that has nothing more of a booking may have charged for it: another node has given it back. So it is not taken back for
    /// nothing, and its seats count before they are noted as lost.
    fn note_charged_before(&mut self, attempt: u32, site: &SiteId, charged: Cost) {
        if !charged.is_zero() {
            self.note_due(self.record.due_of(attempt, site));
            self.watch.is_new |= self.note_charged(&(attempt, site.clone()), charged);
        }
    }

    /// Just behind the end of its round, an answer still shows that its site was wrongly taken for silent. What it says is as old as what
    /// a round in time would have told until now, so its seats count until this round's answer comes.
    fn on_late_answer(&mut self, site: &SiteId, (attempt, round): (u32, u32), answer: &Result<SiteAnswer, String>) {
        let is_awaited = self.watch.waiting.contains(&(attempt, site.clone()));
        // Only of a takeover that is not committed anything is not settled: other participants can still end it.
        let Ok(SiteAnswer::Booked { seats, is_settled: true, .. }) = answer else { return };
        if !is_awaited || round.wrapping_add(1) != self.watch.round {
            return;
        }
        let Some(reservation) = &mut self.record.reservation else { return };
        let mut is_new = false;
        for number in reservation.numbers_at(attempt, site).into_iter().filter(|number| seats.contains(number)) {
            if reservation.lost.get(&number) == Some(&Loss::SiteSilent) {
                is_new |= reservation.note_seat(number, None);
            }
        }
        self.watch.is_new |= is_new;
    }

    pub(super) fn reservation_mut(&mut self) -> Option<&mut Reservation> {
        if self.record.reservation.is_none()
            && let Decision::Reserved { attempt, plan } = &self.record.decision
        {
            self.record.reservation = Some(Reservation::of(*attempt, plan));
        }
        self.record.reservation.as_mut()
    }

    /// Ends a round: every site has answered, or has had the time to.
    fn end_watch_round(&mut self, now: Now) {
        for (_, site) in std::mem::take(&mut self.watch.waiting) {
            self.watch.silent_since.entry(site).or_insert(now.monotonic);
        }
        let lasting = self.lasting_bookings(now);
        let gone: Vec<SiteId> = self
            .watch
            .silent_since
            .iter()
            .filter(|(_, since)| now.monotonic - **since >= self.settings.lost_after)
            .filter(|(site, _)| {
                let of_site = |bookings: &[(u32, SiteId)]| bookings.iter().any(|(_, of)| of == *site);
                let is_guarded = |(attempt, of): &(u32, SiteId)| of == *site && self.is_guarded(now, (*attempt, of));
                of_site(&lasting) || self.bookings().iter().any(is_guarded)
            })
            .map(|(site, _)| site.clone())
            .collect();
        let lasts = |site: &SiteId| lasting.iter().any(|(_, of)| of == site);
        let (mut is_new, is_after_start) = (std::mem::take(&mut self.watch.is_new), self.watch.is_after_start);
        if let Some(reservation) = self.reservation_mut() {
            let counts = |seat: &&Seat| !is_after_start || goes_on(seat, now) || !lasts(&seat.site);
            let silent = reservation.plan.seats.iter().filter(|seat| gone.contains(&seat.site)).filter(counts);
            for number in silent.map(|seat| seat.number).collect::<Vec<_>>() {
                is_new |= reservation.note_seat(number, Some(Loss::SiteSilent));
            }
        }
        self.record.unacknowledged.retain(|(_, site)| !gone.contains(site));
        let has_begun = self.reserved_plan().is_none_or(|plan| plan.start <= now.utc);
        if self.watch.is_taking && self.is_nothing_left() {
            return self.close(now, Outcome::Cancelled(None));
        }
        if !self.record.taken_over.is_empty()
            && !self.record.commits_takeover
            && self.record.unacknowledged.is_subset(&self.watch.prepared)
        {
            self.record.commits_takeover = true;
            is_new = true;
            if !self.record.unacknowledged.is_empty() {
                self.persist(self.record.decision.clone());
                return self.watch_now(now);
            }
        }
        if self.is_degraded() && !has_begun {
            self.begin_repair(now, Repair::Replace);
            return;
        }
        if is_new {
            self.persist(self.record.decision.clone());
        }
        self.schedule_watch(now);
    }

    /// Begins the search for missing hosts. The losses are written first, with the numbers of the attempts to come.
    fn begin_repair(&mut self, now: Now, repair: Repair) {
        let knows_all = self.record.knows_all_dues();
        let Some(reservation) = &mut self.record.reservation else { return };
        reservation.repair = Some(repair);
        self.watch.paused_at.get_or_insert(now.monotonic);
        let starts = (self.record.earliest, self.record.latest);
        let problem = reservation.problem((&self.record.request, knows_all), starts, repair);
        let stands = reservation.decision();
        let Some(last_attempt) = self.record.last_attempt.checked_add(ATTEMPTS_PER_RUN) else {
            return self.end_repair(now, Some(Outcome::Failed(Failure::PatienceOver { attempts: u32::MAX })));
        };
        let Some(problem) = problem else {
            let none_left = Reason::TooFewHosts {
                found: 0,
                asked: reservation.missing_seats(&self.record.request).len() as u64,
                cut: Box::default(),
            };
            return self.end_repair(now, Some(Outcome::Rejected { reason: none_left, start_proven: true }));
        };
        self.record.last_attempt = last_attempt;
        let (home, order) = (self.entry_point.clone(), self.random.random());
        self.search = Search::new(problem, home, &self.settings, now.monotonic, order);
        self.persist(stands);
        self.find();
    }

    /// Whether the present search is for what a reservation has lost.
    pub(super) fn is_repairing(&self) -> bool {
        self.record.reservation.as_ref().is_some_and(|reservation| reservation.repair.is_some())
    }

    /// A search for replacements has found none.
    pub(super) fn on_repair_failed(&mut self, now: Now, outcome: &Outcome) {
        let Some(reservation) = &self.record.reservation else { return };
        let may_move = self.record.request.moves_on_loss()
            && reservation.repair == Some(Repair::Replace)
            && matches!(outcome, Outcome::Rejected { reason, .. } if !matches!(reason, Reason::WindowPassed { .. }));
        if may_move {
            self.begin_repair(now, Repair::Move);
        } else {
            self.end_repair(now, Some(outcome.clone()));
        }
    }

    fn end_repair(&mut self, now: Now, failure: Option<Outcome>) {
        self.search.forget_found();
        if let Some(paused_at) = self.watch.paused_at.take() {
            let pause = now.monotonic - paused_at;
            self.watch.silent_since.values_mut().for_each(|since| *since = *since + pause);
        }
        let Some(reservation) = &mut self.record.reservation else { return };
        reservation.repair = None;
        reservation.failure = failure;
        let decision = reservation.decision();
        self.state = State::Reserved { plan: reservation.plan.clone() };
        self.persist(decision);
        self.schedule_watch(now);
    }

    /// Why a move is too late, although its hosts are confirmed: the reservation that it would replace has begun.
    pub(super) fn expired_move(&self, now: Now) -> Option<Outcome> {
        let reservation =
            self.record.reservation.as_ref().filter(|reservation| reservation.repair == Some(Repair::Move))?;
        let (latest, earliest) = (reservation.plan.start, now.utc);
        let reason = Reason::WindowPassed { latest, earliest };
        (latest <= earliest).then_some(Outcome::Rejected { reason, start_proven: true })
    }

    /// The attempt of a repair has been confirmed everywhere: the reservation is whole again.
    pub(super) fn on_repaired(&mut self, now: Now, plan: &Plan) {
        let attempt = self.record.last_attempt;
        let dues = self.bookings().into_iter().filter_map(|(attempt, site)| self.record.due_of(attempt, &site));
        let mut dues: Vec<Due> = dues.collect();
        let Some(reservation) = &mut self.record.reservation else { return };
        let Some(repair) = reservation.repair else { return };
        let given_up = reservation.repaired(repair, attempt, plan);
        self.record.unacknowledged.retain(|booking| !given_up.contains(booking));
        // A lost site that is back with other hosts has just answered.
        self.watch.silent_since.retain(|site, _| !plan.seats.iter().any(|seat| seat.site == *site));
        for (attempt, site) in given_up {
            let due = dues.iter().position(|due| (due.attempt, &due.site) == (attempt, &site));
            self.note_due(due.map(|at| dues.swap_remove(at)));
            self.owe(now, attempt, [site]);
        }
        self.end_repair(now, None);
        self.send_releases(now);
    }

    /// The problem that a negotiation begins with, or goes on with after a crash.
    pub(super) fn problem_of(record: &super::RequestRecord) -> Problem {
        let starts = (record.earliest, record.latest);
        let of_repair = record.reservation.as_ref().and_then(|reservation| {
            reservation
                .repair
                .and_then(|repair| reservation.problem((&record.request, record.knows_all_dues()), starts, repair))
        });
        of_repair.unwrap_or_else(|| Problem::of(&record.request, starts))
    }
}
