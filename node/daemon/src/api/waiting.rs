//! Requests that wait for a batch, stored as their users have signed them; [`super::batch_run`] plans them.
//!
//! Invariant: they are on disk when the node says that it has them, all of a call or none.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    ids::RequestId,
    request::Request,
    time::{Span, Time},
    trust::{Authorization, Permit},
};
use kolo_api::{
    batch::REQUESTS_MAX,
    waiting::{AddQuestion, WaitingList, WaitingState, WaitingView},
};
use kolo_runtime::clock::unix_ms;
use kolo_storage::{
    StoreError,
    waiting::{HowEnded, WaitingRecord},
};
use kolo_trust::Scope;

use super::{
    authority::{About, needs_submit},
    extract::{Body, Path},
    problem::Problem,
    requests::{
        ambiguous, checked_request, has_allowance, read_body, signed_for_operator, submit_problem, view, wrong_request,
    },
    scopes::Caller,
    state::ApiState,
};
use crate::entry::waiting::{AddError, WAITING_MAX, WAITING_STRANGERS_MAX};

fn waiting_list(state: &ApiState, records: impl Iterator<Item = WaitingRecord>) -> WaitingList {
    let every_s = state.batch_runs.borrow().0.map(|every| every.as_secs());
    WaitingList { requests: records.map(|record| waiting_view(state, record)).collect(), every_s }
}

pub(super) fn waiting_view(state: &ApiState, record: WaitingRecord) -> WaitingView {
    let ended = record.end.as_ref().map(|end| end.how);
    let submitted = (ended == Some(HowEnded::Submitted)).then(|| state.requests.get(&record.id)).flatten();
    let submitted = submitted.map(|handle| view(state, &handle.watch().borrow().clone()));
    let reason = submitted.as_ref().and_then(|view| view.reason.as_ref()).map(|reason| reason.detail.clone());
    let scale = submitted.as_ref().and_then(|view| view.reservation.as_ref()?.scale);
    WaitingView {
        scale,
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

pub(super) fn sees(caller: &Caller, record: &WaitingRecord) -> bool {
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
        let mut of_account = BTreeMap::new();
        records.iter().for_each(|record| *of_account.entry(record.account).or_default() += 1);
        of_account.into_iter().try_for_each(|(account, count)| has_allowance(&state, account, count))?;
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
    let list = waiting_list(&state, added);
    Ok((StatusCode::CREATED, Extension(about), Json(list)))
}

fn admitted(state: &ApiState, authorization: Authorization) -> Result<(Authorization, Permit), Problem> {
    state.membership.admit(authorization).map_err(|denial| Problem::refused(&denial))
}

pub(super) fn disk_failed(state: &ApiState, error: StoreError) -> Problem {
    submit_problem(state, state.coordinator.stop_node(error), None)
}

/// When a request that is added now may start at the latest, if it may wait for a batch.
fn latest_start(state: &ApiState, request: &Request, now: Time, place: &str) -> Result<Time, Problem> {
    if request.extends().is_some() {
        return Err(Problem::wrong(&format!("{place}extends"), "not in a batch"));
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
    Json(waiting_list(&state, seen))
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
    Ok((About::of(&id), Json(waiting_view(&state, forgotten))))
}

/// The one with this id, else the one of this label, best one that waits, else the one whose id begins so.
fn selected<'a>(seen: &'a [WaitingRecord], selector: &str) -> Result<Option<&'a RequestId>, Problem> {
    if let Some(record) = seen.iter().find(|record| record.id.as_str() == selector) {
        return Ok(Some(&record.id));
    }
    let bears = |record: &WaitingRecord| record.request.id().is_some_and(|label| label.as_str() == selector);
    let waits = |record: &WaitingRecord| bears(record) && record.end.is_none();
    let begins = |record: &WaitingRecord| record.id.begins_with(selector);
    let all = |is_it: &dyn Fn(&WaitingRecord) -> bool| seen.iter().filter(|record| is_it(record)).collect::<Vec<_>>();
    let matching = [all(&waits), all(&bears), all(&begins)].into_iter().find(|some| !some.is_empty());
    match matching.unwrap_or_default().as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(&only.id)),
        _ => Err(ambiguous(format!("{selector:?} means several requests; give more of the id"))),
    }
}
