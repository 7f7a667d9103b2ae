//! The search for one plan, phases I to V: which hosts to ask discovery for, what to plan on, when to search wider and when to
//! give up.
//!
//! A pure state machine: [`Search::find`] says what discovery is asked, [`Search::on_found`] what follows from its answer.
//! Invariant: a search ends. It plans on all hosts whose schedules are known; it doubles the number of others that are asked until it has
//! seen all or `m_max` is reached, looks beyond the hosts that are known once, looks again at most
//! [`MISSED_FINDS_MAX`] times for schedules that could not be fetched, and asks a silent site again as often as its lessons allow.

mod drawn;

use std::{borrow::Cow, collections::BTreeSet};

use rand::{Rng, RngExt};

use self::drawn::{Among, Run};
use super::{
    Excluded, Failure, Found, FoundHost, HowToPlan, NegotiationSettings, Outcome, Output, Round, RoundOutcome,
    WithoutBudget,
    lessons::{Holds, Lessons},
    quotes::Proposal,
};
use crate::{
    cost::Cost,
    demand::Demand,
    host::Host,
    ids::{HostId, SeatNumber, ShapeNumber, SiteId},
    phases::{self, Candidate, Job, PhaseObserver},
    plan::{Plan, PlanOutcome, Rejection},
    protocol::Refusal,
    reason::Reason,
    request::{Effort, ObjectiveKind, Request},
    time::{Millis, Now, Time, Window},
    uplinks::Uplinks,
};

/// How often a request looks again when the schedules of hosts that it needs could not be fetched.
const MISSED_FINDS_MAX: u32 = 4;

/// The wait before sites that were silent are asked again, when there is no plan without them.
const ASK_SILENT_AFTER: Millis = Millis(500);

/// A quarter of the wait before it first looks again; each wait is four times as long as the one before.
const LOOK_AGAIN_AFTER: Millis = Millis(4);

/// How often in a row a request is planned again on the hosts of one round, with what refusals have shown since.
const REPLANS_MAX: u32 = 2;
/// What the search is for: all of the request's demand, or what is left of it when its reservation has lost seats.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    /// What hosts are looked for: the widest of the demands.
    pub(super) wanted: Demand,
    /// The shapes, one of which is to be planned; at least one.
    pub(super) shapes: Vec<(ShapeNumber, Demand)>,
    /// The numbers of the seats, in order; of a smaller shape the first ones.
    pub(super) numbers: Vec<SeatNumber>,
    pub(super) earliest: Time,
    pub(super) latest: Time,
    pub(super) deadline: Option<Time>,
    pub(super) objective: ObjectiveKind,
    /// What its seats may cost together.
    pub(super) budget: Option<Cost>,
    /// Asked by the user, if any.
    pub(super) effort: Option<Effort>,
    /// Sites of the seats that are not to be replaced.
    pub(super) kept_sites: BTreeSet<SiteId>,
    /// Hosts that must not be chosen: they are part of the reservation, or of a silent site.
    pub(super) avoid: BTreeSet<(SiteId, HostId)>,
    /// A reservation stands, which this makes whole again.
    pub(super) is_repair: bool,
}

impl Problem {
    /// The seats of the smallest shape.
    fn seats_min(&self) -> usize {
        self.shapes.iter().map(|(_, demand)| demand.seats()).min().unwrap_or_default()
    }

    /// So few hosts were found that none of the shapes is possible.
    fn shortage(&self, found: &Found) -> Reason {
        let hosts = found.hosts.len() as u64;
        let too_few = |demand: &Demand| Reason::TooFewHosts {
            found: hosts,
            asked: demand.seats() as u64,
            cut: found.cut.clone().into(),
        };
        found.reason(Reason::of_shapes(self.shapes.iter().map(|(_, demand)| too_few(demand)).collect()))
    }

    /// What is left of one shape: the seats with these numbers.
    pub(super) fn narrowed(self, shape: ShapeNumber, demand: Demand, numbers: Vec<SeatNumber>) -> Problem {
        Problem { wanted: demand.clone(), shapes: vec![(shape, demand)], numbers, ..self }
    }

