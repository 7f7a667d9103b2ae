//! Looking up and taking over a reservation whose entry point is gone.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{ids::RequestId, protocol::Grant, time::Window};
use kolo_api::{
    request_view::RequestView,
    schema,
    takeover::{FoundHost, ReservationLookup},
};
use kolo_trust::Scope;

use super::{
    authority::About,
    extract::{Body, Path},
    problem::Problem,
    requests::{read_signed, submit_problem, view},
    scopes::Caller,
    state::ApiState,
};
use crate::entry::{
    request::Command,
    takeover::{LookUp, TakeOverFailure, look_up},
};

fn request_id(text: &str) -> Result<RequestId, Problem> {
    RequestId::new(text).map_err(|error| Problem::new(StatusCode::NOT_FOUND, format!("id: {error}")))
}

/// What the sites have reserved for a request of any entry point.
#[utoipa::path(get, path = "/reservations/{id}", tag = "requests", params(("id" = String, Path, description = "The id of a request")), responses((status = 200, description = "Done", body = ReservationLookup)))]
pub async fn look_up_reservation(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path,
) -> Result<Json<ReservationLookup>, Problem> {
    let id = request_id(&id)?;
    let user = if let Caller::User(key) = &caller { Some(*key) } else { None };
    let mut looked = look_up(&state.coordinator, &id, user).await;
    let author = looked.signed.as_ref().map(|(key, _)| Caller::User(*key));
    if caller.is_limited() && author != Some(caller) {
        looked.answers.parts.clear();
        looked.signed = None;
    }
    let term = state.requests.highest_term(&looked);
    let LookUp { answers, signed, asked, silent } = looked;
    let hosts = answers.parts.iter().flat_map(|(site, part)| {
        let found = |grant: &Grant| {
            let (host, Window { start, end }) = (grant.host().clone(), grant.window);
            FoundHost { site: site.clone(), host, start, end }
        };
        part.grants.iter().map(found).collect::<Vec<_>>()
    });
    let hosts = hosts.collect();
    let (user_key, statement) = signed.map(|(key, statement)| (key.to_string(), statement)).unzip();
    Ok(Json(ReservationLookup {
        id,
        entry_point: statement.as_ref().map(|statement| statement.entry_point.clone()),
        user_key,
        term,
        request: statement.map(|statement| statement.request),
        hosts,
        sites_asked: asked,
        sites_silent: silent,
    }))
}

/// Coordinates a reservation for its user, who has signed the request again, for
/// this node.
#[utoipa::path(post, path = "/reservations/{id}/takeover", tag = "requests", params(("id" = String, Path, description = "The id of a request")), request_body = schema::Signed, responses((status = 201, description = "Done", body = RequestView)))]
pub async fn take_over_reservation(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path,
    Body(body): Body,
) -> Result<(StatusCode, Extension<About>, Json<RequestView>), Problem> {
    let id = request_id(&id)?;
    let authorization = read_signed(&body)?;
    let (authorization, permit) = state.membership.admit(authorization).map_err(|denial| Problem::refused(&denial))?;
    if permit.statement.id != id {
        return Err(Problem::bad_request(format!("the signed request is {}, not {id}", permit.statement.id)));
    }
    if !caller.has(Scope::Operator) && caller != Caller::User(permit.user) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "only the user of a request may have it taken over"));
    }
    let about = About::of(&id);
    let taken = state.requests.take_over(&state.coordinator, authorization, permit).await;
    let handle = taken.map_err(|failure| match failure {
        TakeOverFailure::Submit(error) => submit_problem(&state, error, None),
        TakeOverFailure::Parts(error) => Problem::new(StatusCode::NOT_FOUND, format!("request {id}: {error}")),
        TakeOverFailure::TermTooLow(_) => {
            Problem::new(StatusCode::PRECONDITION_FAILED, format!("request {id}: {failure}"))
        }
        TakeOverFailure::Other => Problem::new(StatusCode::FORBIDDEN, format!("request {id}: {failure}")),
    })?;
    // Its sites learn its coordinator with the first round of questions.
    let _ = handle.commands.try_send(Command::Check(None));
    let snapshot = handle.watch().borrow().clone();
    Ok((StatusCode::CREATED, about, Json(view(&state, &snapshot))))
}
