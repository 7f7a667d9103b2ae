//! Requests over the API: submit, list, look at, wait for, cancel, explain.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::StatusCode,
};
use broker::{
    ids::RequestId,
    request::{Request, RequestError},
};
use serde::Deserialize;

use super::{
    ApiState,
    explanation::{Explanation, explain},
    problem::Problem,
    request_view::{RequestList, RequestView},
};
use crate::daemon::{
    clock::unix_ms,
    requests::{Carried, Snapshot, SubmitError},
};

/// Longest wait of one long poll.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Requests listed unless asked otherwise.
const LIST_DEFAULT: usize = 1_000;
/// How long a cancellation waits for the sites' acknowledgements before it answers "cancelling".
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Reads a request from a body; errors name the key.
pub fn read_request(body: &[u8]) -> Result<Request, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let request: Request = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let problem = Problem::bad_request(format!("request: {}", error.inner()));
        if path == "." { problem } else { problem.with_key(path) }
    })?;
    deserializer.end().map_err(|error| Problem::bad_request(format!("request: {error}")))?;
    Ok(request)
}

/// `POST /v1/requests`
pub async fn submit(
    State(state): State<Arc<ApiState>>,
    body: Bytes,
) -> Result<(StatusCode, Json<RequestView>), Problem> {
    let request = read_request(&body)?;
    let user = state.user.clone();
    let carried = state.requests.submit(&state.carrier, request, user).await.map_err(|error| match error {
        SubmitError::Request(RequestError::WindowEndsBeforeStart { latest, .. }) => {
            Problem::bad_request(format!("request: latest ({}) is in the past", latest.0)).with_key("latest")
        }
        SubmitError::Request(error) => Problem::bad_request(format!("request: {error}")),
        SubmitError::Busy => Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        SubmitError::Store(_) | SubmitError::Random(_) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    })?;
    let snapshot = carried.watch().borrow().clone();
    Ok((StatusCode::CREATED, Json(view(&state, &snapshot))))
}

fn view(state: &ApiState, snapshot: &Snapshot) -> RequestView {
    RequestView::new(snapshot, unix_ms(), |site| state.site_name(site))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    limit: Option<usize>,
}

/// `GET /v1/requests`
pub async fn list(State(state): State<Arc<ApiState>>, Query(query): Query<ListQuery>) -> Json<RequestList> {
    let snapshots = state.requests.snapshots();
    let limit = query.limit.unwrap_or(LIST_DEFAULT);
    Json(RequestList { requests: snapshots.iter().take(limit).map(|snapshot| view(&state, snapshot)).collect() })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    wait_ms: Option<u64>,
    revision: Option<u64>,
    #[serde(default)]
    until: Until,
}

/// What a wait is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Until {
    /// A later revision than the one given.
    #[default]
    Change,
    /// The request stands, or is over.
    Settled,
}

/// `GET /v1/requests/{id}`
pub async fn show(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<RequestView>, Problem> {
    let carried = select(&state, &selector)?;
    let mut snapshots = carried.watch();
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0)).min(WAIT_MAX);
    let seen = query.revision.unwrap_or(0);
    // A time-out answers with what there is; the caller sees the revision.
    let is_awaited = |snapshot: &Snapshot| match query.until {
        Until::Change => snapshot.revision > seen,
        Until::Settled => !snapshot.stage.is_under_way(),
    };
    let _ = tokio::time::timeout(wait, snapshots.wait_for(is_awaited)).await;
    let snapshot = snapshots.borrow().clone();
    Ok(Json(view(&state, &snapshot)))
}

/// `GET /v1/requests/{id}/explain`
pub async fn explanation(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path<String>,
) -> Result<Json<Explanation>, Problem> {
    let snapshot = select(&state, &selector)?.watch().borrow().clone();
    Ok(Json(explain(&snapshot, unix_ms(), |site| state.site_name(site))))
}

/// `DELETE /v1/requests/{id}`
pub async fn cancel(
    State(state): State<Arc<ApiState>>,
    Path(selector): Path<String>,
) -> Result<Json<RequestView>, Problem> {
    let carried = select(&state, &selector)?;
    let mut snapshots = carried.watch();
    let is_over = snapshots.borrow().stage.is_closed();
    if !is_over {
        // A full or closed channel means that a cancellation is under way, or that the request has just ended.
        let _ = carried.cancel.try_send(());
        let _ = tokio::time::timeout(CANCEL_WAIT, snapshots.wait_for(|snapshot| snapshot.stage.is_released())).await;
    }
    let snapshot = snapshots.borrow().clone();
    Ok(Json(view(&state, &snapshot)))
}

/// The request with this id, id prefix, or label (the newest with that label).
fn select(state: &ApiState, selector: &str) -> Result<Arc<Carried>, Problem> {
    let not_found =
        || Problem::new(StatusCode::NOT_FOUND, format!("no request {selector:?} was submitted through this node"));
    if let Some(carried) = RequestId::new(selector).ok().and_then(|id| state.requests.get(&id)) {
        return Ok(carried);
    }
    let snapshots = state.requests.snapshots();
    let labelled =
        snapshots.iter().find(|snapshot| snapshot.record.request.id().is_some_and(|label| label.as_str() == selector));
    if let Some(snapshot) = labelled {
        return state.requests.get(&snapshot.record.id).ok_or_else(not_found);
    }
    let mut matching = snapshots.iter().filter(|snapshot| snapshot.record.id.as_str().starts_with(selector));
    match (matching.next(), matching.next()) {
        (Some(only), None) => state.requests.get(&only.record.id).ok_or_else(not_found),
        (Some(_), Some(_)) => {
            let detail = format!("{selector:?} is the beginning of several requests; give more of the id");
            Err(Problem::new(StatusCode::CONFLICT, detail))
        }
        (None, _) => Err(not_found()),
    }
}