    /// The whole of a request, which starts between these times.
    pub(super) fn of(request: &Request, (earliest, latest): (Time, Time)) -> Problem {
        Problem {
            numbers: request.widest().numbers().collect(),
            wanted: request.widest(),
            shapes: (0..).map(ShapeNumber).zip(request.shapes().cloned()).collect(),
            earliest,
            latest,
            deadline: request.window().deadline,
            objective: request.objective(),
            budget: request.budget(),
            effort: request.effort(),
            kept_sites: BTreeSet::new(),
            avoid: BTreeSet::new(),
            is_repair: false,
        }
    }
}

/// What follows from the hosts that were found.
pub(super) enum Next {
    /// Ask discovery again, for more hosts.
    Find,
    /// Ask discovery again after this wait.
    Wait(Millis),
    /// Hold this plan.
    Hold(Proposal),
    /// There is no plan.
    End(Outcome),
}

/// One search, with everything that its attempts have taught it.
#[derive(Debug)]
pub(super) struct Search {
    problem: Problem,
    /// The site of the coordinator.
    home: SiteId,
    /// Draws the order in which the request prefers hosts.
    order: u64,
    /// Whether it prefers those of the sites with most processors free.
    spreads: bool,
    started: Millis,
    /// Of hosts whose schedules are not known this many times as many are asked as are needed.
    multiplier: u32,
    /// Discovery searches beyond the hosts that it knows: only when these do not suffice.
    is_thorough: bool,
    /// The hosts of the last round: finding the same set again means that there are no more.
    last_set: BTreeSet<(SiteId, HostId)>,
    lessons: Lessons,
    /// Hosts of which the user gets nothing, once for each site: later rounds leave their sites out.
    denied: Vec<FoundHost>,
    /// The hosts of the last plan, and what it was worth: an attempt that was refused is planned again on them.
    planned_on: Option<(Found, i64)>,
    /// Plans made on them since discovery was asked.
    replans: u32,
    /// Rounds that came short because schedules could not be fetched.
    missed_finds: u32,
    /// What is due for bookings that were given back, at most.
    due: Cost,
    /// When it was planned last.
    planned_at: Time,
    /// Attempts of this search; those before a crash do not count against its limits.
    attempts: u32,
}

impl Search {
    /// A search by the node of the site `home` that has learned nothing yet; `order` is the request's own.
    pub(super) fn new(
        problem: Problem,
        home: SiteId,
        settings: &NegotiationSettings,
        started: Millis,
        order: u64,
    ) -> Search {
        let multiplier = settings.planner.first_m(problem.objective);
        Search {
            problem,
            home,
            order,
            spreads: settings.planner.spread,
            started,
            multiplier,
            is_thorough: false,
            last_set: BTreeSet::new(),
            lessons: Lessons::default(),
            denied: Vec::new(),
            planned_on: None,
            replans: 0,
            missed_finds: 0,
            due: Cost::ZERO,
            planned_at: Time::ZERO,
            attempts: 0,
        }
    }

    /// What hosts it looks for.
    pub(super) fn wanted(&self) -> &Demand {
        &self.problem.wanted
    }

    /// What the present plan may cost, beside what is due for bookings that were given back.
    pub(super) fn budget(&self) -> Option<Cost> {
        self.problem.budget.map(|budget| Cost(budget.0.saturating_sub(self.due.0)))
    }

    /// Notes what is due at most.
    pub(super) fn note_due(&mut self, due: Cost) {
        self.due = due;
    }

    /// When it began.
    pub(super) fn started(&self) -> Millis {
        self.started
    }

    /// The attempts that it has made.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Counts an attempt that begins.
    pub(super) fn note_attempt(&mut self) {
        self.attempts += 1;
    }

