//! Runs of a batch: what waits is planned together and reserved as planned, when somebody says so or as often as the node does it.
//!
//! Invariant: one run at a time plans, and none plans what another is submitting. A request is submitted under the id that was signed,
//! with its plan, and waits no more when that is on disk; what found no place waits for the next run and comes first there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    batch::BatchLine,
    ids::RequestId,
    negotiation::HandedPlan,
    offline::Asked,
    plan::PlanOutcome,
    request::{Request, RequestDocument},
    time::{Span, Time},
    trust::{Authorization, Permit},
};
use futures::{StreamExt as _, stream};
use kolo_api::{
    batch::BatchQuestion,
    batch_run::{BatchRun, EveryQuestion, RunQuestion, RunsEvery},
};
use kolo_config::BATCH_EVERY_MIN;
use kolo_storage::{
    StoreError,
    waiting::{HowEnded, WaitingEnd, WaitingRecord},
};
use kolo_text::words::reason_text;
use kolo_trust::Scope;
use tracing::{info, warn};

use super::{
    authority::About,
    batch::{How, answer},
    batch_users::Signer,
    extract::{Body, in_range},
    problem::Problem,
    requests::{has_allowance, read_body},
    scopes::Caller,
    state::ApiState,
    waiting::{disk_failed, sees, waiting_view},
};
use crate::entry::{
    request::{RequestHandle, SubmitError},
    requests::HandedIn,
};

/// Requests of a run that are under way at a time.
const SIDE_BY_SIDE: usize = 32;
/// How long a run waits for the end of one of them before the next takes its place.
const SETTLE_WAIT: Duration = Duration::from_secs(120);
/// Longest time from one run of the node to the next: a year.
const EVERY_S_MAX: u64 = 366 * 86_400;

/// What a run asks of all requests together, on this node.
fn about(question: RunQuestion, state: &ApiState) -> BatchQuestion {
    let RunQuestion { policy, order, objective } = question;
    let policy = policy.unwrap_or_else(|| state.waiting.policy.clone());
    BatchQuestion { policy, order, objective, ..BatchQuestion::default() }
}

