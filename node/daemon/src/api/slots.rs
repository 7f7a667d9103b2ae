//! When could I have this, and how many hosts could I get: looks at all starts of a window on the live view. Nothing is
//! held.

use std::{borrow::Cow, sync::Arc};

use axum::{Json, extract::State};
use broker::{
    availability::{Availability, AvailabilityStep},
    cost::Cost,
    demand::Demand,
    negotiation::{Excluded, Found, FoundHost, HowToPlan},
    phases::{self, Candidate, FrontPoint, Job},
    plan::{Plan, PlanOutcome},
    request::{Effort, ObjectiveKind, Request},
    scale::Scale,
    time::Time,
    variant::Variant,
};
use kolo_api::{
    request_view::ReasonView,
    slots::{Mode, PriceFront, PricedStart, ProfileStep, SlotAnswer, SlotQuestion},
};

use super::{
    extract::Body,
    plan::{Asker, explained, used_schedules},
    problem::Problem,
    requests::{checked_request, read_body, wrong_request},
    state::ApiState,
};
use crate::entry::driver;

/// Most points of the front.
const FRONT_MAX: usize = 100;
/// Most steps of the profile.
const STEPS_MAX: usize = 1_000;

/// The part of the answer that depends on the mode.
struct Verdict {
    start: Option<Time>,
    /// Where a plan knows it.
    end: Option<Time>,
    cost: Cost,
    is_possible: bool,
    is_proven: bool,
    reason: Option<ReasonView>,
}

/// When could this start, and how many hosts could be had; nothing is held.
#[utoipa::path(post, path = "/slots", tag = "planning", request_body = SlotQuestion, responses((status = 200, description = "Done", body = SlotAnswer)))]
pub async fn find_slots(State(state): State<Arc<ApiState>>, Body(body): Body) -> Result<Json<SlotAnswer>, Problem> {
    let SlotQuestion { mode, at, request: document, asker } = read_body("question", &body)?;
    let asker = Asker::of(&state, asker)?;
    let request = checked_request(document, "request.")?;
    let settings = state.requests.settings().planner;
    let now = state.coordinator.clock.now();
    let starts = request.starts(now.utc, settings.default_reach);
    let (mut earliest, mut latest) = starts.map_err(|error| wrong_request(&error, "request."))?;
    match (mode, at) {
        (Mode::At, Some(at)) if at < now.utc || !at.is_in_range() => {
            return Err(Problem::wrong("at", format_args!("{} is past", at.in_utc())));
        }
        (Mode::At, Some(at)) => (earliest, latest) = (earliest.min(at), latest.max(at)),
        (Mode::At, None) => return Err(Problem::wrong("at", "mode at wants a start")),
        (_, Some(_)) => return Err(Problem::wrong("at", "only mode at takes a start")),
        (Mode::Most, None) if request.has_shapes() => {
            return Err(Problem::wrong("request.shapes", "mode most looks for hosts of one shape"));
        }
        (Mode::Most, None) if request.demand().scale().is_some() => {
            return Err(Problem::wrong("request.scale", "mode most looks for hosts at one factor"));
        }
        (Mode::Most, None) if request.budget().is_some() => {
            return Err(Problem::wrong("request.budget", "mode most does not look at prices"));
        }
        (Mode::Most, None) if request.demand().traffic().is_some() => {
            return Err(Problem::wrong("request.traffic", "mode most does not look at uplinks"));
        }
        (_, None) => {}
    }
    let seed = rand::random();
    let counts = (discovery::dht::find::HOSTS_MAX, request.seats_max());
    let age_max = driver::MAX_SCHEDULE_AGE;
    let mut found = driver::find(&state.discovery, &request.widest(), counts, seed, Excluded::default(), age_max).await;
    asker.leave(&state, &request, &mut found).await;
    let effort = request.effort().unwrap_or(settings.effort);
    let question = Question { mode, at, request: &request, now: now.utc, window: (earliest, latest), effort, seed };
    let answer = || question.answer(&state, &found);
    Ok(Json(state.coordinator.planning.look(found.hosts.len(), answer).await))
}

/// Whether it is proven that no plan has a better value of its objective.
fn is_best(plan: &Plan) -> bool {
    match plan.objective.kind {
        ObjectiveKind::Start => plan.start_proven,
        _ => plan.objective.bound == Some(plan.objective.value),
    }
}

struct Question<'a> {
    mode: Mode,
    at: Option<Time>,
    request: &'a Request,
    now: Time,
    window: (Time, Time),
    effort: Effort,
    seed: u64,
}