    /// Phase I: the question for discovery, whose sample `seed` governs.
    pub(super) fn find(&self, seed: u64) -> Output {
        let demand = &self.problem.wanted;
        let (count, enough) = match demand.candidates() {
            Some(candidates) => (candidates.len(), candidates.len()),
            None => {
                // Hosts to avoid may be among those found.
                let avoid = self.problem.avoid.len();
                let count = self.hosts_to_ask_for() + avoid;
                (count, if self.is_thorough { count } else { demand.seats() + avoid })
            }
        };
        let exclude = Excluded { sites: self.lessons.excluded().cloned().collect(), hosts: self.problem.avoid.clone() };
        Output::Find { count, enough, seed, exclude }
    }

    fn hosts_to_ask_for(&self) -> usize {
        self.problem.wanted.seats().saturating_mul(self.multiplier as usize)
    }

    /// Phases II to V on the hosts that discovery has found.
    pub(super) fn on_found(
        &mut self,
        now: Now,
        mut found: Found,
        settings: &NegotiationSettings,
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> (Round, Next) {
        let avoid = &self.problem.avoid;
        if !avoid.is_empty() {
            found.hosts.retain(|host| !avoid.contains(&(host.site.clone(), host.host.id.clone())));
        }
        for (site, denial) in found.leave_out_denied() {
            self.lessons.exclude_denied(site, &denial);
        }
        self.denied.append(&mut found.denied);
        found.denied.clone_from(&self.denied);
        (self.planned_on, self.replans) = (None, 0);
        if found.hosts.len() < self.problem.seats_min() {
            let reason = self.ruled(now.utc, &found, settings, self.problem.shortage(&found));
            let round = self.round(&found, RoundOutcome::Rejected(reason.clone()));
            let wait = self.look_again(&found);
            return (round, wait.unwrap_or_else(|| Next::End(self.outcome_of_shortage(&found, reason))));
        }
        let (outcome, without_budget) = self.plan(now, &found, self.lessons.holds(), settings, random, observer);
        match outcome {
            PlanOutcome::Allocated(plan) => {
                let (round, proposal) = self.planned(found, plan, without_budget);
                (round, Next::Hold(proposal))
            }
            PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
                let rejection = Rejection { reason: self.ruled(now.utc, &found, settings, reason), start_proven };
                let round = self.round(&found, RoundOutcome::Rejected(rejection.reason.clone()));
                (round, self.widen_or_reject(&found, settings, rejection))
            }
        }
    }

