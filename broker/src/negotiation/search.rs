//! The search for one plan, phases I to V: which hosts to ask discovery for, what to plan on, when to search wider and when to
//! give up.
//!
//! A pure state machine: [`Search::find`] says what discovery is asked, [`Search::on_found`] what follows from its answer.
//! Invariant: a search ends. It doubles the number of hosts until it has seen all or `m_max` is reached, and looks again at most
//! [`MISSED_FINDS_MAX`] times for schedules that could not be fetched.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use rand::{Rng, RngExt};

use super::{
    Failure, Found, FoundHost, NegotiationSettings, Outcome, Output, Round, RoundOutcome, WithoutBudget, hints::Hints,
    quotes::Proposal,
};
use crate::{
    cost::Cost,
    demand::Demand,
    host::Host,
    ids::{HostId, SeatNumber, ShapeNumber, SiteId},
    phases::{self, Candidate, Job, PhaseObserver},
    plan::{Plan, PlanOutcome, Reason, Rejection},
    protocol::{HostState, LedgerVersion, Quote, Refusal, RefusalReason},
    request::{Effort, MAX_HOSTS, ObjectiveKind, Request},
    schedule::Schedule,
    strategy::plan_best,
    time::{Millis, Now, Time, Window},
    uplinks::Uplinks,
};

/// How often a request looks again when the schedules of hosts that it needs could not be fetched.
const MISSED_FINDS_MAX: u32 = 4;

/// How often in a row a request is planned again on the hosts of one round, with what refusals have shown since.
const REPLANS_MAX: u32 = 2;
/// A site that has refused so often to give more than a share of it is left out: it shows of the hosts asked for only which are
/// beyond the share, and it may have many more.
const SHARE_REFUSALS_MAX: u32 = 3;

/// A site that has refused so often because of its price is left out.
const PRICE_REFUSALS_MAX: u32 = 4;

/// A site that was busy is asked again after the shortest wait, doubled so often.
const BUSY_DOUBLINGS: u32 = 4;

/// Most rounds of quotes of a search; later plans are held without.
const QUOTE_ROUNDS_MAX: u32 = 3;

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
    /// Hosts that must not be chosen: they are part of the reservation, or were lost.
    pub(super) avoid: BTreeSet<(SiteId, HostId)>,
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
            cut: found.cut.clone(),
        };
        Reason::of_shapes(self.shapes.iter().map(|(_, demand)| too_few(demand)).collect())
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
        }
    }
}

/// Why a site is left out from now on.
#[derive(Debug)]
enum Exclusion {
    /// It did not answer.
    Silent,
    /// It refused for a reason that another attempt would not change.
    Refused(String),
}

/// What a refusal has shown of the site's hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Learned {
    /// What is free.
    Free,
    /// That others hold what would be free: a plan around it may do as well.
    Held,
}

/// How a plan minds the holds of others that refusals have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Ignored,
    AvoidedIfPossible,
    Avoided,
}

/// What follows from the hosts that were found.
pub(super) enum Next {
    /// Ask discovery again, for more hosts.
    Find,
    /// Ask discovery again after this wait.
    Wait(Millis),
    /// Ask the sites of this plan to hold.
    Hold(Plan),
    /// Ask the one site of this plan to book at once, in this incarnation of its ledger.
    Book(Plan, u64),
    /// There is no plan.
    End(Outcome),
}

/// One search, with everything that its attempts have taught it.
#[derive(Debug)]
pub(super) struct Search {
    problem: Problem,
    /// Draws the order in which the request prefers hosts.
    order: u64,
    /// Whether it prefers those of the sites with most processors free.
    spreads: bool,
    started: Millis,
    /// Discovery is asked for this many times as many hosts as are needed.
    multiplier: u32,
    /// Discovery searches beyond the hosts that it knows: only when these do not suffice.
    is_thorough: bool,
    /// The hosts of the last round: finding the same set again means that there are no more.
    last_set: BTreeSet<(SiteId, HostId)>,
    excluded: BTreeMap<SiteId, Exclusion>,
    hints: Hints,
    /// The hosts of the last plan, and what it was worth: an attempt that was refused is planned again on them.
    planned_on: Option<(Found, i64)>,
    /// Plans made on them since discovery was asked.
    replans: u32,
    /// What the site has shown by which the last attempt was refused.
    learned: Option<Learned>,
    /// The last site that has refused to give more than a share of it, and its words.
    limited_by: Option<(SiteId, String)>,
    /// How often each site has refused so.
    share_refusals: BTreeMap<SiteId, u32>,
    /// Rounds that came short because schedules could not be fetched.
    missed_finds: u32,
    /// What is due for bookings that were given back, at most.
    due: Cost,
    /// When it was planned last.
    planned_at: Time,
    /// How often each site has refused because of its price.
    price_refusals: BTreeMap<SiteId, u32>,
    /// Sites that have been busy once.
    were_busy: BTreeSet<SiteId>,
    /// The last attempt has met one for the first time.
    waits_for_busy: bool,
    /// Attempts of this search; those before a crash do not count against its limits.
    attempts: u32,
    /// Attempts that failed on a hold of another request.
    held_by_others: u32,
    quotes: Quotes,
}

