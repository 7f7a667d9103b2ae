//! Requests that wait for a batch: stored as their users have signed them, planned together with all that has come since, and reserved
//! as planned.
//!
//! Invariant: one run at a time plans what waits. A request is submitted under the id that was signed, with its plan, and waits no more
//! when that is on disk; what found no place waits for the next run and comes first there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    batch::{BatchLine, BatchObjective, Order},
    ids::RequestId,
    negotiation::HandedPlan,
    offline::Asked,
    plan::PlanOutcome,
    request::{Request, RequestDocument},
    time::{Span, Time},
    trust::{Authorization, Permit},
};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};
use utoipa::ToSchema;

use super::{
    authority::{About, needs_submit},
    batch::{BatchQuestion, How, REQUESTS_MAX, answer},
    extract::{Body, Path},
    problem::Problem,
    request_view::RequestState,
    requests::{
        ambiguous, checked_request, has_allowance, read_body, signed_for_operator, submit_problem, view, wrong_request,
    },
    schema,
    scopes::Caller,
    state::ApiState,
};
use crate::{
    entry::{
        request::{RequestHandle, SubmitError},
        requests::HandedIn,
        waiting::{AddError, WAITING_MAX, WAITING_STRANGERS_MAX},
    },
    runtime::clock::unix_ms,
    storage::{
        StoreError,
        waiting::{HowEnded, WaitingEnd, WaitingRecord},
    },
    trust::Scope,
};

/// Requests of a run that are under way at a time.
const SIDE_BY_SIDE: usize = 32;
/// How long a run waits for the end of one of them before the next takes its place.
const SETTLE_WAIT: Duration = Duration::from_secs(120);

/// Body of `POST /v1/batches/waiting`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddQuestion {
    /// The node signs these for its operator. Each says what it may cost (`budget`).
    #[schema(value_type = Vec<schema::Request>, max_items = 1000)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestDocument>,
    /// Their users have signed these. Each says what it may cost (`budget`).
    #[schema(value_type = Vec<schema::Authorization>, max_items = 1000)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed: Vec<Authorization>,
}

/// Body of `POST /v1/batches/run`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunQuestion {
    /// `in-order` or `slices:K`; else that of the configuration.
    #[schema(pattern = "^(in-order|slices:[1-9][0-9]{0,17})$")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Whose turn is first.
    #[schema(value_type = schema::BatchOrder)]
    #[serde(default)]
    pub order: Order,
    /// What is least for all together.
    #[schema(value_type = schema::BatchObjectiveKind)]
    #[serde(default)]
    pub objective: BatchObjective,
}

/// Requests that wait for a batch, or have waited lately.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WaitingList {
    /// Those that wait, in the order in which they are planned, then the others.
    pub requests: Vec<WaitingView>,
}

/// What a run has come to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchRun {
    /// Those that waited when it began.
    pub requests: Vec<WaitingView>,
    /// All of them together; none when none could be planned.
    #[schema(value_type = schema::BatchLine)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchLine>,
}

/// A request that waits for a batch, or has waited.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WaitingView {
    pub id: RequestId,
    pub label: Option<RequestId>,
    pub user: String,
    pub state: WaitingState,
    /// The request's own state, once it is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<RequestState>,
    pub added_ms: u64,
    /// It starts by then, or not at all.
    pub latest: Time,
    /// Batches that have postponed it.
    pub postponed: u32,
    /// Why it was postponed last, refused, or not reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[schema(value_type = schema::Request)]
    pub request: Request,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingState {
    /// No batch has planned it yet.
    Waiting,
    /// It found no place, and waits for the next batch.
    Postponed,
    /// It is a request of this node now.
    Submitted,
    /// It could start no more.
    Passed,
    /// The grid or this node does not take it any more.
    Refused,
}

