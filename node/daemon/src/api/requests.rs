//! Requests over the API: submit, list, look at, wait for, cancel, explain.

use std::{
    collections::BTreeMap,
    path::Path as FilePath,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    document::{Misfit, read_object},
    ids::RequestId,
    negotiation::{HandedPlan, RequestRecord},
    request::{Request, RequestDocument, RequestError},
    trust::{Authorization, Permit, PublicKey},
};
use futures::future::join_all;
use jiff::{Zoned, tz::TimeZone};
use kolo_api::{
    explanation::Explanation,
    request_view::{LAST, ReadRequest, RequestList, RequestView},
    schema,
};
use kolo_runtime::clock::unix_ms;
use kolo_text::{
    document::{DocumentError, Syntax},
    request_file::{self, Writer},
};
use kolo_trust::{Scope, TrustFileError};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};

use super::{
    authority::{About, needs_submit},
    explanation::explain,
    extract::{Body, Path, Query, in_range},
    problem::Problem,
    scopes::Caller,
    shown::{Family, request_view},
    state::ApiState,
};
use crate::{
    entry::{
        request::{Command, MAX_ACTIVE, RequestHandle, ShownStage, Snapshot, SubmitError},
        requests::{HandedIn, is_left_to_another},
    },
    net::membership::SignError,
};

/// Longest wait of one long poll.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait that is accepted; it is cut to [`WAIT_MAX`].
const WAIT_MS_ACCEPTED: u64 = 3_600_000;
/// Requests listed unless asked otherwise.
const LIST_DEFAULT: usize = 1_000;
/// Most requests listed at once.
const LIST_MAX: usize = 10_000;
/// How long a call to repair waits for what comes of it.
const REPAIR_WAIT: Duration = Duration::from_secs(15);
/// How long a cancellation waits for the sites' acknowledgements before it answers "cancelling".
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Reads a request from a body; errors name the key.
pub fn read_request(body: &[u8]) -> Result<Request, Problem> {
    checked_request(read_body("request", body)?, "")
}

/// Checks what is written down; `place` stands before the key of what is wrong.
///
/// # Errors
/// The problem with its key.
pub fn checked_request(document: RequestDocument, place: &str) -> Result<Request, Problem> {
    Request::try_from(document).map_err(|error| wrong_request(&error, place))
}

/// What is wrong with a request; `place` stands before its key.
pub fn wrong_request(error: &RequestError, place: &str) -> Problem {
    Problem::bad_request(format!("request: {error}")).with_key(format!("{place}{}", error.key()))
}

/// Reads the object that a body holds, `what` it is; errors name the key.
pub fn read_body<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, Problem> {
    read_object(body).map_err(|Misfit { key, message, .. }| {
        let problem = Problem::bad_request(format!("{what}: {message}"));
        if key.is_empty() { problem } else { problem.with_key(key) }
    })
}

/// A request that its user has signed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignedSubmission {
    authorization: Authorization,
    plan: Option<HandedPlan>,
    #[serde(default)]
    replans: bool,
}

/// A request with the plan to reserve.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedSubmission {
    request: RequestDocument,
    plan: HandedPlan,
    #[serde(default)]
    replans: bool,
}

/// Reads a request that its user has signed.
pub fn read_signed(body: &[u8]) -> Result<Authorization, Problem> {
    let SignedSubmission { authorization, plan, .. } = read_body("signed request", body)?;
    match plan {
        None => Ok(authorization),
        Some(_) => Err(Problem::wrong("plan", "what is reserved already has its plan")),
    }
}

/// A submission that was checked.
pub(super) struct Submitted {
    pub authorization: Authorization,
    pub permit: Permit,
    pub plan: Option<HandedIn>,
    /// For whom the node has signed it, or who has handed it over.
    pub submitted_for: Option<String>,
}

