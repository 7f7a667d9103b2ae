//! Signing in with a browser: the token, or the code of a one-time link, is exchanged for a secret, half of which is a cookie that scripts
//! cannot read. Browsers show cookies to all ports of a machine, so the page keeps the other half, which no other port gets, and shows it with
//! every call.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use broker::{host::Host, ids::SiteId, ledger::Books as _};
use kolo_api::session::{Challenge, NodeProof, OneTimeLink, Opener, SessionState};
use kolo_trust::{Scope, TrustFileError};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    authority::replaced,
    challenge::NONCE_LIFE,
    extract::{Body, Query},
    operator_token::TokenTerm,
    problem::Problem,
    requests::read_body,
    scopes::Caller,
    sessions::{LINK_LIFE, SESSION_LIFE},
    state::{ApiState, Via},
};

/// Whether the browser has a session.
#[utoipa::path(get, path = "/session", tag = "session", responses((status = 200, description = "Done", body = SessionState)))]
pub async fn show_session(Extension(caller): Extension<Caller>) -> Json<SessionState> {
    Json(SessionState { signed_in: caller != Caller::Stranger, scope: caller.scope(), page: None })
}

/// Opens a session with the token or the code of a one-time link.
#[utoipa::path(post, path = "/session", tag = "session", request_body = Opener, responses((status = 201, description = "Done", body = SessionState)))]
pub async fn open_session(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    Extension(term): Extension<TokenTerm>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let opener: Opener = read_body("session", &body)?;
    let (caller, wrong) = match (opener.token, opener.link) {
        (Some(token), None) => (state.holder_of(&token), "this is no token of this node"),
        (None, Some(code)) => {
            (state.sessions.use_link(&code), "the link was used already, or is too old; make another with kolo open")
        }
        _ => return Err(Problem::bad_request("session: expected either token or link").with_key("token")),
    };
    let caller = caller.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, wrong))?;
    if caller.scope() == Some(Scope::Metrics) {
        let detail = "the page needs the scope read; the token has metrics";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail).with_rule("scope"));
    }
    let scope = caller.scope();
    let secret = state.sessions.open(caller).map_err(no_random)?;
    check_term(&state, &term)?;
    let (cookie, page) = secret.as_str().split_at(secret.as_str().len() / 2);
    let session = SessionState { signed_in: true, scope, page: Some(page.to_owned()) };
    Ok((StatusCode::CREATED, with_cookie(&via, session, cookie, SESSION_LIFE)).into_response())
}

/// Takes back what a call has opened while the token was replaced, which may have come too late to be ended by that.
fn check_term(state: &ApiState, term: &TokenTerm) -> Result<(), Problem> {
    if term.is_over() {
        state.sessions.end_operators();
        return Err(replaced());
    }
    Ok(())
}

/// Ends the session.
#[utoipa::path(delete, path = "/session", tag = "session", responses((status = 200, description = "Done", body = SessionState)))]
pub async fn close_session(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    headers: HeaderMap,
) -> Response {
    if let Some(shown) = via.session(&headers) {
        state.sessions.close(&shown);
    }
    let session = SessionState { signed_in: false, scope: None, page: None };
    with_cookie(&via, session, "", Duration::ZERO)
}

/// Makes a link that signs a browser in, once, with the scope of the caller.
#[utoipa::path(post, path = "/links", tag = "session", responses((status = 201, description = "Done", body = OneTimeLink)))]
pub async fn make_link(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    Extension(caller): Extension<Caller>,
    Extension(term): Extension<TokenTerm>,
) -> Result<(StatusCode, Json<OneTimeLink>), Problem> {
    if let Some(holder) = state.port.holder().filter(|_| !via.is_tls) {
        let detail = format!(
            "{holder} has the port of the page, {}: a link would tell it the way in. End that program, and the node takes the port within seconds; or choose another (api, --api)",
            via.address
        );
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let code = state.sessions.make_link(caller).map_err(no_random)?;
    check_term(&state, &term)?;
    // What follows the # never leaves the browser, so the code is in no log.
    let url = format!("{}://{}/#link={}", via.scheme(), via.address, code.as_str());
    Ok((StatusCode::CREATED, Json(OneTimeLink { url, expires_in_s: LINK_LIFE.as_secs() })))
}

/// Query of `GET /v1/proof`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ProofQuery {
    /// The name of the token, which tells nothing of it: 16 hexadecimal digits.
    #[param(min_length = 16, max_length = 16)]
    token: String,
    /// Made for this call: 32 hexadecimal digits.
    #[param(min_length = 32, max_length = 32)]
    nonce: String,
}