impl WaitingView {
    fn new(state: &ApiState, record: WaitingRecord) -> WaitingView {
        let ended = record.end.as_ref().map(|end| end.how);
        let submitted = (ended == Some(HowEnded::Submitted)).then(|| state.requests.get(&record.id)).flatten();
        let submitted = submitted.map(|handle| view(state, &handle.watch().borrow().clone()));
        let reason = submitted.as_ref().and_then(|view| view.reason.as_ref()).map(|reason| reason.detail.clone());
        WaitingView {
            label: record.request.id().cloned(),
            state: match ended {
                None if record.postponed == 0 => WaitingState::Waiting,
                None => WaitingState::Postponed,
                Some(HowEnded::Submitted) => WaitingState::Submitted,
                Some(HowEnded::Passed) => WaitingState::Passed,
                Some(HowEnded::Refused) => WaitingState::Refused,
            },
            request_state: submitted.map(|view| view.state),
            reason: reason.or(record.reason),
            id: record.id,
            user: record.user,
            added_ms: record.added_ms,
            latest: record.latest,
            postponed: record.postponed,
            request: record.request,
        }
    }
}

fn sees(caller: &Caller, record: &WaitingRecord) -> bool {
    caller.sees_of(Some(&record.authorization.request.author), record.submitted_for.as_deref())
}

/// Keeps requests for the next batch: all of them or none; they are on disk when it answers.
#[utoipa::path(post, path = "/batches/waiting", tag = "requests", request_body = AddQuestion, responses((status = 201, description = "Done", body = WaitingList)))]
pub async fn add_to_batch(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<(StatusCode, Extension<About>, Json<WaitingList>), Problem> {
    let AddQuestion { requests, signed }: AddQuestion = read_body("requests", &body)?;
    let count = requests.len() + signed.len();
    let may_submit = caller.has(Scope::Submit);
    if !may_submit && (signed.is_empty() || !requests.is_empty()) {
        return Err(needs_submit(&caller));
    }
    if count == 0 || count > REQUESTS_MAX {
        return Err(Problem::wrong("requests", format_args!("expected 1 to {REQUESTS_MAX}; there are {count}")));
    }
    let now = state.coordinator.clock.now().utc;
    let mut records = Vec::with_capacity(count);
    for (at, document) in requests.into_iter().enumerate() {
        let place = format!("requests[{at}].");
        let request = checked_request(document, &place)?;
        // Looked at before it is signed.
        latest_start(&state, &request, now, &place)?;
        let (authorization, permit) = admitted(&state, signed_for_operator(&state, request)?)?;
        records.push(record(&state, &caller, authorization, permit, (now, &place))?);
    }
    for (at, authorization) in signed.into_iter().enumerate() {
        let (authorization, permit) = admitted(&state, authorization)?;
        records.push(record(&state, &caller, authorization, permit, (now, &format!("signed[{at}].")))?);
    }
    if !may_submit {
        let accounts: BTreeSet<_> = records.iter().map(|record| record.account).collect();
        accounts.into_iter().try_for_each(|account| has_allowance(&state, account))?;
    }
    let ids: BTreeSet<RequestId> = records.iter().map(|record| record.id.clone()).collect();
    let author =
        caller.scope().is_none().then(|| records.first().map(|first| Caller::User(first.authorization.request.author)));
    let max = if may_submit { WAITING_MAX } else { WAITING_STRANGERS_MAX };
    state.waiting.add(records, max, now).await.map_err(|error| match error {
        AddError::Known(_) => Problem::new(StatusCode::CONFLICT, error.to_string()),
        AddError::Account { .. } | AddError::Full { .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()).with_rule("waiting")
        }
        AddError::Store(error) => disk_failed(&state, error),
    })?;
    let about = About { id: format!("{count} for a batch"), author: author.flatten() };
    let added = state.waiting.all().await.into_iter().filter(|record| ids.contains(&record.id));
    let requests = added.map(|record| WaitingView::new(&state, record)).collect();
    Ok((StatusCode::CREATED, Extension(about), Json(WaitingList { requests })))
}

fn admitted(state: &ApiState, authorization: Authorization) -> Result<(Authorization, Permit), Problem> {
    state.membership.admit(authorization).map_err(|denial| Problem::refused(&denial))
}