/// A submission as it arrives: signed by its user, and then nobody else need vouch for it; or plain, and then the node signs it for
/// its operator, on behalf of the user whose token is shown.
pub(super) fn authorized(state: &ApiState, caller: &Caller, body: &[u8]) -> Result<Submitted, Problem> {
    let keys = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body).unwrap_or_default();
    let may_submit = caller.has(Scope::Submit);
    let is_signed = keys.contains_key("authorization");
    if !is_signed && !may_submit {
        return Err(needs_submit(caller));
    }
    let mut submitted_for = caller.user().map(str::to_owned);
    let (authorization, plan) = if is_signed {
        let SignedSubmission { authorization, plan, replans } = read_body("signed request", body)?;
        if replans && plan.is_none() {
            return Err(Problem::wrong("replans", "there is no plan to begin with"));
        }
        (authorization, plan.map(|plan| HandedIn { plan, replans, latest: None }))
    } else {
        let (plain, plan) = if keys.contains_key("plan") {
            let PlannedSubmission { request, plan, replans } = read_body("request with a plan", body)?;
            (checked_request(request, "request.")?, Some(HandedIn { plan, replans, latest: None }))
        } else {
            (read_request(body)?, None)
        };
        // What the operator adds to a user's reservation is that user's.
        let base = || state.requests.get(plain.extends()?)?.watch().borrow().record.submitted_for.clone();
        submitted_for = submitted_for.or_else(base);
        (signed_for_operator(state, plain)?, plan)
    };
    let (authorization, permit) = state.membership.admit(authorization).map_err(|denial| Problem::refused(&denial))?;
    if !may_submit {
        has_allowance(state, permit.account, 1)?;
    }
    Ok(Submitted { authorization, permit, plan, submitted_for })
}

/// What the node's operator asks, signed for it.
pub fn signed_for_operator(state: &ApiState, plain: Request) -> Result<Authorization, Problem> {
    state.membership.sign_for_operator(plain).map_err(|error| match error {
        SignError::Denied(denial) => Problem::refused(&denial),
        SignError::File(TrustFileError::Trust(error)) => Problem::bad_request(format!("request: {error}")),
        SignError::File(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })
}

/// Whether somebody without a token may submit so many more requests: at a bounded rate, and never the last ones that this node bears.
pub fn has_allowance(state: &ApiState, account: PublicKey, count: u64) -> Result<(), Problem> {
    if !state.strangers.rates.submit(account, count, Instant::now()) {
        let detail = "too many requests of this user without a token; try again in a few seconds";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).with_rule("rate"));
    }
    if state.requests.active() >= MAX_ACTIVE / 2 {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, SubmitError::Busy.to_string()));
    }
    Ok(())
}

