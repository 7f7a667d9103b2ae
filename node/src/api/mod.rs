//! The node's local HTTP API: loopback only, JSON, a token on everything under `/v1`.
//!
//! Invariant: nothing about the grid leaves without the token; bodies are bounded before they are read.

mod bookings;
mod explanation;
mod grid;
mod members;
mod plan;
pub mod problem;
mod request_view;
pub mod requests;
mod slots;
mod takeover;
pub mod token;
mod words;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use broker::ids::SiteId;
use discovery::Discovery;

use self::{problem::Problem, token::Token};
use crate::daemon::{
    bookings::Bookings, carry::Carrier, membership::Membership, requests::Requests, site::SharedLedger,
};

/// Largest request body; a request that names 20,000 candidates fits.
const BODY_BYTES_MAX: usize = 4 << 20;

/// What the handlers need.
pub struct ApiState {
    /// The grid.
    pub discovery: Discovery,
    /// This site's ledger.
    pub ledger: SharedLedger,
    /// Requests of this node.
    pub requests: Arc<Requests>,
    /// What sites have told of their reservations.
    pub bookings: Bookings,
    /// For new requests.
    pub carrier: Carrier,
    /// Who must be shown.
    pub token: Token,
    /// This site's name for people.
    pub name: String,
    /// Who belongs to the grid, and for whom this node signs.
    pub membership: Arc<Membership>,
    /// When the node started, Unix seconds.
    pub started: u64,
    /// Where the API listens.
    pub address: String,
}

impl ApiState {
    /// The name that a site gives itself; empty when it is not known.
    fn site_name(&self, site: &SiteId) -> String {
        self.discovery.view().with_site(site, |view| view.advert().name.clone()).unwrap_or_default()
    }
}

/// The routes.
pub fn router(state: Arc<ApiState>) -> Router {
    let v1 = Router::new()
        .route("/status", get(grid::status))
        .route("/sites", get(grid::sites))
        .route("/hosts", get(grid::hosts))
        .route("/ledger", get(grid::ledger))
        .route("/requests", post(requests::submit).get(requests::list))
        .route("/requests/{id}", get(requests::show).delete(requests::cancel))
        .route("/requests/{id}/explain", get(requests::explanation))
        .route("/requests/{id}/repair", post(requests::repair))
        .route("/reservations/{id}", get(takeover::look))
        .route("/reservations/{id}/takeover", post(takeover::take_over))
        .route("/grid", get(members::show))
        .route("/grid/revocations", post(members::revoke))
        .route("/plan", post(plan::plan))
        .route("/slots", post(slots::slots))
        .route("/bookings", get(bookings::list))
        .route_layer(middleware::from_fn_with_state(state.clone(), check_token));
    Router::new()
        .nest("/v1", v1)
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(state)
}

async fn check_token(State(state): State<Arc<ApiState>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if shown.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|shown| state.token.is(shown)) {
        return next.run(request).await;
    }
    let detail = "show the token of the file api.token in the node's data directory as 'Authorization: Bearer TOKEN'";
    Problem::new(StatusCode::UNAUTHORIZED, detail).into_response()
}