fn disk_failed(state: &ApiState, error: StoreError) -> Problem {
    submit_problem(state, state.coordinator.stop_node(error), None)
}

/// When a request that is added now may start at the latest, if it may wait for a batch.
fn latest_start(state: &ApiState, request: &Request, now: Time, place: &str) -> Result<Time, Problem> {
    if request.extends().is_some() {
        return Err(Problem::wrong(&format!("{place}extends"), "not in a batch"));
    }
    if request.shapes().count() > 1 || request.demand().is_of_shape() {
        return Err(Problem::wrong(&format!("{place}shapes"), "not yet supported in a batch"));
    }
    if request.budget().is_none() {
        let message = "a request that waits says what it may cost, if only 0: its user is not asked later";
        return Err(Problem::wrong(&format!("{place}budget"), message));
    }
    let reach: Span = state.requests.settings().planner.default_reach;
    let starts = request.starts(now, reach).map_err(|error| wrong_request(&error, place))?;
    Ok(starts.1)
}

fn record(
    state: &ApiState,
    caller: &Caller,
    authorization: Authorization,
    permit: Permit,
    (now, place): (Time, &str),
) -> Result<WaitingRecord, Problem> {
    let Permit { account, name, statement, .. } = permit;
    let latest = latest_start(state, &statement.request, now, place)?;
    if state.requests.get(&statement.id).is_some() {
        return Err(Problem::new(StatusCode::CONFLICT, AddError::Known(statement.id.clone()).to_string()));
    }
    Ok(WaitingRecord {
        id: statement.id.clone(),
        number: 0,
        user: name,
        account,
        submitted_for: caller.user().map(str::to_owned),
        request: statement.request.clone(),
        authorization,
        added_ms: unix_ms(),
        latest,
        postponed: 0,
        reason: None,
        end: None,
    })
}

/// Requests that wait for a batch, or have waited lately, as far as the caller may see them.
#[utoipa::path(get, path = "/batches/waiting", tag = "requests", responses((status = 200, description = "Done", body = WaitingList)))]
pub async fn list_waiting(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Json<WaitingList> {
    let seen = state.waiting.all().await.into_iter().filter(|record| sees(&caller, record));
    Json(WaitingList { requests: seen.map(|record| WaitingView::new(&state, record)).collect() })
}

/// Takes a request off the list. One that is submitted goes on.
#[utoipa::path(delete, path = "/batches/waiting/{id}", tag = "requests", params(("id" = String, Path, description = "An id, the beginning of one, or the writer's label")), responses((status = 200, description = "Done", body = WaitingView)))]
pub async fn drop_waiting(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(selector): Path,
) -> Result<(Extension<About>, Json<WaitingView>), Problem> {
    let none =
        || Problem::new(StatusCode::NOT_FOUND, format!("no request {selector:?} of yours waits for a batch here"));
    let seen: Vec<WaitingRecord> =
        state.waiting.all().await.into_iter().filter(|record| sees(&caller, record)).collect();
    let id = selected(&seen, &selector)?.ok_or_else(none)?.clone();
    let forgotten = state.waiting.forget(&id).await.map_err(|error| disk_failed(&state, error))?.ok_or_else(none)?;
    Ok((About::of(&id), Json(WaitingView::new(&state, forgotten))))
}

/// The one with this id, else the one of this label, best one that waits, else the one whose id begins so.
fn selected<'a>(seen: &'a [WaitingRecord], selector: &str) -> Result<Option<&'a RequestId>, Problem> {
    if let Some(record) = seen.iter().find(|record| record.id.as_str() == selector) {
        return Ok(Some(&record.id));
    }
    let bears = |record: &WaitingRecord| record.request.id().is_some_and(|label| label.as_str() == selector);
    let waits = |record: &WaitingRecord| bears(record) && record.end.is_none();
    let begins = |record: &WaitingRecord| record.id.as_str().starts_with(selector);
    let all = |is_it: &dyn Fn(&WaitingRecord) -> bool| seen.iter().filter(|record| is_it(record)).collect::<Vec<_>>();
    let matching = [all(&waits), all(&bears), all(&begins)].into_iter().find(|some| !some.is_empty());
    match matching.unwrap_or_default().as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(&only.id)),
        _ => Err(ambiguous(format!("{selector:?} means several requests; give more of the id"))),
    }
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
    run(&state, |record| sees(&caller, record), question).await.map(Json)
}

