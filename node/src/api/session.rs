//! Signing in with a browser: the token, or the code of a one-time link, is exchanged for a cookie that scripts cannot
//! read.
//!
//! Invariant: a code opens one session, within [`LINK_LIFE`]; what is handed out is random and never written down, so a
//! restart of the node ends all sessions. At most [`SESSIONS_MAX`] sessions and [`LINKS_MAX`] links exist; the oldest go.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiState, Via, extract::Body, problem::Problem, requests::read_body, schema};
use crate::trust::Secret;

/// How long a one-time link may be used.
const LINK_LIFE: Duration = Duration::from_secs(120);
/// How long a session lasts.
const SESSION_LIFE: Duration = Duration::from_hours(12);
/// Most links that wait to be used.
const LINKS_MAX: usize = 16;
/// Most sessions.
const SESSIONS_MAX: usize = 64;

/// Secrets that are valid until some time, oldest first.
#[derive(Default)]
struct Secrets(VecDeque<(Secret, Instant)>);

impl Secrets {
    fn add(&mut self, secret: Secret, until: Instant, most: usize) {
        while self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back((secret, until));
    }

    fn position(&self, shown: &str, now: Instant) -> Option<usize> {
        self.0.iter().position(|(secret, until)| now < *until && secret.is(shown))
    }
}

/// Links and sessions of this node.
#[derive(Default)]
pub struct Sessions {
    links: Mutex<Secrets>,
    sessions: Mutex<Secrets>,
}

impl Sessions {
    /// Makes the code of a one-time link.
    ///
    /// # Errors
    /// When the machine gives no random bits.
    fn make_link(&self) -> io::Result<Secret> {
        let code = Secret::random()?;
        lock(&self.links).add(code.clone(), Instant::now() + LINK_LIFE, LINKS_MAX);
        Ok(code)
    }

    /// Uses a code up; whether it was good.
    fn use_link(&self, shown: &str) -> bool {
        let mut links = lock(&self.links);
        let position = links.position(shown, Instant::now());
        position.is_some_and(|position| links.0.remove(position).is_some())
    }

    fn open(&self) -> io::Result<Secret> {
        let secret = Secret::random()?;
        lock(&self.sessions).add(secret.clone(), Instant::now() + SESSION_LIFE, SESSIONS_MAX);
        Ok(secret)
    }

    fn is_open(&self, shown: &str) -> bool {
        lock(&self.sessions).position(shown, Instant::now()).is_some()
    }

    fn close(&self, shown: &str) {
        let mut sessions = lock(&self.sessions);
        if let Some(position) = sessions.position(shown, Instant::now()) {
            sessions.0.remove(position);
        }
    }
}

fn lock(secrets: &Mutex<Secrets>) -> MutexGuard<'_, Secrets> {
    // The list is valid after every single operation, so a panic elsewhere does not make it worthless.
    secrets.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Via {
    /// Cookies are shared by all ports of a machine, so the name says which node it is of.
    fn cookie_name(&self) -> String {
        format!("kolo-{}", self.address.port())
    }

    fn session_cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn with_cookie(&self, status: StatusCode, value: &str, life: Duration) -> Response {
        let name = self.cookie_name();
        let secure = if self.is_tls { "; Secure" } else { "" };
        let life = life.as_secs();
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}");
        let session = SessionState { signed_in: !value.is_empty() };
        (status, [(header::SET_COOKIE, cookie)], Json(session)).into_response()
    }
}

impl ApiState {
    /// Whether a call shows the token, or the cookie of a session.
    pub fn is_known(&self, headers: &HeaderMap, via: &Via) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        shown.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|shown| self.token.is(shown))
            || via.session_cookie(headers).is_some_and(|shown| self.sessions.is_open(shown))
    }
}

/// Answer of the calls for a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionState {
    /// Whether the browser has a session.
    signed_in: bool,
}

/// What opens a session: one of the two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Opener {
    /// The node's token.
    token: Option<String>,
    /// The code of a one-time link.
    link: Option<String>,
}

/// A link for a browser.
#[derive(Debug, Serialize, ToSchema)]
pub struct OneTimeLink {
    /// To be opened once.
    url: String,
    expires_in_s: u64,
}

/// Whether the browser has a session.
#[utoipa::path(get, path = "/session", tag = "session", responses((status = 200, description = "Done", body = SessionState)))]
pub async fn show(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    headers: HeaderMap,
) -> Json<SessionState> {
    Json(SessionState { signed_in: state.is_known(&headers, &via) })
}

/// Opens a session with the token or the code of a one-time link.
#[utoipa::path(post, path = "/session", tag = "session", request_body = schema::Opener, responses((status = 201, description = "Done", body = SessionState)))]
pub async fn open(
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
    Ok(via.with_cookie(StatusCode::CREATED, secret.as_str(), SESSION_LIFE))
}

/// Ends the session.
#[utoipa::path(delete, path = "/session", tag = "session", responses((status = 200, description = "Done", body = SessionState)))]
pub async fn close(State(state): State<Arc<ApiState>>, Extension(via): Extension<Via>, headers: HeaderMap) -> Response {
    if let Some(shown) = via.session_cookie(&headers) {
        state.sessions.close(shown);
    }
    via.with_cookie(StatusCode::OK, "", Duration::ZERO)
}

/// Makes a link that signs a browser in, once.
#[utoipa::path(post, path = "/links", tag = "session", responses((status = 201, description = "Done", body = OneTimeLink)))]
pub async fn link(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
) -> Result<(StatusCode, Json<OneTimeLink>), Problem> {
    let code = state.sessions.make_link().map_err(no_random)?;
    // What follows the # never leaves the browser, so the code is in no log.
    let url = format!("{}://{}/#link={}", via.scheme(), via.address, code.as_str());
    Ok((StatusCode::CREATED, Json(OneTimeLink { url, expires_in_s: LINK_LIFE.as_secs() })))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_random(error: io::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random bits: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_once_and_sessions_are_bounded() {
        let sessions = Sessions::default();
        let code = sessions.make_link().unwrap();
        assert!(!sessions.use_link("") && sessions.use_link(code.as_str()) && !sessions.use_link(code.as_str()));
        let first = sessions.open().unwrap();
        assert!(sessions.is_open(first.as_str()) && !sessions.is_open(code.as_str()));
        for _ in 0..SESSIONS_MAX {
            sessions.open().unwrap();
        }
        assert!(!sessions.is_open(first.as_str()));
        let last = sessions.open().unwrap();
        sessions.close(last.as_str());
        assert!(!sessions.is_open(last.as_str()));
    }

    #[test]
    fn what_is_over_opens_nothing() {
        let mut secrets = Secrets::default();
        let (secret, now) = (Secret::random().unwrap(), Instant::now());
        secrets.add(secret.clone(), now + LINK_LIFE, 1);
        assert_eq!(secrets.position(secret.as_str(), now), Some(0));
        assert_eq!(secrets.position(secret.as_str(), now + LINK_LIFE), None);
    }
}
