//! Lets a call through to its handler when its caller has what the route needs, and writes down what callers change.
//!
//! Invariant: the handler of a route knows its caller (an extension of the request), and runs only for one that the route's
//! [`Access`] admits. Whoever shows no token costs an allowance before anything is verified.

use std::{net::IpAddr, sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{DefaultBodyLimit, OriginalUri, Request},
    http::{Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use kolo_api::{signed_call::is_signature, token_call::TokenCall};
use kolo_runtime::{
    audit::{AuditLine, By},
    clock::unix_ms,
};
use kolo_trust::Scope;
use utoipa::openapi::{path::Operation, security::SecurityRequirement};
use utoipa_axum::router::UtoipaMethodRouter;

use super::{
    extract::BodyHash,
    problem::Problem,
    proofs::BadNonce,
    scopes::{Access, Caller},
    state::{ApiState, Via},
};

/// Largest body of a call that shows no token: a signed request (64 KiB of text) with its credentials.
const STRANGER_BODY_BYTES_MAX: usize = 128 << 10;
/// The name of the scheme of tokens in the description.
pub const TOKEN: &str = "token";
/// The name of the scheme of tokens that are not shown.
pub const PROVEN_TOKEN: &str = "proven_token";
/// The name of the scheme of signed calls in the description.
pub const SIGNATURE: &str = "signature";

/// Where a call comes from: an address (IPv4) or a /64 (IPv6).
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// What a call was about, for the audit log; handlers put it into their answers.
#[derive(Debug, Clone)]
pub struct About {
    pub id: String,
    /// Who has signed what was handed over, when that is not who called.
    pub author: Option<Caller>,
}

impl About {
    /// A thing of this name.
    pub fn of(id: &(impl ToString + ?Sized)) -> Extension<About> {
        Extension(About { id: id.to_string(), author: None })
    }
}

/// Routes with what they need, in their description as well.
pub fn needing<S>(access: Access, routes: UtoipaMethodRouter<S>) -> UtoipaMethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let (schemas, mut paths, router) = routes;
    let path: Arc<str> = paths.paths.keys().next().map_or("", String::as_str).into();
    for item in paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post, &mut item.delete].into_iter().flatten() {
            describe(access, operation);
        }
    }
    let checked = middleware::from_fn(move |state, via, peer, request, next| {
        check((access, path.clone()), state, via, peer, request, next)
    });
    (schemas, paths, router.route_layer(checked))
}

/// Says in a call's description what it needs: a token of a scope, a signature, or nothing.
fn describe(access: Access, operation: &mut Operation) {
    let Some(scope) = access.scope() else { return };
    let mut all = [TOKEN, PROVEN_TOKEN].map(|scheme| SecurityRequirement::new(scheme, [scope.as_str()])).to_vec();
    match access {
        Access::Signed(_) => all.push(SecurityRequirement::default()),
        _ if access.takes_signature() => all.push(SecurityRequirement::new::<_, [&str; 0], _>(SIGNATURE, [])),
        _ => {}
    }
    operation.security = Some(all);
}

/// Why a call is not let through, as it is counted, and the answer.
struct Denied(&'static str, Box<Problem>);

/// `path` is that of the route below `/v1`, with names in the place of what callers write there.
async fn check(
    (access, path): (Access, Arc<str>),
    Extension(state): Extension<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let term = state.token.term();
    let caller = match caller_of(access, &state, &via, peer, &request).and_then(|caller| admitted(access, caller)) {
        Ok(caller) => caller,
        Err(Denied(why, problem)) => {
            state.denied(why, peer.0);
            return problem.into_response();
        }
    };
    if matches!(caller, Caller::Stranger | Caller::User(_)) && access != Access::Open {
        DefaultBodyLimit::max(STRANGER_BODY_BYTES_MAX).apply(&mut request);
    }
    let is_change = access.is_change() && request.method() != Method::GET;
    let what = is_change.then(|| format!("{} /v1{path}", request.method()));
    let term = term.binding(caller == Caller::Operator && !via.is_socket);
    request.extensions_mut().insert(term.clone());
    request.extensions_mut().insert(caller.clone());
    if let Some(hash) = shown_by(&request).and_then(TokenCall::read).map(|call| BodyHash(call.body.to_owned())) {
        request.extensions_mut().insert(hash);
    }
    let Some(what) = what else {
        return tokio::select! {
            response = next.run(request) => response,
            () = term.until_over() => replaced().into_response(),
        };
    };
    // A change that has begun goes on, and is written down, when its caller hangs up.
    let change = tokio::spawn(async move {
        let response = next.run(request).await;
        write_down(&state, &caller, peer, &what, &response);
        response
    });
    change.await.unwrap_or_else(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the change was cut off: {error}")).into_response()
    })
}

/// Writes a change down. What a caller without a token was refused is not: anybody could fill the log with it.
fn write_down(state: &ApiState, caller: &Caller, peer: Peer, what: &str, response: &Response) {
    let about = response.extensions().get::<About>();
    if caller.scope().is_none() && !response.status().is_success() {
        return;
    }
    let who = about.and_then(|about| about.author.as_ref()).unwrap_or(caller).to_string();
    let by = if caller.has(Scope::Operator) { By::Operator } else { By::User };
    let from = peer.0.to_string();
    let line = AuditLine {
        at_ms: unix_ms(),
        who: &who,
        from: &from,
        what,
        id: about.map(|about| about.id.as_str()),
        status: response.status().as_u16(),
    };
    state.audit.write(by, &line);
}