/// Runs a batch again and again, for as long as the node is up.
pub async fn run_batches(state: Arc<ApiState>, every: Option<Duration>) {
    let Some(every) = every else { return std::future::pending().await };
    let mut every = tokio::time::interval(every);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    every.tick().await;
    loop {
        every.tick().await;
        match run(&state, |_| true, RunQuestion::default()).await {
            Ok(BatchRun { batch: Some(batch), .. }) => info!(batch.placed, batch.postponed, "a batch was run"),
            Ok(_) => {}
            Err(problem) => warn!(problem.detail, "no batch was run"),
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
}

async fn run(
    state: &Arc<ApiState>,
    is_wanted: impl Fn(&WaitingRecord) -> bool,
    question: RunQuestion,
) -> Result<BatchRun, Problem> {
    let RunQuestion { policy, order, objective } = question;
    let policy = policy.unwrap_or_else(|| state.waiting.policy.clone());
    let how = How::of(&BatchQuestion { policy, order, objective, ..BatchQuestion::default() })?;
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node runs a batch; try again in a moment");
    let _turn = state.waiting.turn().ok_or_else(busy)?;
    let failed = |error| disk_failed(state, error);
    let wanted = state.waiting.all().await.into_iter().filter(|record| record.end.is_none() && is_wanted(record));
    let now = state.coordinator.clock.now().utc;
    let (mut due, mut ids) = (Vec::new(), BTreeSet::new());
    for record in wanted {
        ids.insert(record.id.clone());
        match look_at(state, record, now) {
            Ok(one) => due.push(one),
            Err((id, end, reason)) => {
                let ended = async { (Some((end, reason)), ()) };
                state.waiting.end_with(&id, ended).await.map_err(failed)?;
            }
        }
    }
    let batch = if due.is_empty() { None } else { Some(place(state, how, due).await?) };
    let views = state.waiting.all().await.into_iter().filter(|record| ids.contains(&record.id));
    Ok(BatchRun { requests: views.map(|record| WaitingView::new(state, record)).collect(), batch })
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
    let asked = Asked { id: record.id, shapes: vec![Ok(request)], has_shapes: false };
    Ok(Due { asked, authorization, permit, submitted_for: record.submitted_for, latest: record.latest })
}

/// Plans these together and submits what has a plan; the rest goes on waiting.
async fn place(state: &Arc<ApiState>, how: How, due: Vec<Due>) -> Result<BatchLine, Problem> {
    let failed = |error| disk_failed(state, error);
    let (answer, _) = answer(state, how, due.iter().map(|one| one.asked.clone()).collect()).await?;
    let mut placed = Vec::new();
    let mut reasons = BTreeMap::new();
    for (one, line) in due.into_iter().zip(answer.lines) {
        match line.outcome {
            PlanOutcome::Allocated(plan) => placed.push((one, HandedPlan::from(plan))),
            PlanOutcome::Rejected(rejection) => {
                reasons.insert(one.asked.id, rejection.reason.detail());
            }
        }
    }
    let postpone = |record: &mut WaitingRecord| {
        record.postponed = record.postponed.saturating_add(1);
        record.reason = reasons.get(&record.id).cloned();
    };
    state.waiting.update(reasons.keys(), postpone).await.map_err(failed)?;
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
    all.await.into_iter().collect::<Result<(), StoreError>>().map_err(failed)?;
    Ok(answer.batch)
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
        Err(SubmitError::Plan(_) | SubmitError::Busy | SubmitError::Store(_)) => (None, None),
    }
}
