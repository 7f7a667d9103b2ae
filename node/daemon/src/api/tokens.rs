//! Tokens over the API: those with a scope are made, listed and revoked, the operator's own is replaced.

use std::sync::Arc;

use axum::{Extension, Json, extract::State, http::StatusCode};
use kolo_api::tokens::{MadeToken, NewToken, RotateToken, TokenList};
use kolo_runtime::clock::unix_time;
use kolo_trust::{ApiToken, Scope, TokenRefusal};

use super::{
    authority::About,
    extract::{Body, Path},
    problem::Problem,
    requests::read_body,
    state::ApiState,
};

/// Makes a token with a scope; it counts at once.
#[utoipa::path(post, path = "/tokens", tag = "session", request_body = NewToken, responses((status = 201, description = "Done", body = MadeToken)))]
pub async fn create_token(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(StatusCode, Extension<About>, Json<MadeToken>), Problem> {
    let NewToken { name, scope, user } = read_body("token", &body)?;
    let created = unix_time();
    let about = ApiToken { name: name.clone(), scope, user, created };
    // The disk takes a while, and other calls are served by the same threads.
    let secret = tokio::task::block_in_place(|| state.tokens.create(about)).map_err(|refusal| match refusal {
        TokenRefusal::Name(key) => Problem::wrong(key, refusal),
        TokenRefusal::Operator => Problem::wrong("scope", refusal),
        TokenRefusal::UserOfOther => Problem::wrong("user", refusal),
        TokenRefusal::Exists | TokenRefusal::TooMany => {
            Problem::new(StatusCode::CONFLICT, refusal.to_string()).with_key("name")
        }
        TokenRefusal::File(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    let token = secret.as_str().to_owned();
    Ok((StatusCode::CREATED, About::of(&name), Json(MadeToken { name, token })))
}

/// The tokens, without their secrets.
#[utoipa::path(get, path = "/tokens", tag = "session", responses((status = 200, description = "Done", body = TokenList)))]
pub async fn list_tokens(State(state): State<Arc<ApiState>>) -> Json<TokenList> {
    Json(TokenList { tokens: state.tokens.all().iter().map(|token| ApiToken::clone(token)).collect() })
}

/// Takes a token back, with the browsers' sessions that it has opened.
#[utoipa::path(delete, path = "/tokens/{name}", tag = "session", params(("name" = String, Path, description = "The name of a token")), responses((status = 200, description = "Done", body = ApiToken)))]
pub async fn revoke_token(
    State(state): State<Arc<ApiState>>,
    Path(name): Path,
) -> Result<(Extension<About>, Json<ApiToken>), Problem> {
    let revoked = tokio::task::block_in_place(|| state.tokens.revoke(&name));
    let revoked = revoked.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let token = revoked.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("there is no token {name:?}")))?;
    Ok((About::of(&token.name), Json(ApiToken::clone(&token))))
}

/// Makes another token for the operator, in place of `api.token`; the old one, and what has been opened with it, counts no more.
#[utoipa::path(post, path = "/api-token", tag = "session", request_body = RotateToken, responses((status = 200, description = "Done", body = MadeToken)))]
pub async fn rotate_token(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(Extension<About>, Json<MadeToken>), Problem> {
    let RotateToken { rotate } = read_body("token", &body)?;
    if !rotate {
        return Err(Problem::wrong("rotate", "expected true"));
    }
    let made = tokio::task::block_in_place(|| state.token.replace());
    let made = made.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    state.sessions.end_operators();
    state.token.end_terms();
    let name = Scope::Operator.as_str().to_owned();
    Ok((About::of(&name), Json(MadeToken { name, token: made.as_str().to_owned() })))
}