/// Who calls, as far as the call says so.
fn caller_of(access: Access, state: &ApiState, via: &Via, peer: Peer, request: &Request) -> Result<Caller, Denied> {
    let (headers, shown, now) = (request.headers(), shown_by(request), Instant::now());
    // A header that says who calls may say less than that the operator does.
    if via.is_socket && !headers.contains_key(header::AUTHORIZATION) {
        return Ok(Caller::Operator);
    }
    if let Some(call) = shown.and_then(TokenCall::read) {
        return match state.holder_named(call.token) {
            Some((caller, key)) if call.is_by(&key, request.method().as_str(), path_of(request)) => {
                state.strangers.proofs.use_up(call.token, call.nonce, now).map(|()| caller).map_err(spent)
            }
            _ if access == Access::Open => Ok(Caller::Stranger),
            _ => Err(unknown(access)),
        };
    }
    if let Some(token) = shown.and_then(|value| value.strip_prefix("Bearer ")) {
        return match state.holder_of(token) {
            Some(caller) => Ok(caller),
            None if access == Access::Open => Ok(Caller::Stranger),
            None => Err(unknown(access)),
        };
    }
    let signature = shown.filter(|shown| access.takes_signature() && is_signature(shown));
    if signature.is_none() {
        let session = via.session(headers).and_then(|shown| state.sessions.caller(&shown));
        if let Some(caller) = session.filter(|caller| state.is_in_force(caller)) {
            // Whoever came by a key costs what the signed call would.
            if matches!(caller, Caller::User(_)) {
                take_allowance(access, state, peer)?;
            }
            return Ok(caller);
        }
    }
    if access.takes_signature() && (signature.is_some() || matches!(access, Access::Signed(_))) {
        take_allowance(access, state, peer)?;
    }
    let Some(signature) = signature else { return Ok(Caller::Stranger) };
    let site = state.discovery.site_id();
    let signed = state.strangers.challenges.check(signature, request.method().as_str(), path_of(request), site, now);
    signed.map(Caller::User).ok_or_else(|| {
        let detail =
            "the signature is not that of this call, or its nonce was used or is too old; ask /v1/challenge again";
        Denied("signature", Box::new(Problem::new(StatusCode::UNAUTHORIZED, detail).with_rule("signature")))
    })
}

/// The text of the header `Authorization`.
fn shown_by(request: &Request) -> Option<&str> {
    request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())
}

/// The path of a call with its query, from the root: axum shortens the one in the request within a group of routes.
fn path_of(request: &Request) -> &str {
    let uri = request.extensions().get::<OriginalUri>().map_or(request.uri(), |OriginalUri(uri)| uri);
    uri.path_and_query().map_or("", |path| path.as_str())
}

/// The refusal of a call whose nonce is not good.
fn spent(why: BadNonce) -> Denied {
    let problem = match why {
        BadNonce::Spent => {
            let detail =
                "the nonce of this call was used, or is too old, or not of this run of the node; ask /v1/proof again";
            Problem::new(StatusCode::UNAUTHORIZED, detail)
        }
        BadNonce::Busy => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many calls by this token; try again in a second")
        }
    };
    Denied("token", Box::new(problem.with_rule("nonce")))
}

/// Whoever shows no token may call only so often.
fn take_allowance(access: Access, state: &ApiState, peer: Peer) -> Result<(), Denied> {
    if state.strangers.rates.take(peer.0, access.cost(), Instant::now()) {
        return Ok(());
    }
    let detail = "too many calls without a token from this address; try again in a second";
    Err(Denied("rate", Box::new(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).with_rule("rate"))))
}

fn admitted(access: Access, caller: Caller) -> Result<Caller, Denied> {
    match (access.scope(), caller.scope()) {
        _ if access.admits(&caller) => Ok(caller),
        (Some(needed), Some(scope)) => Err(too_little(needed, scope)),
        _ => Err(unknown(access)),
    }
}

fn too_little(needed: Scope, scope: Scope) -> Denied {
    let detail = format!("this call needs the scope {}; the token has {}", needed.as_str(), scope.as_str());
    Denied("scope", Box::new(Problem::new(StatusCode::FORBIDDEN, detail).with_rule("scope")))
}

/// The answer to a call whose token was replaced while it was under way.
pub fn replaced() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "the token of this call was replaced; the new one is in the node's data directory",
    )
}

fn unknown(access: Access) -> Denied {
    let scope = access.scope().map_or("operator", Scope::as_str);
    let or_sign = if access.takes_signature() { ", or sign the call" } else { "" };
    let detail = format!("show a token with the scope {scope} as 'Authorization: Bearer TOKEN'{or_sign}");
    Denied("token", Box::new(Problem::new(StatusCode::UNAUTHORIZED, detail)))
}

/// What a plain request needs that only its submitter vouches for.
pub fn needs_submit(caller: &Caller) -> Problem {
    let Denied(_, problem) = match caller.scope() {
        Some(scope) => too_little(Scope::Submit, scope),
        None => unknown(Access::Signed(0)),
    };
    *problem
}