/// What a search has learned from quotes.
#[derive(Debug, Default)]
struct Quotes {
    /// Rounds so far.
    rounds: u32,
    /// What was known of hosts before sites showed the own jobs that wait there; none outside of a series of rounds.
    before: Option<Hints>,
    /// The proposal of the series that costs least, and its cost.
    least: Option<(Quote, Proposal)>,
}

impl Search {
    /// A search that has learned nothing yet; `order` is the request's own.
    pub(super) fn new(problem: Problem, settings: &NegotiationSettings, started: Millis, order: u64) -> Search {
        let multiplier = settings.planner.first_m(problem.objective);
        Search {
            problem,
            order,
            spreads: settings.planner.spread,
            started,
            multiplier,
            is_thorough: false,
            last_set: BTreeSet::new(),
            excluded: BTreeMap::new(),
            hints: Hints::default(),
            planned_on: None,
            replans: 0,
            learned: None,
            limited_by: None,
            share_refusals: BTreeMap::new(),
            missed_finds: 0,
            due: Cost::ZERO,
            planned_at: Time::ZERO,
            price_refusals: BTreeMap::new(),
            were_busy: BTreeSet::new(),
            waits_for_busy: false,
            attempts: 0,
            held_by_others: 0,
            quotes: Quotes::default(),
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
        Output::Find { count, enough, seed, exclude: self.excluded.keys().cloned().collect() }
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
        (self.planned_on, self.replans) = (None, 0);
        if found.hosts.len() < self.problem.seats_min() {
            let reason = self.problem.shortage(&found);
            let round = self.round(&found, RoundOutcome::Rejected(reason.clone()));
            let wait = self.look_again(&found, settings);
            return (round, wait.unwrap_or_else(|| Next::End(self.outcome_of_shortage(&found, reason))));
        }
        let (outcome, without_budget) = self.plan(now, &found, self.holds(), settings, random, observer);
        match outcome {
            PlanOutcome::Allocated(plan) => self.planned(found, plan, without_budget),
            PlanOutcome::Rejected(rejection) => {
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
    ) -> Option<(Round, Next)> {
        let known = self.planned_on.take()?;
        let learned = self.learned.take().filter(|_| self.replans < REPLANS_MAX)?;
        self.replans += 1;
        let holds = if learned == Learned::Held { Holds::Avoided } else { self.holds() };
        self.planned_as_well(known, holds, (now, settings), random, observer)
    }

    /// A plan on these hosts that is worth at least so much.
    fn planned_as_well(
        &mut self,
        (mut found, value): (Found, i64),
        holds: Holds,
        (now, settings): (Now, &NegotiationSettings),
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> Option<(Round, Next)> {
        found.hosts.retain(|host| !self.excluded.contains_key(&host.site));
        let (outcome, without_budget) = self.plan(now, &found, holds, settings, random, observer);
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

    /// The number of a new round of quotes, if there is to be one more.
    pub(super) fn begin_quotes(&mut self) -> Option<u32> {
        if self.quotes.rounds >= QUOTE_ROUNDS_MAX {
            return None;
        }
        self.quotes.rounds += 1;
        if self.quotes.before.is_none() {
            self.quotes.before = Some(self.hints.clone());
        }
        Some(self.quotes.rounds)
    }

    /// Whether this is the last round of quotes that was begun.
    pub(super) fn is_quoting(&self, round: u32) -> bool {
        self.quotes.rounds == round
    }

    /// Notes what a proposal costs.
    pub(super) fn note_quoted(&mut self, cost: Quote, proposal: Proposal) {
        if self.quotes.least.as_ref().is_none_or(|(least, _)| cost < *least) {
            self.quotes.least = Some((cost, proposal));
        }
    }

    /// The proposal that costs least.
    pub(super) fn least_quoted(&mut self) -> Option<Proposal> {
        self.quotes.least.take().map(|(_, proposal)| proposal)
    }

    /// A plan is held: the own jobs that were shown are in nobody's way.
    pub(super) fn end_quotes(&mut self) {
        if let Some(before) = self.quotes.before.take() {
            self.hints = before;
        }
        self.quotes.least = None;
    }

    /// Another plan on the hosts of the last one that is worth as much, with what quotes have shown; none when there is no other.
    pub(super) fn plan_beside(
        &mut self,
        now: Now,
        settings: &NegotiationSettings,
        random: &mut impl Rng,
        observer: &mut impl PhaseObserver,
    ) -> Option<(Round, Next)> {
        let (found, value) = self.planned_on.clone().filter(|_| self.quotes.rounds < QUOTE_ROUNDS_MAX)?;
        let other = self.planned_as_well((found.clone(), value), self.holds(), (now, settings), random, observer);
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

    fn planned(&mut self, found: Found, mut plan: Plan, without_budget: Option<WithoutBudget>) -> (Round, Next) {
        for (seat, number) in plan.seats.iter_mut().zip(&self.problem.numbers) {
            seat.number = *number;
        }
        let round = Round { without_budget, ..self.round(&found, RoundOutcome::Planned(plan.start)) };
        let value = plan.objective.value;
        let next = self.next_of(&found, plan);
        self.planned_on = Some((found, value));
        (round, next)
    }

    /// A plan at a single site is booked in one round trip, unless an attempt has failed already: then the site shows in a hold why.
    fn next_of(&self, found: &Found, plan: Plan) -> Next {
        let sites: BTreeSet<&SiteId> = plan.seats.iter().map(|seat| &seat.site).collect();
        let version = found.hosts.iter().find(|host| sites.contains(&host.site)).map(|host| host.version);
        let is_whole = self.problem.avoid.is_empty();
        match version.filter(|_| is_whole && sites.len() == 1 && self.attempts == 0) {
            Some(version) => Next::Book(plan, version.incarnation),
            None => Next::Hold(plan),
        }
    }

    /// Some hosts fit, but their schedules could not be fetched: they change too fast, or their sites are busy, and a moment
    /// later they may be known. None when the search has waited often enough.
    fn look_again(&mut self, found: &Found, settings: &NegotiationSettings) -> Option<Next> {
        if found.without_schedule == 0 || self.missed_finds >= MISSED_FINDS_MAX {
            return None;
        }
        self.missed_finds += 1;
        Some(Next::Wait(Millis(settings.backoff_min.0 << (2 * self.missed_finds))))
    }

    /// Too few hosts are left: because there are no more, or because sites refused or did not answer.
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
            asked: self.problem.seats_min() as u64,
            without_schedule: found.without_schedule as u64,
            silent_sites: self.excluded.len() as u64,
        })
    }

    /// How a plan on hosts that were found minds the holds of others. It avoids them only after two attempts have met one: most go away
    /// or become reservations at once, and a plan around a hold that goes away starts later than it need.
    fn holds(&self) -> Holds {
        if self.held_by_others >= 2 { Holds::AvoidedIfPossible } else { Holds::Ignored }
    }

    /// Whether [`Search::plan_again`] has something new to plan with.
    pub(super) fn has_learned(&self) -> bool {
        self.learned.is_some()
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
        let seed = random.random();
        self.planned_at = now.utc;
        let this = &*self;
        let run = |with_holds: bool, budget: Option<Cost>, observer: &mut dyn PhaseObserver| {
            let schedules: Vec<Cow<'_, Schedule>> =
                found.hosts.iter().map(|host| this.hints.schedule(host, with_holds, now.utc)).collect();
            let hosts: Vec<Cow<'_, Host>> = found.hosts.iter().map(|host| this.hints.host(host)).collect();
            let candidates: Vec<Candidate<'_>> = found
                .hosts
                .iter()
                .zip(hosts.iter().zip(&schedules))
                .map(|(found, (host, schedule))| Candidate { site: &found.site, host, schedule })
                .collect();
            let (shapes, uplinks) = (this.problem.shapes.iter(), this.hints.uplinks(found, with_holds));
            let job = |demand| Job { uplinks: &uplinks, budget, ..this.job(demand, Some(now.utc), earliest) };
            let jobs = shapes.map(|(shape, demand)| (*shape, job(demand)));
            plan_best(jobs, &candidates, effort, seed, observer)
        };
        let (budget, avoids) = (this.budget(), holds != Holds::Ignored);
        let (with_holds, outcome) = match run(avoids, budget, observer) {
            PlanOutcome::Rejected(_) if holds == Holds::AvoidedIfPossible => (false, run(false, budget, observer)),
            outcome => (avoids, outcome),
        };
        let has_prices = found.hosts.iter().any(|host| !host.host.tariff.prices.is_empty());
        let is_kept_away = budget.is_some() && has_prices && this.problem.objective != ObjectiveKind::Cost;
        let best = outcome.plan().filter(|_| is_kept_away).and_then(|plan| {
            let is_first = plan.objective.kind == ObjectiveKind::Start && plan.start <= earliest;
            if is_first { Some(plan.clone()) } else { run(with_holds, None, &mut ()).plan().cloned() }
        });
        let without_budget = best.map(|best| WithoutBudget { objective: best.objective, cost: best.cost() });
        (outcome, without_budget)
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
        let schedules: Vec<_> = hosts.iter().map(|host| self.hints.schedule(host, false, self.planned_at)).collect();
        let candidate = |(found, schedule)| {
            let FoundHost { site, host, .. }: &FoundHost = found;
            Candidate { site, host, schedule }
        };
        let chosen: Vec<Candidate<'_>> =
            hosts.into_iter().zip(schedules.iter().map(Cow::as_ref)).map(candidate).collect();
        let is_known = chosen.len() == plan.seats.len();
        let (_, demand) = self.problem.shapes.iter().find(|(shape, _)| *shape == plan.shape && is_known)?;
        let demand = demand.scaled(plan.scale)?;
        phases::efficiency_on(&self.job(&demand, None, plan.start), &chosen, plan.start)
    }

    /// These hosts give no plan: searches beyond the known hosts, then among twice as many, until there are no more.
    fn widen_or_reject(&mut self, found: &Found, settings: &NegotiationSettings, rejection: Rejection) -> Next {
        let set: BTreeSet<_> = found.hosts.iter().map(|found| (found.site.clone(), found.host.id.clone())).collect();
        let asked = self.hosts_to_ask_for();
        let is_named = self.problem.wanted.candidates().is_some();
        let is_hopeless = matches!(rejection.reason, Reason::WindowPassed { .. });
        if !is_named && !is_hopeless && !self.is_thorough && set.len() < asked {
            self.is_thorough = true;
            return Next::Find;
        }
        let is_short = is_named || set.len() < asked;
        if is_short
            && !is_hopeless
            && let Some(wait) = self.look_again(found, settings)
        {
            return wait;
        }
        let is_everything = is_short || set == self.last_set;
        let next = settings.planner.next_m(self.multiplier).filter(|_| !is_everything && !is_hopeless);
        let Some(next) = next else {
            if let Some((site, detail)) = self.limited_by.clone() {
                return Next::End(Outcome::Failed(Failure::Refused { site, detail }));
            }
            let Rejection { reason, start_proven } = rejection;
            // Hosts without a known schedule might have served.
            let start_proven = start_proven && (is_hopeless || found.without_schedule == 0);
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
            cut: found.cut.clone(),
            outcome,
            without_budget: None,
            quotes: Vec::new(),
        }
    }

    /// A site has had no room for a question: it is asked once more after a while, and then left out.
    pub(super) fn note_busy(&mut self, site: &SiteId) {
        if self.were_busy.insert(site.clone()) {
            self.waits_for_busy = true;
            self.learned = None;
        } else {
            self.exclude_silent(site);
        }
    }

    /// Leaves out a site that did not answer.
    pub(super) fn exclude_silent(&mut self, site: &SiteId) {
        self.excluded.insert(site.clone(), Exclusion::Silent);
    }

    /// Learns from a refusal that ended an attempt, of seats in `window`; true when another request was faster.
    pub(super) fn learn(
        &mut self,
        site: &SiteId,
        refusal: Refusal,
        (hosts_max, window): (usize, Option<Window>),
    ) -> bool {
        let is_conflict = match &refusal.reason {
            RefusalReason::HeldByAnother { .. } | RefusalReason::OtherAttempt => {
                self.held_by_others += 1;
                let shows_holds = refusal.hosts.iter().any(|state| !state.held.is_empty());
                self.learned = shows_holds.then_some(Learned::Held);
                true
            }
            RefusalReason::NotEnough { .. } => {
                self.learned = (!refusal.hosts.is_empty()).then_some(Learned::Free);
                true
            }
            RefusalReason::UplinkFull { .. } if self.knows_uplink(site) => {
                self.learned = (!refusal.hosts.is_empty()).then_some(Learned::Free);
                true
            }
            RefusalReason::PriceChanged { host, tariff } => {
                let refusals = self.price_refusals.entry(site.clone()).or_default();
                *refusals += 1;
                let found = self.planned_on.as_ref().map(|(found, _)| found);
                // One that shows nothing new would refuse again.
                if *refusals >= PRICE_REFUSALS_MAX || self.hints.has_tariff(site, (host, tariff), found) {
                    self.excluded.insert(site.clone(), Exclusion::Refused(refusal.reason.to_string()));
                }
                self.learned = Some(Learned::Free);
                false
            }
            RefusalReason::NotAllowed(denial) if refusal.shows_what_is_free() => {
                self.learned = Some(Learned::Free);
                self.limited_by = Some((site.clone(), denial.to_string()));
                let refusals = self.share_refusals.entry(site.clone()).or_default();
                *refusals += 1;
                if *refusals == SHARE_REFUSALS_MAX {
                    self.excluded.insert(site.clone(), Exclusion::Refused(denial.to_string()));
                }
                false
            }
            RefusalReason::Busy => {
                self.note_busy(site);
                false
            }
            RefusalReason::NotAllowed(_) if refusal.is_shortened() => {
                self.note_busy(site);
                false
            }
            // The site would refuse for the same reason again.
            reason => {
                self.excluded.insert(site.clone(), Exclusion::Refused(reason.to_string()));
                false
            }
        };
        self.remember(site, refusal, (hosts_max, window));
        is_conflict
    }

    /// Whether the plan that a site has refused could have minded its uplink.
    fn knows_uplink(&self, site: &SiteId) -> bool {
        self.planned_on.as_ref().is_some_and(|(found, _)| found.uplinks.of(site).is_some())
    }

    /// Remembers the hosts that a refusal shows, at most `hosts_max`, and the uplink; it was of seats in `window`, if that is known.
    pub(super) fn remember(&mut self, site: &SiteId, refusal: Refusal, (hosts_max, window): (usize, Option<Window>)) {
        let found = self.planned_on.as_ref().map(|(found, _)| found);
        if let Some(before) = &mut self.quotes.before {
            before.remember(site, refusal.clone(), hosts_max, (found, window));
        }
        self.hints.remember(site, refusal, hosts_max, (found, window));
    }

    /// Remembers how a quote shows the hosts of a plan, until one is held.
    pub(super) fn remember_quoted(&mut self, site: &SiteId, version: LedgerVersion, hosts: Vec<HostState>) {
        let hosts_max = hosts.len().min(MAX_HOSTS as usize);
        // For the hosts alone: of the other things that a refusal shows it has none.
        let shown = Refusal { reason: RefusalReason::OtherAttempt, version, hosts };
        self.hints.remember(site, shown, hosts_max, (None, None));
    }

    /// The wait before the next attempt; none when no attempt is left. It grows with every conflict, and has jitter so that two
    /// rivals part.
    pub(super) fn wait_for_attempt(&mut self, settings: &NegotiationSettings, random: &mut impl Rng) -> Option<Millis> {
        if self.attempts >= settings.max_attempts {
            return None;
        }
        let is_for_busy = std::mem::take(&mut self.waits_for_busy);
        if self.held_by_others == 0 && !is_for_busy {
            return Some(Millis(0));
        }
        let least = if is_for_busy { BUSY_DOUBLINGS } else { 0 };
        let doublings = self.held_by_others.saturating_sub(1).clamp(least, 16);
        let longest = (settings.backoff_min.0 << doublings).min(settings.backoff_max.0);
        Some(Millis(random.random_range(longest / 2..=longest)))
    }
}