    /// Phases II to V once more on the hosts of the last plan, with what a refusal has shown since then. None when none has shown
    /// anything, and when that gives no plan or a worse one: then discovery may know better.
    pub(super) fn plan_again(
        &mut self,
        now: Now,
        settings: &NegotiationSettings,
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> Option<(Round, Proposal)> {
        let known = self.planned_on.take()?;
        // A lesson is of the last attempt, whatever is made of it.
        if !self.lessons.take_learned() || self.replans >= REPLANS_MAX {
            return None;
        }
        self.replans += 1;
        self.planned_as_well(known, (now, settings), random, observer)
    }

    /// A plan on these hosts that is worth at least so much.
    fn planned_as_well(
        &mut self,
        (mut found, value): (Found, i64),
        (now, settings): (Now, &NegotiationSettings),
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> Option<(Round, Proposal)> {
        found.hosts.retain(|host| !self.lessons.is_excluded(&host.site));
        let (outcome, without_budget) = self.plan(now, &found, Holds::Avoided, settings, random, observer);
        match outcome {
            PlanOutcome::Allocated(plan) => {
                // Time passes, so what was the earliest start may be over.
                let is_start = plan.objective.kind == ObjectiveKind::Start;
                let most = if is_start { value.max(now.utc.0) } else { value };
                (plan.objective.value <= most).then(|| self.planned(found, plan, without_budget))
            }
            PlanOutcome::Rejected(_) => None,
        }
    }

    /// Those sites of a plan that give quotes.
    pub(super) fn sites_to_quote(&self, plan: &Plan) -> BTreeSet<SiteId> {
        let quoting = self.planned_on.as_ref().map(|(found, _)| &found.quoting);
        let sites = plan.seats.iter().map(|seat| &seat.site);
        sites.filter(|site| quoting.is_some_and(|quoting| quoting.contains(*site))).cloned().collect()
    }

    /// What attempts have taught it.
    pub(super) fn lessons(&mut self) -> &mut Lessons {
        &mut self.lessons
    }

    /// Another plan on the hosts of the last one that is worth as much, with what quotes have shown; none when there is no other.
    pub(super) fn plan_beside(
        &mut self,
        now: Now,
        settings: &NegotiationSettings,
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> Option<(Round, Proposal)> {
        if !self.lessons.quotes().may_begin() {
            return None;
        }
        let (found, value) = self.planned_on.take()?;
        let other = self.planned_as_well((found.clone(), value), (now, settings), random, observer);
        if other.is_none() {
            self.planned_on = Some((found, value));
        }
        other
    }

    /// On how many hosts [`Search::plan_again`] would plan.
    pub(super) fn hosts_planned_on(&self) -> usize {
        self.planned_on.as_ref().map_or(0, |(found, _)| found.hosts.len())
    }

    /// Forgets the hosts of the last plan: the search is over.
    pub(super) fn forget_found(&mut self) {
        self.planned_on = None;
    }

    fn planned(&mut self, found: Found, mut plan: Plan, without_budget: Option<WithoutBudget>) -> (Round, Proposal) {
        for (seat, number) in plan.seats.iter_mut().zip(&self.problem.numbers) {
            seat.number = *number;
        }
        let round = Round { without_budget, ..self.round(&found, RoundOutcome::Planned(plan.start)) };
        let value = plan.objective.value;
        let proposal = self.proposal_of(&found, plan);
        self.planned_on = Some((found, value));
        (round, proposal)
    }

    /// A plan at a single site is booked in one round trip, unless an attempt has failed already: then the site shows in a hold why.
    fn proposal_of(&self, found: &Found, plan: Plan) -> Proposal {
        let sites: BTreeSet<&SiteId> = plan.seats.iter().map(|seat| &seat.site).collect();
        let version = found.hosts.iter().find(|host| sites.contains(&host.site)).map(|host| host.version);
        let version = version.filter(|_| !self.problem.is_repair && sites.len() == 1 && self.attempts == 0);
        Proposal { plan, incarnation: version.map(|version| version.incarnation) }
    }

    /// Some hosts may fit, but their sites were silent, or their schedules could not be fetched: they change too fast, or their sites are
    /// busy. A moment later they may be known. None when the search has waited often enough.
    fn look_again(&mut self, found: &Found) -> Option<Next> {
        if self.lessons.readmit_silent() {
            return Some(Next::Wait(ASK_SILENT_AFTER));
        }
        if found.without_schedule == 0 || self.missed_finds >= MISSED_FINDS_MAX {
            return None;
        }
        self.missed_finds += 1;
        Some(Next::Wait(Millis(LOOK_AGAIN_AFTER.0 << (2 * self.missed_finds))))
    }

    /// Too few hosts are left: because there are no more, or because sites refused or did not answer.
    fn outcome_of_shortage(&self, found: &Found, reason: Reason) -> Outcome {
        if let Some((site, detail)) = self.lessons.refused_for_good() {
            return Outcome::Failed(Failure::Refused { site: site.clone(), detail: detail.to_owned() });
        }
        let silent_sites = self.lessons.silent_sites();
        if silent_sites == 0 && found.without_schedule + found.left_out == 0 {
            return Outcome::Rejected { reason, start_proven: true };
        }
        Outcome::Failed(Failure::Unreachable {
            found: found.hosts.len() as u64,
            asked: self.problem.seats_min() as u64,
            without_schedule: found.without_schedule as u64,
            silent_sites: silent_sites as u64,
        })
    }

    /// Phases II to V on the hosts found, with newer schedules where a refusal has shown them. Where a budget may keep a better plan
    /// away, also what that plan would be.
    fn plan(
        &mut self,
        now: Now,
        found: &Found,
        holds: Holds,
        settings: &NegotiationSettings,
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> (PlanOutcome, Option<WithoutBudget>) {
        let earliest = self.problem.earliest.max(now.utc);
        let effort = self.problem.effort.unwrap_or(settings.planner.effort);
        let how = HowToPlan { effort, seed: random.random(), now: now.utc };
        self.planned_at = now.utc;
        let (home, hints) = (&self.home, self.lessons.hints());
        let shapes = self.problem.shapes.iter();
        let jobs = shapes.map(|(shape, demand)| (*shape, self.job(demand, Some(now.utc), earliest))).collect();
        let run = Run { home, hints, found, jobs, how };
        let all = |with_holds| Among { sites: None, latest: self.problem.latest, with_holds };
        let budget = self.budget();
        let avoids = holds != Holds::Ignored;
        let (among, outcome) = match run.outcome(&all(avoids), budget, observer) {
            PlanOutcome::Rejected(_) if holds == Holds::AvoidedIfPossible => {
                (all(false), run.outcome(&all(false), budget, observer))
            }
            outcome => (all(avoids), outcome),
        };
        let has_prices = found.hosts.iter().any(|host| !host.host.tariff.prices.is_empty());
        let is_kept_away = budget.is_some() && has_prices && self.problem.objective != ObjectiveKind::Cost;
        let best = outcome.plan().filter(|_| is_kept_away).and_then(|plan| {
            let is_first = plan.objective.kind == ObjectiveKind::Start && plan.start <= earliest;
            if is_first { Some(plan.clone()) } else { run.outcome(&among, None, &mut ()).plan().cloned() }
        });
        let without_budget = best.map(|best| WithoutBudget { objective: best.objective, cost: best.cost() });
        let outcome = match outcome {
            PlanOutcome::Allocated(plan) => {
                PlanOutcome::Allocated(run.on_drawn_sites(&plan, &among, settings.planner.m_init).unwrap_or(plan))
            }
            rejected @ PlanOutcome::Rejected(_) => rejected,
        };
        (outcome, without_budget)
    }

    /// Adds to the reason of a rejection the owners' rules that discovery knows to be to blame.
    fn ruled(&self, now: Time, found: &Found, settings: &NegotiationSettings, reason: Reason) -> Reason {
        let earliest = self.problem.earliest.max(now);
        let shapes = self.problem.shapes.iter();
        let job = |demand| Job { uplinks: &found.uplinks, ..self.job(demand, Some(now), earliest) };
        let jobs = shapes.map(|(shape, demand)| (*shape, job(demand)));
        let effort = self.problem.effort.unwrap_or(settings.planner.effort);
        found.ruled(reason, jobs, HowToPlan { effort, seed: self.order, now })
    }

    fn job<'s>(&'s self, demand: &'s Demand, asked_at: Option<Time>, earliest: Time) -> Job<'s> {
        let &Problem { latest, deadline, objective, ref kept_sites, .. } = &self.problem;
        let (order, budget) = (Some(self.order), self.budget());
        Job {
            demand,
            earliest,
            latest,
            deadline,
            objective,
            budget,
            asked_at,
            kept_sites,
            uplinks: Uplinks::NONE,
            order,
            spreads: self.spreads,
        }
    }

    /// The efficiency factor of a plan on other hosts than were planned; none when nothing is known of one of them, or it seems full.
    pub(super) fn efficiency_of(&self, plan: &Plan) -> Option<f64> {
        let (found, _) = self.planned_on.as_ref()?;
        let seats: BTreeSet<(&SiteId, &HostId)> = plan.seats.iter().map(|seat| (&seat.site, seat.host())).collect();
        let hosts = found.hosts.iter().filter(|found| seats.contains(&(&found.site, &found.host.id)));
        let hosts: Vec<&FoundHost> = hosts.collect();
        let schedules = self.lessons.hints().offered(hosts.iter().copied(), false, self.planned_at);
        let known: Vec<Cow<'_, Host>> = hosts.iter().map(|host| self.lessons.hints().host(host)).collect();
        let hosts: Vec<(&SiteId, &Host)> =
            hosts.into_iter().zip(&known).map(|(found, host)| (&found.site, &**host)).collect();
        let candidate = |((site, host), schedule)| Candidate { site, host, schedule };
        let chosen: Vec<Candidate<'_>> =
            hosts.into_iter().zip(schedules.iter().map(Cow::as_ref)).map(candidate).collect();
        let is_known = chosen.len() == plan.seats.len();
        let (_, demand) = self.problem.shapes.iter().find(|(shape, _)| *shape == plan.shape && is_known)?;
        let demand = demand.scaled(plan.scale)?;
        phases::efficiency_on(&self.job(&demand, None, plan.start), &chosen, plan.start)
    }

    /// These hosts give no plan: asks twice as many of those whose schedules are not known, until there are no more, and searches beyond
    /// the known hosts.
    fn widen_or_reject(&mut self, found: &Found, settings: &NegotiationSettings, rejection: Rejection) -> Next {
        let set: BTreeSet<_> = found.hosts.iter().map(|found| (found.site.clone(), found.host.id.clone())).collect();
        let is_named = self.problem.wanted.candidates().is_some();
        let is_hopeless = matches!(rejection.reason, Reason::WindowPassed { .. });
        let is_short = is_named || found.left_out == 0;
        let enough = self.problem.wanted.seats().saturating_mul(settings.planner.m_max as usize);
        if is_short && !is_named && !is_hopeless && !self.is_thorough && set.len() < enough {
            (self.is_thorough, self.multiplier) = (true, settings.planner.m_max);
            return Next::Find;
        }
        if is_short
            && !is_hopeless
            && let Some(wait) = self.look_again(found)
        {
            return wait;
        }
        let is_everything = is_short || set == self.last_set;
        let next = settings.planner.next_m(self.multiplier).filter(|_| !is_everything && !is_hopeless);
        let Some(next) = next else {
            if let Some((site, detail)) = self.lessons.limited_by().cloned() {
                return Next::End(Outcome::Failed(Failure::Refused { site, detail }));
            }
            let Rejection { reason, start_proven } = rejection;
            // Hosts without a known schedule, or of a silent site, might have served.
            let unknown = found.without_schedule + found.left_out + self.lessons.silent_sites();
            let start_proven = start_proven && (is_hopeless || unknown == 0);
            return Next::End(Outcome::Rejected { reason, start_proven });
        };
        self.last_set = set;
        self.multiplier = next;
        Next::Find
    }

    fn round(&self, found: &Found, outcome: RoundOutcome) -> Round {
        Round {
            multiplier: self.multiplier,
            asked_hosts: self.hosts_to_ask_for(),
            found_hosts: found.hosts.len(),
            known_hosts: found.known_hosts,
            without_schedule: found.without_schedule,
            left_out: found.left_out,
            cut: found.cut.clone(),
            outcome,
            without_budget: None,
            quotes: Vec::new(),
        }
    }

    /// Learns from a refusal that ended an attempt, of seats in `window`; true when another request was faster.
    pub(super) fn learn(&mut self, site: &SiteId, refusal: Refusal, asked: (usize, Option<Window>)) -> bool {
        self.lessons.learn(site, refusal, asked, self.planned_on.as_ref().map(|(found, _)| found))
    }

    /// Remembers the hosts that a refusal shows, at most so many, and the uplink; it was of seats in the window, if that is known.
    pub(super) fn remember(&mut self, site: &SiteId, refusal: Refusal, asked: (usize, Option<Window>)) {
        self.lessons.remember(site, refusal, asked, self.planned_on.as_ref().map(|(found, _)| found));
    }

    /// The wait before the next attempt; none when no attempt is left.
    pub(super) fn wait_for_attempt(&mut self, settings: &NegotiationSettings, random: &mut impl Rng) -> Option<Millis> {
        (self.attempts < settings.max_attempts).then(|| self.lessons.wait(settings, random))
    }
}