/// Shows that this node knows a token, and gives a nonce for a call by a holder who does not show it.
#[utoipa::path(get, path = "/proof", tag = "session", params(ProofQuery), responses((status = 200, description = "Done", body = NodeProof)))]
pub async fn prove_node(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    Query(query): Query<ProofQuery>,
) -> Result<Json<NodeProof>, Problem> {
    let ProofQuery { token, nonce: asked } = query;
    if asked.len() != 32 || !asked.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::wrong("nonce", "expected 32 hexadecimal digits"));
    }
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "this node has no token of this name");
    let (_, key) = state.holder_named(&token).ok_or_else(unknown)?;
    let nonce = state.strangers.proofs.give(Instant::now());
    let proof = key.of_node(via.address, &asked, &nonce);
    Ok(Json(NodeProof { nonce, proof }))
}

/// The call that is to be signed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ChallengeQuery {
    /// `GET`, `POST` or `DELETE`.
    #[param(max_length = 8)]
    method: String,
    /// With its query.
    #[param(max_length = 4096)]
    path: String,
}

/// Gives a nonce with which the user's key signs one call.
#[utoipa::path(get, path = "/challenge", tag = "session", params(ChallengeQuery), responses((status = 200, description = "Done", body = Challenge)))]
pub async fn give_challenge(
    State(state): State<Arc<ApiState>>,
    Query(query): Query<ChallengeQuery>,
) -> Result<Json<Challenge>, Problem> {
    let ChallengeQuery { method, path } = query;
    for (key, text, most) in [("method", &method, 8), ("path", &path, 4096)] {
        if text.len() > most {
            return Err(Problem::wrong(key, format_args!("expected at most {most} bytes")));
        }
    }
    let nonce = state.strangers.challenges.give(&method, &path, Instant::now()).map_err(no_random)?;
    let too_many = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many calls are about to be signed");
    let grid = state.membership.grid();
    Ok(Json(Challenge {
        nonce: nonce.ok_or_else(too_many)?,
        expires_in_s: NONCE_LIFE.as_secs(),
        site: state.discovery.site_id().clone(),
        grid: grid.id.clone(),
        grid_form: grid.form().to_owned(),
        has_prices: has_prices(&state),
    }))
}

/// Whether a host of this site has a price, or one of another site a short while ago.
fn has_prices(state: &ApiState) -> bool {
    let is_priced = |host: &Host| !host.tariff.prices.is_empty();
    let here = state.ledger.lock().hosts().any(|books| is_priced(books.host()));
    let view = state.discovery.view();
    let of_site = |site: &SiteId| {
        view.with_site(site, |view| view.advert().hosts.classes().iter().any(|class| is_priced(&class.host)))
    };
    let elsewhere = || view.site_ids().iter().any(|site| of_site(site) == Some(true));
    here || state.strangers.prices.are_there(Instant::now(), elsewhere)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_random(error: TrustFileError) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// An answer that sets the cookie of a session.
fn with_cookie(via: &Via, session: SessionState, value: &str, life: Duration) -> Response {
    let name = via.cookie_name();
    let secure = if via.is_tls { "; Secure" } else { "" };
    let life = life.as_secs();
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}");
    ([(header::SET_COOKIE, cookie)], Json(session)).into_response()
}