/// Takes a request, plain or signed by its user, alone or with the plan to reserve; answers once it is on disk.
#[utoipa::path(post, path = "/requests", tag = "requests", request_body = schema::Submission, responses((status = 201, description = "Done", body = RequestView)))]
pub async fn submit_request(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<(StatusCode, Extension<About>, Json<RequestView>), Problem> {
    let Submitted { authorization, permit, plan, submitted_for } = authorized(&state, &caller, &body)?;
    if permit.statement.request.id().is_some_and(|label| label.as_str() == LAST) {
        return Err(Problem::wrong("id", format_args!("{LAST:?} means the newest request; call it something else")));
    }
    let author = caller.scope().is_none().then_some(Caller::User(permit.user));
    let about = About { id: permit.statement.id.to_string(), author };
    let text = authorization.request.text.clone();
    let submitted = state.requests.submit(&state.coordinator, authorization, permit, plan, submitted_for).await;
    let handle = submitted.map_err(|error| submit_problem(&state, error, Some(&text)))?;
    let snapshot = handle.watch().borrow().clone();
    Ok((StatusCode::CREATED, Extension(about), Json(view(&state, &snapshot))))
}

/// Why a request was not taken on. `text` is what its user has signed: whoever sends the very same request again is shown
/// what became of it; nobody else is.
pub fn submit_problem(state: &ApiState, error: SubmitError, text: Option<&str>) -> Problem {
    match error {
        SubmitError::Known { ref existing, .. } => {
            let is_same = |snapshot: &&Snapshot| {
                let known = snapshot.record.authorization.as_ref();
                known.is_some_and(|known| Some(known.request.text.as_str()) == text)
            };
            let existing = existing.as_deref().filter(is_same).map(|snapshot| view(state, snapshot));
            Problem::new(StatusCode::CONFLICT, error.to_string()).with_existing(existing)
        }
        SubmitError::Request(error) => wrong_request(&error, ""),
        SubmitError::Plan(misfit) => Problem::bad_request(format!("plan: {misfit}")).with_key(misfit.key),
        SubmitError::Busy => Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        SubmitError::NoRoom => Problem::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
        SubmitError::Store(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub fn view(state: &ApiState, snapshot: &Snapshot) -> RequestView {
    request_view(&family(state, snapshot), unix_ms(), |site| state.site_words(site))
}

pub fn family(state: &ApiState, snapshot: &Snapshot) -> Family {
    let record = &snapshot.record;
    let parts = state.requests.extensions_of(&record.id);
    let parts = parts.iter().map(|part| part.watch().borrow().clone()).collect();
    Family { snapshot: snapshot.clone(), parts, extends: state.requests.base_of(record) }
}

/// Which part of the list is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// How many at most.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Goes on after the answer that gave this as `next`.
    #[param(pattern = r"^[0-9]{1,18} [^\x00-\x1f\x7f-\x9f]{1,128}$")]
    after: Option<String>,
}

/// Requests of this node that the caller may see, newest first.
#[utoipa::path(get, path = "/requests", tag = "requests", params(ListQuery), responses((status = 200, description = "Done", body = RequestList)))]
pub async fn list_requests(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<ListQuery>,
) -> Result<Json<RequestList>, Problem> {
    let limit = in_range("limit", query.limit.unwrap_or(LIST_DEFAULT), 1..=LIST_MAX)?;
    let unknown = || Problem::wrong("after", "expected what an answer has given as next");
    let after = query.after.as_deref().map(|text| read_cursor(text).ok_or_else(unknown)).transpose()?;
    let (snapshots, has_more) = state.requests.page(after, limit, |record| caller.sees(record));
    let last = snapshots.last().filter(|_| has_more);
    let next = last.map(|last| format!("{} {}", last.record.submitted_ms, last.record.id));
    Ok(Json(RequestList { requests: snapshots.iter().map(|snapshot| view(&state, snapshot)).collect(), next }))
}

fn read_cursor(text: &str) -> Option<(u64, RequestId)> {
    let (submitted_ms, id) = text.split_once(' ')?;
    Some((submitted_ms.parse().ok()?, RequestId::new(id).ok()?))
}

/// A request as people write it ("2h30m", "40GiB") in the form that programs use, checked by the
/// code that reads it on the command line: a bare number whose unit would be a guess is refused. Nothing else happens.
#[utoipa::path(post, path = "/requests/read", tag = "requests", request_body = serde_json::Value, responses((status = 200, description = "Done", body = ReadRequest)))]
pub async fn read_written_request(Body(body): Body) -> Result<Json<ReadRequest>, Problem> {
    let text = std::str::from_utf8(&body).map_err(|_| Problem::bad_request("request: expected text in UTF-8"))?;
    let now = Zoned::now().with_time_zone(TimeZone::UTC);
    let draft =
        request_file::parse(FilePath::new("request"), text, Syntax::Json, Writer::Person, &now).map_err(|error| {
            match error {
                DocumentError::Content { key, message, .. } if !key.is_empty() => Problem::wrong(&key, message),
                other => Problem::bad_request(other.to_string()),
            }
        })?;
    let document = request_file::document(draft).map_err(|misfit| Problem::wrong(&misfit.key, misfit.message))?;
    let request = checked_request(document, "")?;
    Ok(Json(ReadRequest { request }))
}

/// Until when the answer may wait.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// How long the answer may be waited for; it comes after a minute at the latest.
    #[param(maximum = 3_600_000)]
    wait_ms: Option<u64>,
    /// The last revision seen.
    #[param(minimum = 0)]
    revision: Option<i64>,
    /// What the wait is for.
    #[serde(default)]
    until: Until,
}

/// What a wait is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// A later revision than the one given.
    #[default]
    Change,
    /// The request stands, or is over.
    Settled,
}

/// One request; waits for a change if asked to.
#[utoipa::path(get, path = "/requests/{id}", tag = "requests", params(("id" = String, Path, description = "An id, the beginning of one, or the writer's label"), WaitQuery), responses((status = 200, description = "Done", body = RequestView)))]
pub async fn show_request(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(selector): Path,
    Query(query): Query<WaitQuery>,
) -> Result<Json<RequestView>, Problem> {
    let handle = select(&state, &caller, &selector)?;
    let mut snapshots = handle.watch();
    let wait_ms = in_range("wait_ms", query.wait_ms.unwrap_or(0), 0..=WAIT_MS_ACCEPTED)?;
    let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
    let seen = in_range("revision", query.revision.unwrap_or(0), 0..=i64::MAX)?.unsigned_abs();
    // A time-out answers with what there is; the caller sees the revision.
    let is_awaited = |snapshot: &Snapshot| match query.until {
        Until::Change => snapshot.revision > seen,
        Until::Settled => !snapshot.stage.is_under_way(),
    };
    tokio::select! {
        _ = tokio::time::timeout(wait, snapshots.wait_for(is_awaited)) => {}
        () = state.changes.stopped() => {}
    }
    let snapshot = snapshots.borrow().clone();
    Ok(Json(view(&state, &snapshot)))
}

/// What each round found, and what each asked site answered.
#[utoipa::path(get, path = "/requests/{id}/explain", tag = "requests", params(("id" = String, Path, description = "An id, the beginning of one, or the writer's label")), responses((status = 200, description = "Done", body = Explanation)))]
pub async fn explain_request(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(selector): Path,
) -> Result<Json<Explanation>, Problem> {
    let snapshot = select(&state, &caller, &selector)?.watch().borrow().clone();
    Ok(Json(explain(&family(&state, &snapshot), unix_ms(), |site| state.site_name(site))))
}

/// Why a request is taken back.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct CancelQuery {
    /// The command that it was for has ended with this code: the request is `done`, and not `cancelled`.
    #[param(maximum = 255)]
    exit_code: Option<u8>,
}