/// Plans what waits of the caller's requests (all of them for the operator), submits each as planned, and answers when all have come to
/// an end.
#[utoipa::path(post, path = "/batches/run", tag = "requests", request_body = RunQuestion, responses((status = 200, description = "Done", body = BatchRun)))]
pub async fn run_batch(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<Json<BatchRun>, Problem> {
    let question: RunQuestion = read_body("batch", &body)?;
    let is_stranger = !caller.has(Scope::Submit);
    run(&state, (|record| sees(&caller, record), is_stranger), question).await.map(Json)
}

/// Lets the node run batches by itself, or no longer: until it restarts, when its configuration counts again.
#[utoipa::path(post, path = "/batches/every", tag = "requests", request_body = EveryQuestion, responses((status = 200, description = "Done", body = RunsEvery)))]
pub async fn run_every(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(Extension<About>, Json<RunsEvery>), Problem> {
    let EveryQuestion { every_s, how } = read_body("every", &body)?;
    let least = BATCH_EVERY_MIN.as_secs();
    let every_s = every_s.map(|every_s| in_range("every_s", every_s, least..=EVERY_S_MAX)).transpose()?;
    How::of(&about(how.clone(), &state))?;
    state.batch_runs.send_replace((every_s.map(Duration::from_secs), how));
    let words = every_s.map_or_else(|| "never".to_owned(), |every_s| format!("every {every_s} s"));
    Ok((About::of(&words), Json(RunsEvery { every_s })))
}

/// Runs a batch again and again, as often as the node is told to, for as long as it is up.
pub async fn run_batches(state: Arc<ApiState>) {
    let mut runs = state.batch_runs.subscribe();
    loop {
        let (every, how) = runs.borrow_and_update().clone();
        let pause = async {
            match every {
                Some(every) => tokio::time::sleep(every).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = runs.changed() => if changed.is_err() { return std::future::pending().await },
            () = pause => match run(&state, (|_| true, false), how).await {
                Ok(BatchRun { batch: Some(batch), .. }) => info!(batch.placed, batch.postponed, "a batch was run"),
                Ok(_) => {}
                Err(Problem(problem)) => warn!(problem.detail, "no batch was run"),
            },
        }
    }
}

/// One that is due: it waits, may still start, and is still admitted.
struct Due {
    /// With the starts that it has now, under the id that was signed.
    asked: Asked,
    authorization: Authorization,
    permit: Permit,
    submitted_for: Option<String>,
    latest: Time,
    /// An earlier run has found no place for it.
    was_postponed: bool,
}

/// Plans what is wanted, and submits it behind the turn: another run may plan what has come since. `is_stranger`: whoever has asked
/// shows no token, and each request takes of its user's allowance.
async fn run(
    state: &Arc<ApiState>,
    (is_wanted, is_stranger): (impl Fn(&WaitingRecord) -> bool, bool),
    question: RunQuestion,
) -> Result<BatchRun, Problem> {
    let how = How::of(&about(question, state))?;
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node plans a batch; try again in a moment");
    let turn = state.waiting.turn().ok_or_else(busy)?;
    let failed = |error| disk_failed(state, error);
    let wanted = state.waiting.all().await.into_iter().filter(|record| record.end.is_none() && is_wanted(record));
    let now = state.coordinator.clock.now().utc;
    let (mut due, mut ids) = (Vec::new(), BTreeSet::new());
    for record in wanted.filter(|record| !state.waiting.is_under_way(&record.id)) {
        ids.insert(record.id.clone());
        if let Some(problem) =
            Some(record.account).filter(|_| is_stranger).and_then(|of| has_allowance(state, of, 1).err())
        {
            let say = |record: &mut WaitingRecord| record.reason = Some(problem.0.detail.clone());
            state.waiting.update([&record.id], say).await.map_err(failed)?;
            continue;
        }
        match look_at(state, record, now) {
            Ok(one) => due.push(one),
            Err((id, end, reason)) => {
                let ended = async { (Some((end, reason)), ()) };
                state.waiting.end_with(&id, ended).await.map_err(failed)?;
            }
        }
    }
    let mut batch = None;
    if !due.is_empty() {
        let (line, placed) = plan(state, how, due).await?;
        let _under_way = state.waiting.under_way(placed.iter().map(|(one, _)| one.asked.id.clone()).collect());
        drop(turn);
        submit_all(state, placed).await.map_err(failed)?;
        batch = Some(line);
    }
    let views = state.waiting.all().await.into_iter().filter(|record| ids.contains(&record.id));
    Ok(BatchRun { requests: views.map(|record| waiting_view(state, record)).collect(), batch })
}

fn end(state: &ApiState, how: HowEnded) -> WaitingEnd {
    WaitingEnd { at: state.coordinator.clock.now().utc, how }
}

/// What can be planned of one that waits; else how its wait ends.
fn look_at(state: &ApiState, record: WaitingRecord, now: Time) -> Result<Due, (RequestId, WaitingEnd, Option<String>)> {
    let starts = record.request.starts(now, Span(0)).ok().filter(|(earliest, _)| *earliest <= record.latest);
    let Some((earliest, _)) = starts else {
        return Err((record.id, end(state, HowEnded::Passed), record.reason));
    };
    let document = RequestDocument {
        earliest: Some(earliest),
        latest: Some(record.latest),
        ..RequestDocument::from(record.request.clone())
    };
    let refused = |why: String| (record.id.clone(), end(state, HowEnded::Refused), Some(why));
    let request = Request::try_from(document).map_err(|error| refused(error.to_string()))?;
    let admitted = state.membership.admit(record.authorization.clone());
    let (authorization, permit) = admitted.map_err(|denial| refused(denial.to_string()))?;
    let asked = Asked::new(record.id, &request);
    let WaitingRecord { submitted_for, latest, postponed, .. } = record;
    Ok(Due { asked, authorization, permit, submitted_for, latest, was_postponed: postponed > 0 })
}

/// Plans these together, first those that were postponed: the line of all, and those that have a plan; the rest goes on waiting.
async fn plan(state: &Arc<ApiState>, how: How, due: Vec<Due>) -> Result<(BatchLine, Vec<(Due, HandedPlan)>), Problem> {
    // What waits comes in this order.
    let how = how.with_first(due.iter().filter(|one| one.was_postponed).count());
    let asked = due.iter().map(|one| one.asked.clone()).collect();
    let signer = |one: &Due| Some(Signer { key: one.permit.user, authorization: one.authorization.clone() });
    let (answer, _) = answer(state, how, asked, due.iter().map(signer).collect()).await?;
    let mut placed = Vec::new();
    let mut reasons = BTreeMap::new();
    for (one, line) in due.into_iter().zip(answer.lines) {
        match line.outcome {
            PlanOutcome::Allocated(plan) => placed.push((one, HandedPlan::from(plan))),
            PlanOutcome::Rejected(rejection) => {
                reasons.insert(one.asked.id, reason_text(&rejection.reason));
            }
        }
    }
    let postpone = |record: &mut WaitingRecord| {
        record.postponed = record.postponed.saturating_add(1);
        record.reason = reasons.get(&record.id).cloned();
    };
    state.waiting.update(reasons.keys(), postpone).await.map_err(|error| disk_failed(state, error))?;
    Ok((answer.batch, placed))
}

/// Submits these as planned, and answers when all have come to an end.
async fn submit_all(state: &Arc<ApiState>, placed: Vec<(Due, HandedPlan)>) -> Result<(), StoreError> {
    let submit = |(one, plan): (Due, HandedPlan)| async {
        let id = one.asked.id.clone();
        let submitted = state.waiting.end_with(&id, submit(state, one, plan)).await?;
        if let Some(handle) = submitted.flatten() {
            let mut snapshots = handle.watch();
            let settled = snapshots.wait_for(|snapshot| !snapshot.stage.is_under_way());
            // What takes longer goes on behind the next.
            let _ = tokio::time::timeout(SETTLE_WAIT, settled).await;
        }
        Ok(())
    };
    let all = stream::iter(placed).map(submit).buffer_unordered(SIDE_BY_SIDE).collect::<Vec<Result<(), StoreError>>>();
    all.await.into_iter().collect()
}

/// Submits one with its plan; how its wait has ended, if it has, and who coordinates it.
async fn submit(
    state: &ApiState,
    due: Due,
    plan: HandedPlan,
) -> (Option<(WaitingEnd, Option<String>)>, Option<Arc<RequestHandle>>) {
    let Due { authorization, permit, submitted_for, latest, .. } = due;
    let plan = Some(HandedIn { plan, replans: true, latest: Some(latest) });
    let submitted = state.requests.submit(&state.coordinator, authorization, permit, plan, submitted_for).await;
    let ended = |how, reason| Some((end(state, how), reason));
    match submitted {
        Ok(handle) => (ended(HowEnded::Submitted, None), Some(handle)),
        Err(SubmitError::Known { .. }) => (ended(HowEnded::Submitted, None), None),
        Err(error @ SubmitError::Request(_)) => (ended(HowEnded::Passed, Some(error.to_string())), None),
        // It is planned again with the next batch; a disk that fails stops the node.
        Err(SubmitError::Plan(_) | SubmitError::Busy | SubmitError::NoRoom | SubmitError::Store(_)) => (None, None),
    }
}
