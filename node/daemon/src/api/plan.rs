//! A plan on the live view: the phases up to V, and nothing is held.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use axum::{Json, extract::State};
use broker::{
    ids::{ShapeNumber, SiteId},
    negotiation::{Excluded, Found, FoundHost, HowToPlan},
    phases::{Candidate, Job, Phase, PhaseObserver, PhaseStopwatch},
    plan::{PlanOutcome, Rejection},
    request::Request,
    trust::{Authorization, Denial},
    view::Schedules,
};
use kolo_api::{
    plan::{Allocated, AllocatedPlan, AskedRequest, LivePlan, PlannedHost, Rejected, RejectedPlan, UsedSchedule},
    request_view::ReasonView,
    schema,
};
use serde::de::IgnoredAny;

use super::{
    batch_users::Signer,
    extract::Body,
    problem::Problem,
    requests::{checked_request, read_body, read_request, wrong_request},
    state::ApiState,
};
use crate::entry::driver;

/// The schedules of the sites of some hosts, one entry a site.
pub fn used_schedules<'a>(state: &ApiState, sites_of_hosts: impl Iterator<Item = &'a SiteId>) -> Vec<UsedSchedule> {
    let mut hosts_of: BTreeMap<&SiteId, usize> = BTreeMap::new();
    for site in sites_of_hosts {
        *hosts_of.entry(site).or_default() += 1;
    }
    let used = |(site, hosts): (&SiteId, usize)| UsedSchedule {
        site: site.clone(),
        site_name: state.site_name(site),
        hosts,
        age_s: schedule_age_s(state, site),
        coarse_from: state.discovery.view().coarse_from(site),
    };
    hosts_of.into_iter().map(used).collect()
}

/// For whom something is planned.
pub enum Asker {
    /// Who has signed this, with which owners are asked.
    User(Signer),
    /// The operator of this node, for whom a plain request would be signed. A node without an operator of its own cannot ask.
    Operator,
}

impl Asker {
    /// The one who has signed this, if there is one.
    ///
    /// # Errors
    /// A problem when the signature is none that this node would take a request with.
    pub fn of(state: &ApiState, signed: Option<Authorization>) -> Result<Asker, Problem> {
        let Some(signed) = signed else { return Ok(Asker::Operator) };
        admitted(state, signed).map(Asker::User).map_err(|denial| Problem::refused(&denial))
    }

    /// Adds what rules of owners about users leave to this one.
    pub async fn leave(&self, state: &ApiState, request: &Request, found: &mut Found) {
        if !found.hosts.iter().any(|host| host.offer.asks) {
            return;
        }
        if let Some(Signer { authorization, .. }) = self.signer(state, request) {
            state.coordinator.ask_standings(found, authorization).await;
            found.leave_out_denied();
        }
    }

    /// The user with whose signature owners are asked what they leave; for the operator the node signs this request. None when nobody can.
    pub fn signer(&self, state: &ApiState, request: &Request) -> Option<Signer> {
        match self {
            Asker::User(signer) => Some(signer.clone()),
            Asker::Operator => {
                let signed = state.membership.sign_for_operator(request.clone()).ok()?;
                admitted(state, signed).ok()
            }
        }
    }
}

fn admitted(state: &ApiState, signed: Authorization) -> Result<Signer, Denial> {
    let (authorization, permit) = state.membership.admit(signed)?;
    Ok(Signer { key: permit.user, authorization })
}

fn read_question(body: &[u8]) -> Result<(Request, Option<Authorization>), Problem> {
    let keys = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body).unwrap_or_default();
    if !keys.contains_key("asker") {
        return Ok((read_request(body)?, None));
    }
    let AskedRequest { request, asker } = read_body("question", body)?;
    Ok((checked_request(request, "request.")?, Some(asker)))
}