/// Takes a request back, with what lengthens its reservation.
#[utoipa::path(delete, path = "/requests/{id}", tag = "requests", params(("id" = String, Path, description = "An id, the beginning of one, or the writer's label"), CancelQuery), responses((status = 200, description = "Done", body = RequestView)))]
pub async fn cancel_request(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(selector): Path,
    Query(query): Query<CancelQuery>,
) -> Result<(Extension<About>, Json<RequestView>), Problem> {
    let handle = select_live(&state, &caller, &selector)?;
    let snapshots = handle.watch();
    let id = snapshots.borrow().record.id.clone();
    // The reservation comes last: after a crash in the middle it is still there to be taken back again.
    let mut all = state.requests.extensions_of(&id);
    all.push(handle);
    let _ = tokio::time::timeout(CANCEL_WAIT, join_all(all.iter().map(|one| take_back(one, query.exit_code)))).await;
    let snapshot = snapshots.borrow().clone();
    Ok((About::of(&id), Json(view(&state, &snapshot))))
}

/// Takes one request back, and waits until all sites have acknowledged it.
async fn take_back(handle: &RequestHandle, exit_code: Option<u8>) {
    let mut snapshots = handle.watch();
    let is_over = snapshots.borrow().stage.is_closed();
    if !is_over {
        // A full or closed channel means that a cancellation is under way, or that the request has just ended.
        let _ = handle.commands.try_send(Command::Cancel(exit_code));
        tokio::select! {
            // An error says that the node is stopping.
            _ = snapshots.wait_for(|snapshot| snapshot.stage.is_released()) => {}
            // Nobody drives what has come to its end: there is nothing to take back.
            () = handle.commands.closed() => {}
        }
    }
}

