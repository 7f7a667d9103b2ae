//! Requests that are reserved as a whole or not at all.
//!
//! Invariant: all of a call are on disk, tied together, when it answers, or none is taken on.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, http::StatusCode};
use kolo_api::together::{TiedRequests, TogetherQuestion};
use kolo_trust::Scope;
use serde_json::Value;

use super::{
    authority::{About, needs_submit},
    extract::Body,
    problem::Problem,
    requests::{Submitted, authorized, read_body, submit_problem, view},
    scopes::Caller,
    state::ApiState,
};
use crate::entry::together::{Part, TOGETHER_MAX};

/// Reserves all of these as planned, or none; answers once they are on disk.
#[utoipa::path(post, path = "/batches/submit", tag = "requests", request_body = TogetherQuestion, responses((status = 201, description = "Done", body = TiedRequests)))]
pub async fn submit_together(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Body(body): Body,
) -> Result<(StatusCode, Extension<About>, Json<TiedRequests>), Problem> {
    let TogetherQuestion { requests } = read_body("batch", &body)?;
    let count = requests.len();
    if count == 0 && !caller.has(Scope::Submit) {
        return Err(needs_submit(&caller));
    }
    if count == 0 || count > TOGETHER_MAX {
        let message = format!("1 to {TOGETHER_MAX} requests are reserved together; there are {count}");
        return Err(Problem::wrong("requests", message));
    }
    let part = |(at, request): (usize, &Value)| part_of(&state, &caller, request).map_err(|problem| problem.of(at));
    let parts: Vec<Part> = requests.iter().enumerate().map(part).collect::<Result<_, _>>()?;
    let author = parts.first().filter(|_| caller.scope().is_none()).map(|first| Caller::User(first.permit.user));
    let submitted = state.requests.submit_together(&state.coordinator, parts).await;
    let handles = submitted.map_err(|(at, error)| {
        let problem = submit_problem(&state, error, None);
        if let Some(at) = at { problem.of(at) } else { problem }
    })?;
    let views = handles.iter().map(|handle| view(&state, &handle.watch().borrow().clone())).collect();
    let about = About { id: format!("{count} together"), author };
    Ok((StatusCode::CREATED, Extension(about), Json(TiedRequests { requests: views })))
}

fn part_of(state: &ApiState, caller: &Caller, request: &Value) -> Result<Part, Problem> {
    let Submitted { authorization, permit, plan, submitted_for } =
        authorized(state, caller, request.to_string().as_bytes())?;
    if permit.statement.request.extends().is_some() {
        return Err(Problem::wrong("extends", "not in a batch"));
    }
    let plan = plan.ok_or_else(|| Problem::wrong("plan", "what is reserved together has its plan"))?;
    if plan.replans {
        return Err(Problem::wrong("replans", "what is reserved together is reserved as planned, or not at all"));
    }
    Ok(Part { authorization, permit, plan, submitted_for })
}
