//! Signing in with a browser: the token, or the code of a one-time link, is exchanged for a cookie that scripts cannot
//! read.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    extract::Body,
    problem::Problem,
    requests::read_body,
    sessions::{LINK_LIFE, SESSION_LIFE},
    state::{ApiState, Via},
};
use crate::trust::TrustFileError;

/// Answer of the calls for a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SessionState {
    /// Whether the browser has a session.
    pub signed_in: bool,
}

/// What opens a session: one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Opener {
    #[schema(nullable = false)]
    token: Option<String>,
    /// The code of a one-time link.
    #[schema(nullable = false)]
    link: Option<String>,
}

/// A link for a browser.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OneTimeLink {
    /// To be opened once.
    pub url: String,
    pub expires_in_s: u64,
}

/// Whether the browser has a session.
#[utoipa::path(get, path = "/session", tag = "session", responses((status = 200, description = "Done", body = SessionState)))]
pub async fn show_session(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    headers: HeaderMap,
) -> Json<SessionState> {
    Json(SessionState { signed_in: state.is_known(&headers, &via) })
}

/// Opens a session with the token or the code of a one-time link.
#[utoipa::path(post, path = "/session", tag = "session", request_body = Opener, responses((status = 201, description = "Done", body = SessionState)))]
pub async fn open_session(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let opener: Opener = read_body("session", &body)?;
    let (is_good, wrong) = match (opener.token, opener.link) {
        (Some(token), None) => (state.token.is(&token), "this is not the token of this node"),
        (None, Some(code)) => {
            (state.sessions.use_link(&code), "the link was used already, or is too old; make another with kolo open")
        }
        _ => return Err(Problem::bad_request("session: expected either token or link").with_key("token")),
    };
    if !is_good {
        return Err(Problem::new(StatusCode::UNAUTHORIZED, wrong));
    }
    let secret = state.sessions.open().map_err(no_random)?;
    Ok(with_cookie(&via, StatusCode::CREATED, secret.as_str(), SESSION_LIFE))
}

/// Ends the session.
#[utoipa::path(delete, path = "/session", tag = "session", responses((status = 200, description = "Done", body = SessionState)))]
pub async fn close_session(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    headers: HeaderMap,
) -> Response {
    if let Some(shown) = via.session_cookie(&headers) {
        state.sessions.close(shown);
    }
    with_cookie(&via, StatusCode::OK, "", Duration::ZERO)
}

/// Makes a link that signs a browser in, once.
#[utoipa::path(post, path = "/links", tag = "session", responses((status = 201, description = "Done", body = OneTimeLink)))]
pub async fn make_link(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
) -> Result<(StatusCode, Json<OneTimeLink>), Problem> {
    let code = state.sessions.make_link().map_err(no_random)?;
    // What follows the # never leaves the browser, so the code is in no log.
    let url = format!("{}://{}/#link={}", via.scheme(), via.address, code.as_str());
    Ok((StatusCode::CREATED, Json(OneTimeLink { url, expires_in_s: LINK_LIFE.as_secs() })))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_random(error: TrustFileError) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// An answer that sets the cookie of a session.
fn with_cookie(via: &Via, status: StatusCode, value: &str, life: Duration) -> Response {
    let name = via.cookie_name();
    let secure = if via.is_tls { "; Secure" } else { "" };
    let life = life.as_secs();
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}");
    let session = SessionState { signed_in: !value.is_empty() };
    (status, [(header::SET_COOKIE, cookie)], Json(session)).into_response()
}