/// Asks the sites of a reservation whether they still keep it, and looks for others in
/// the place of those that do not.
#[utoipa::path(post, path = "/requests/{id}/repair", tag = "requests", params(("id" = String, Path, description = "An id, the beginning of one, or the writer's label")), responses((status = 200, description = "Done", body = RequestView)))]
pub async fn repair_request(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(selector): Path,
) -> Result<(Extension<About>, Json<RequestView>), Problem> {
    let handle = select(&state, &caller, &selector)?;
    let mut snapshots = handle.watch();
    let before = snapshots.borrow().clone();
    if is_left_to_another(&before) {
        let detail = format!("another node coordinates request {} now", before.record.id);
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    if before.stage.is_closed() || before.record.reservation.is_none() && before.stage.reserved_plan().is_none() {
        let detail = format!("request {} has no reservation that could be repaired", before.record.id);
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let (done, is_done) = oneshot::channel();
    let repair = async {
        // An error of any of these says that the request has ended, or that the node is stopping.
        let _ = handle.commands.send(Command::Check(Some(done))).await;
        let _ = is_done.await;
        let _ = snapshots.wait_for(|snapshot| !matches!(snapshot.stage, ShownStage::Confirming(_))).await;
    };
    // Whatever has come of it by then is shown; a repair goes on behind it.
    let _ = tokio::time::timeout(REPAIR_WAIT, repair).await;
    let snapshot = snapshots.borrow().clone();
    Ok((About::of(&snapshot.record.id), Json(view(&state, &snapshot))))
}

/// What was named may be several things.
pub fn ambiguous(detail: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, detail).with_rule("ambiguous")
}

/// As [`select`], but a label means the one request of that label that is not over; nothing when there are several.
fn select_live(state: &ApiState, caller: &Caller, selector: &str) -> Result<Arc<RequestHandle>, Problem> {
    let selected = select(state, caller, selector)?;
    if selected.watch().borrow().record.id.as_str() == selector {
        return Ok(selected);
    }
    let mut live = state.requests.live_labelled(selector, |record| caller.sees(record));
    if live.len() > 1 {
        let ids: Vec<String> = live.iter().map(|one| one.watch().borrow().record.id.to_string()).collect();
        return Err(ambiguous(format!("{selector:?} is the label of several requests: {}", ids.join(", "))));
    }
    Ok(live.pop().unwrap_or(selected))
}

/// The request with this id, id prefix, or label (the newest with that label) among those that `caller` may see.
pub fn select(state: &ApiState, caller: &Caller, selector: &str) -> Result<Arc<RequestHandle>, Problem> {
    let is_seen = |record: &RequestRecord| caller.sees(record);
    let by_id = RequestId::new(selector).ok().and_then(|id| state.requests.get(&id));
    if let Some(handle) = by_id.filter(|handle| is_seen(&handle.watch().borrow().record)) {
        return Ok(handle);
    }
    if let Some(handle) = state.requests.labelled(selector, is_seen) {
        return Ok(handle);
    }
    let mut matching = state.requests.beginning_with(selector, is_seen).into_iter();
    match (matching.next(), matching.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            Err(ambiguous(format!("{selector:?} is the beginning of several requests; give more of the id")))
        }
        (None, _) => {
            let yours = if caller.is_limited() { " of yours" } else { "" };
            let detail = format!("no request {selector:?}{yours} was submitted through this node");
            Err(Problem::new(StatusCode::NOT_FOUND, detail))
        }
    }
}