/// A plan on the live view; nothing is held.
#[utoipa::path(post, path = "/plan", tag = "planning", request_body = schema::PlanQuestion, responses((status = 200, description = "Done", body = LivePlan)))]
pub async fn plan_request(State(state): State<Arc<ApiState>>, Body(body): Body) -> Result<Json<LivePlan>, Problem> {
    let (request, signed) = read_question(&body)?;
    let asker = Asker::of(&state, signed)?;
    let settings = state.requests.settings().planner;
    let now = state.coordinator.clock.now();
    let starts = request.starts(now.utc, settings.default_reach);
    let (earliest, latest) = starts.map_err(|error| wrong_request(&error, ""))?;
    let seed = rand::random();
    let started = Instant::now();
    let mut stopwatch = PhaseStopwatch::new(|| started.elapsed());
    stopwatch.enter(Phase::Find);
    let wanted = request.widest();
    let mut multiplier = settings.first_m(request.objective());
    loop {
        let count = match wanted.candidates() {
            Some(candidates) => candidates.len(),
            None => wanted.seats().saturating_mul(multiplier as usize),
        };
        let age_max = driver::MAX_SCHEDULE_AGE;
        let mut found =
            driver::find(&state.discovery, &wanted, (count, count), seed, Excluded::default(), age_max).await;
        asker.leave(&state, &request, &mut found).await;
        let schedules = found.offered(now.utc);
        let candidate = |(found, schedule)| {
            let FoundHost { site, host, .. }: &FoundHost = found;
            Candidate { site, host, schedule }
        };
        let candidates: Vec<Candidate<'_>> =
            found.hosts.iter().zip(schedules.iter().map(AsRef::as_ref)).map(candidate).collect();
        let effort = request.effort().unwrap_or(settings.effort);
        let job = |(shape, job)| (shape, Job { asked_at: Some(now.utc), uplinks: &found.uplinks, ..job });
        let jobs = || Job::of_shapes(&request, (earliest, latest)).map(job);
        let how = HowToPlan { effort, seed, now: now.utc };
        // Waiting for a turn is no phase.
        stopwatch.stop();
        let plan = || found.plan_allowed(jobs(), &candidates, how, &mut stopwatch);
        let outcome = state.coordinator.planning.look(candidates.len(), plan).await;
        let outcome = outcome.with_cut(&found.cut);
        if matches!(outcome, PlanOutcome::Rejected(_))
            && let Some(next) = found.next_m(multiplier, count, &settings).filter(|_| wanted.candidates().is_none())
        {
            stopwatch.enter(Phase::Find);
            multiplier = next;
            continue;
        }
        let names = Phase::ALL.into_iter().map(Phase::name);
        let phases_us = names.zip(stopwatch.stop()).filter(|(name, _)| *name != Phase::Reserve.name());
        let phases_us = phases_us.map(|(name, us)| (name.to_owned(), us)).collect();
        let schedules = used_schedules(&state, candidates.iter().map(|candidate| candidate.site));
        let hosts = (candidates.len(), found.left_out + found.without_schedule);
        let outcome = explained(outcome, &found, (jobs(), how));
        return Ok(Json(live_plan(&state, &request, outcome, phases_us, hosts).with_schedules(schedules)));
    }
}

/// The same outcome; a rejection tells hosts that do not suit from those whose schedules are not known, and names the owners' rules without
/// which there would be a plan.
pub fn explained<'a>(
    outcome: PlanOutcome,
    found: &Found,
    (jobs, how): (impl Iterator<Item = (ShapeNumber, Job<'a>)>, HowToPlan),
) -> PlanOutcome {
    match outcome {
        PlanOutcome::Rejected(Rejection { reason, start_proven }) => {
            let start_proven = start_proven && found.without_schedule == 0;
            let reason = found.ruled(found.reason(reason), jobs, how);
            PlanOutcome::Rejected(Rejection { reason, start_proven })
        }
        allocated @ PlanOutcome::Allocated(_) => allocated,
    }
}

/// What came of planning a request on so many hosts, while so many that fit were left out.
pub fn live_plan(
    state: &ApiState,
    request: &Request,
    outcome: PlanOutcome,
    phases_us: BTreeMap<String, f64>,
    (hosts_seen, hosts_left_out): (usize, usize),
) -> LivePlan {
    let (id, schedules) = (request.id().cloned(), Vec::new());
    match outcome {
        PlanOutcome::Allocated(plan) => LivePlan::Allocated(AllocatedPlan {
            outcome: Allocated::Allocated,
            id,
            shape: Some(plan.shape).filter(|_| request.has_shapes()),
            scale: request.demand().scale().map(|_| plan.scale),
            start: plan.start,
            end: plan.end(),
            objective: plan.objective,
            cost: plan.cost(),
            hosts_seen,
            hosts_left_out,
            efficiency: plan.efficiency,
            efficiency_bound: plan.efficiency_bound,
            start_proven: plan.start_proven,
            phases_us,
            schedules,
            hosts: plan
                .seats
                .into_iter()
                .map(|seat| PlannedHost {
                    schedule_age_s: schedule_age_s(state, &seat.site),
                    site_name: state.site_name(&seat.site),
                    id: seat.host().clone(),
                    end: seat.window.end,
                    site: seat.site,
                    amounts: seat.amounts,
                    cost: seat.agreed.cost,
                })
                .collect(),
        }),
        PlanOutcome::Rejected(rejection) => LivePlan::Rejected(RejectedPlan {
            outcome: Rejected::Rejected,
            id,
            reason: ReasonView::of(&rejection.reason),
            hosts_seen,
            hosts_left_out,
            start_proven: rejection.start_proven,
            phases_us,
            schedules,
        }),
    }
}

fn schedule_age_s(state: &ApiState, site: &SiteId) -> u64 {
    let now = state.discovery.now();
    let age = state.discovery.view().with_site(site, |view| match view.schedules() {
        Schedules::Known(known) => (now - known.learnt).0 / 1000,
        Schedules::Unknown => 0,
    });
    age.unwrap_or(0)
}
