//! The node's HTTP API and page: JSON, a token or a session on everything under `/v1`.
//!
//! Invariant: nothing about the grid leaves without the token; bodies are bounded before they are read.

mod bookings;
pub mod events;
mod explanation;
mod extract;
mod grid;
mod guard;
mod local;
mod members;
mod metrics;
mod page;
mod plan;
pub mod problem;
mod request_view;
pub mod requests;
mod schema;
pub mod session;
mod slots;
mod takeover;
pub mod tls;
mod usage;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use broker::{ids::SiteId, protocol::Advert};
use discovery::Discovery;
use utoipa::{
    OpenApi,
    openapi::{
        Components, Ref, RefOr,
        content::ContentBuilder,
        path::Operation,
        response::ResponseBuilder,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::{problem::Problem, request_view::SiteWords, session::Sessions};
use crate::{
    entry::{bookings::Bookings, driver::Carrier, requests::Requests},
    net::membership::Membership,
    runtime::{changes::Changes, metrics::Metrics},
    site::{activation::Activations, feed::SharedFeedState, task::SharedLedger},
    trust::Secret,
};

/// Largest request body; a request that names 20,000 candidates fits.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Largest body of calls that need no token: strangers must not fill the memory.
const OPEN_BODY_BYTES_MAX: usize = 4 << 10;

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
    /// What is known of the feed of own work, if there is one.
    pub feed: Option<SharedFeedState>,
    /// Who must be shown.
    pub token: Secret,
    /// Browsers that have shown it.
    pub sessions: Sessions,
    /// What this node has done.
    pub metrics: Arc<Metrics>,
    /// Who wants to hear of changes.
    pub changes: Changes,
    /// What the owner's hook has not done.
    pub activations: Activations,
    /// This site's name for people.
    pub name: String,
    /// Who belongs to the grid, and for whom this node signs.
    pub membership: Arc<Membership>,
    /// When the node started, Unix seconds.
    pub started: u64,
    /// Where the local API listens.
    pub address: String,
    /// What the node may be called, beside its addresses and `localhost`.
    pub names: Vec<String>,
}

/// The door through which a call has come.
#[derive(Debug, Clone)]
pub struct Via {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub is_tls: bool,
}

impl Via {
    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

impl ApiState {
    /// The name that a site gives itself; empty when it is not known.
    fn site_name(&self, site: &SiteId) -> String {
        self.discovery.view().with_site(site, |view| view.advert().name.clone()).unwrap_or_default()
    }

    fn site_words(&self, site: &SiteId) -> SiteWords {
        let words = |advert: &Advert| SiteWords { name: advert.name.clone(), contact: advert.contact.clone() };
        self.discovery.view().with_site(site, |view| words(view.advert())).unwrap_or_default()
    }
}

/// The description of the API, beside what is derived from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Kolo",
        description = "The API of one node. Times are whole Unix seconds unless a name ends in `_ms`; amounts are base \
                       units (millicores, MiB)."
    ),
    components(schemas(Problem, requests::Until))
)]
struct Description;

/// Routes that want a token or a session, and those that do not, with their description.
fn described() -> (OpenApiRouter<Arc<ApiState>>, OpenApiRouter<Arc<ApiState>>) {
    let guarded = OpenApiRouter::new()
        .routes(routes!(grid::status))
        .routes(routes!(grid::reach))
        .routes(routes!(grid::sites))
        .routes(routes!(grid::hosts))
        .routes(routes!(grid::ledger))
        .routes(routes!(requests::submit, requests::list))
        .routes(routes!(requests::read))
        .routes(routes!(requests::show, requests::cancel))
        .routes(routes!(requests::explanation))
        .routes(routes!(requests::repair))
        .routes(routes!(takeover::look))
        .routes(routes!(takeover::take_over))
        .routes(routes!(members::show))
        .routes(routes!(members::revoke))
        .routes(routes!(plan::plan))
        .routes(routes!(slots::slots))
        .routes(routes!(bookings::list))
        .routes(routes!(local::enter, local::list))
        .routes(routes!(local::remove))
        .routes(routes!(usage::usage))
        .routes(routes!(events::listen))
        .routes(routes!(session::link));
    // What opens a session, and whether there is one.
    let open = OpenApiRouter::new().routes(routes!(session::show, session::open, session::close));
    (guarded, open)
}

/// The routes under `/v1`, and the OpenAPI document that describes them.
fn v1(state: &Arc<ApiState>) -> (Router<Arc<ApiState>>, utoipa::openapi::OpenApi) {
    let (guarded, open) = described();
    let guarded = guarded.route_layer(middleware::from_fn_with_state(state.clone(), check_token));
    let is_open = |path: &str| open.get_openapi().paths.paths.keys().any(|known| path == format!("/v1{known}"));
    let limited = open.clone().route_layer(DefaultBodyLimit::max(OPEN_BODY_BYTES_MAX));
    let described = OpenApiRouter::with_openapi(Description::openapi()).nest("/v1", guarded.merge(limited));
    let (router, mut document) = described.split_for_parts();
    describe_problems(&mut document);
    describe_token(&mut document, is_open);
    (router, document)
}

/// Every call may end with a problem.
fn describe_problems(document: &mut utoipa::openapi::OpenApi) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let problem = ResponseBuilder::new()
        .description("What is wrong (RFC 9457)")
        .content("application/problem+json", content)
        .build();
    for (_, operation) in operations(document) {
        operation.responses.responses.insert("default".to_owned(), RefOr::T(problem.clone()));
    }
}

/// Every call wants the token, but those at paths that are open.
fn describe_token(document: &mut utoipa::openapi::OpenApi, is_open: impl Fn(&str) -> bool) {
    const TOKEN: &str = "token";
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("What is in `api.token`")).build();
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme));
    for (path, operation) in operations(document) {
        if !is_open(path) {
            operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], _>(TOKEN, [])]);
        }
    }
}

fn operations(document: &mut utoipa::openapi::OpenApi) -> impl Iterator<Item = (&str, &mut Operation)> {
    document.paths.paths.iter_mut().flat_map(|(path, item)| {
        let operations = [&mut item.get, &mut item.post, &mut item.delete];
        operations.into_iter().flatten().map(move |operation| (path.as_str(), operation))
    })
}

/// The routes behind one door.
pub fn router(state: Arc<ApiState>, via: Via) -> Router {
    let (v1, document) = v1(&state);
    let document = Arc::new(document);
    v1.merge(page::router())
        .route("/openapi.json", get(|| async move { Json((*document).clone()) }))
        .route("/metrics", get(metrics::metrics))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), guard::guard))
        .layer(Extension(via))
        .layer(middleware::from_fn(page::add_headers))
        .with_state(state)
}

async fn check_token(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    request: Request,
    next: Next,
) -> Response {
    if state.is_known(request.headers(), &via) {
        return next.run(request).await;
    }
    let detail = "show the token of the file api.token in the node's data directory as 'Authorization: Bearer TOKEN'";
    Problem::new(StatusCode::UNAUTHORIZED, detail).into_response()
}