impl Question<'_> {
    fn answer(&self, state: &ApiState, found: &Found) -> SlotAnswer {
        let schedules = found.offered(self.now);
        let candidate = |(found, schedule)| {
            let FoundHost { site, host, .. }: &FoundHost = found;
            Candidate { site, host, schedule }
        };
        let mut candidates: Vec<Candidate<'_>> =
            found.hosts.iter().zip(schedules.iter().map(AsRef::as_ref)).map(candidate).collect();
        let front = self.front(&candidates);
        let planned = if self.mode == Mode::Most { None } else { Some(self.planned(found, &candidates)) };
        let plan = planned.as_ref().and_then(PlanOutcome::plan);
        let plain = self.request.demand().scale().map(Scale::plain).unwrap_or_default();
        let variant = plan.map_or(Variant { scale: plain, ..Variant::default() }, Plan::variant);
        let demand = self.request.demand_of(variant).unwrap_or(Cow::Borrowed(self.request.demand()));
        let demand = &*demand;
        let needs = demand.host_needs();
        candidates.retain(|candidate| needs.are_met_by(candidate.site, candidate.host));
        let job = Job { demand, ..Job::of(self.request, self.window) };
        let availability = Availability::new(&job, &candidates);
        let verdict = self.verdict(&availability, || planned.unwrap_or_else(|| self.planned(found, &candidates)));
        let step = verdict.start.map(|start| availability.at(start));
        let profile = availability.thinned(STEPS_MAX);
        SlotAnswer {
            mode: self.mode,
            shape: Some(variant.shape).filter(|_| self.request.has_shapes()),
            scale: demand.scale().map(|_| variant.scale),
            is_possible: verdict.is_possible,
            start: verdict.start,
            end: verdict.end.or(verdict.start.map(|start| start + demand.length().at_reference())),
            cost: verdict.cost,
            hosts: step.map_or(0, |step| step.hosts),
            free: step.map(|step| step.free.clone()).unwrap_or_default(),
            is_proven: verdict.is_proven,
            front,
            reason: verdict.reason,
            is_thinned: profile.len() < availability.steps().len(),
            profile: profile
                .into_iter()
                .map(|AvailabilityStep { start, hosts, free }| ProfileStep { start, hosts, free })
                .collect(),
            until: self.window.1,
            known_hosts: found.known_hosts,
            matching_hosts: candidates.len(),
            without_schedule: found.without_schedule + found.left_out,
            schedules: used_schedules(state, candidates.iter().map(|candidate| candidate.site)),
        }
    }

    /// What it costs to start earlier; none where nothing costs anything.
    fn front(&self, candidates: &[Candidate<'_>]) -> Option<PriceFront> {
        // It knows neither links, nor hosts that end together, nor factors.
        let is_known = |demand: &Demand| demand.traffic().is_none() && demand.scale().is_none();
        if self.mode != Mode::Earliest || !self.request.shapes().all(is_known) {
            return None;
        }
        candidates.iter().find(|candidate| !candidate.host.tariff.prices.is_empty())?;
        let jobs = Job::of_shapes(self.request, self.window);
        let jobs = jobs.map(|(shape, job)| (shape, Job { budget: None, asked_at: Some(self.now), ..job }));
        let front = phases::front_of_shapes(jobs, candidates, self.effort, self.seed);
        front.points.first().filter(|first| !first.cost.is_zero())?;
        let (points, left_out) = front.thinned(FRONT_MAX);
        let has_shapes = self.request.has_shapes();
        let point = |FrontPoint { start, cost, is_proven, shape }| {
            let shape = Some(shape).filter(|_| has_shapes);
            PricedStart { start, cost, is_proven, shape }
        };
        let points = points.into_iter().map(point).collect();
        Some(PriceFront { points, left_out, is_proven: front.is_proven })
    }

    /// The best plan of all shapes.
    fn planned(&self, found: &Found, candidates: &[Candidate<'_>]) -> PlanOutcome {
        let job = |(shape, job)| (shape, Job { asked_at: Some(self.now), uplinks: &found.uplinks, ..job });
        let jobs = || Job::of_shapes(self.request, self.at.map_or(self.window, |at| (at, at))).map(job);
        let how = HowToPlan { effort: self.effort, seed: self.seed, now: self.now };
        let outcome = found.plan_allowed(jobs(), candidates, how, &mut ()).with_cut(&found.cut);
        explained(outcome, found, (jobs(), how))
    }

    fn verdict(&self, availability: &Availability<'_>, planned: impl FnOnce() -> PlanOutcome) -> Verdict {
        if self.mode == Mode::Most
            && let Some(most) = availability.most(self.effort, self.seed)
        {
            return Verdict {
                start: Some(most.start),
                end: None,
                cost: Cost::ZERO,
                is_possible: true,
                is_proven: most.is_proven,
                reason: None,
            };
        }
        match planned() {
            PlanOutcome::Allocated(plan) => Verdict {
                start: Some(plan.start),
                end: Some(plan.end()),
                cost: plan.cost(),
                is_possible: true,
                is_proven: self.at.is_some() || is_best(&plan),
                reason: None,
            },
            PlanOutcome::Rejected(rejection) => Verdict {
                start: self.at,
                end: None,
                cost: Cost::ZERO,
                is_possible: false,
                is_proven: rejection.start_proven,
                reason: Some(ReasonView::of(&rejection.reason)),
            },
        }
    }
}
