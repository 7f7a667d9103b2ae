//! The node's HTTP API and page: JSON, a token or a session on everything under `/v1`.
//!
//! Invariant: nothing about the grid leaves without the token; bodies are bounded before they are read.

pub mod bookings;
pub mod events;
pub mod explanation;
mod extract;
pub mod grid;
mod guard;
pub mod local;
pub mod members;
mod metrics;
mod page;
pub mod plan;
pub mod problem;
pub mod request_view;
pub mod requests;
#[cfg(test)]
pub mod samples;
mod schema;
pub mod session;
pub mod sessions;
pub mod slots;
pub mod state;
pub mod takeover;
pub mod tls;
mod usage;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
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

use self::{
    problem::Problem,
    state::{ApiState, Via},
};

/// Largest request body; a request that names 20,000 candidates fits.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Largest body of calls that need no token: strangers must not fill the memory.
const OPEN_BODY_BYTES_MAX: usize = 4 << 10;

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
        .routes(routes!(grid::show_status))
        .routes(routes!(grid::test_reach))
        .routes(routes!(grid::list_sites))
        .routes(routes!(grid::list_hosts))
        .routes(routes!(grid::show_ledger))
        .routes(routes!(requests::submit_request, requests::list_requests))
        .routes(routes!(requests::read_written_request))
        .routes(routes!(requests::show_request, requests::cancel_request))
        .routes(routes!(requests::explain_request))
        .routes(routes!(requests::repair_request))
        .routes(routes!(takeover::look_up_reservation))
        .routes(routes!(takeover::take_over_reservation))
        .routes(routes!(members::show_grid))
        .routes(routes!(members::revoke_member))
        .routes(routes!(plan::plan_request))
        .routes(routes!(slots::find_slots))
        .routes(routes!(bookings::list_bookings))
        .routes(routes!(local::enter_local_work, local::list_local_work))
        .routes(routes!(local::remove_local_work))
        .routes(routes!(usage::show_usage))
        .routes(routes!(events::listen_to_events))
        .routes(routes!(session::make_link));
    // What opens a session, and whether there is one.
    let open =
        OpenApiRouter::new().routes(routes!(session::show_session, session::open_session, session::close_session));
    (guarded, open)
}

/// The routes under `/v1`.
fn v1(state: &Arc<ApiState>) -> Router<Arc<ApiState>> {
    let (guarded, open) = described();
    let guarded = guarded.route_layer(middleware::from_fn_with_state(state.clone(), check_token));
    let open = open.route_layer(DefaultBodyLimit::max(OPEN_BODY_BYTES_MAX));
    Router::new().nest("/v1", guarded.merge(open).split_for_parts().0)
}

/// The OpenAPI document that describes the routes under `/v1`.
fn description() -> utoipa::openapi::OpenApi {
    let (guarded, open) = described();
    let is_open = |path: &str| open.get_openapi().paths.paths.keys().any(|known| path == format!("/v1{known}"));
    let described = OpenApiRouter::with_openapi(Description::openapi()).nest("/v1", guarded.merge(open.clone()));
    let (_, mut document) = described.split_for_parts();
    describe_problems(&mut document);
    describe_token(&mut document, is_open);
    document
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
    let document = Arc::new(description());
    let own = Router::new()
        .route("/openapi.json", get(|| async move { Json((*document).clone()) }))
        .route("/metrics", get(metrics::metrics));
    // On this machine they are for whoever watches it; other machines show the token.
    let own = match via.is_tls {
        true => own.route_layer(middleware::from_fn_with_state(state.clone(), check_token)),
        false => own,
    };
    v1(&state)
        .merge(page::router())
        .merge(own)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value, json};

    use super::*;

    fn document() -> Value {
        serde_json::to_value(description()).unwrap()
    }

    #[test]
    fn every_operation_has_an_id_of_its_own() {
        let document = document();
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{method} {path}: the id {id} is of another operation as well");
            }
        }
        assert!(ids.len() > 25, "{ids:?}");
    }

    /// Checks a schema and all in it for what generators of clients do not understand.
    fn check(place: &str, schema: &Value, components: &Map<String, Value>) {
        let Some(schema) = schema.as_object() else { panic!("{place}: {schema} is no schema") };
        if let Some(reference) = schema.get("$ref") {
            let name = reference.as_str().unwrap().strip_prefix("#/components/schemas/").unwrap();
            assert!(components.contains_key(name), "{place}: {name} is described nowhere");
        }
        assert!(!schema.contains_key("prefixItems"), "{place}: a tuple");
        let is_kind =
            |kind: &Value| kind == "array" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("array")));
        let is_array = schema.get("type").is_some_and(is_kind);
        assert_eq!(is_array, schema.contains_key("items"), "{place}: items and no array, or the other way round");
        let properties = schema.get("properties").and_then(Value::as_object);
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(properties.is_some_and(|known| known.contains_key(key.as_str().unwrap())), "{place}: {key}");
        }
        for (key, property) in properties.into_iter().flatten() {
            check(&format!("{place}.{key}"), property, components);
        }
        for key in ["items", "additionalProperties", "propertyNames"] {
            if let Some(inner) = schema.get(key).filter(|inner| key != "additionalProperties" || !inner.is_boolean()) {
                check(&format!("{place}.{key}"), inner, components);
            }
        }
        for key in ["oneOf", "anyOf", "allOf"] {
            for inner in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                assert!(key != "allOf" || inner.get("properties").is_none(), "{place}: a part without a name");
                check(&format!("{place}.{key}"), inner, components);
            }
        }
    }

    #[test]
    fn every_schema_is_one_that_generators_of_clients_understand() {
        let document = document();
        let components = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in components {
            check(name, schema, components);
        }
        for (path, item) in document["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    check(path, &parameter["schema"], components);
                }
                let bodies = operation["responses"].as_object().unwrap().values().chain(operation.get("requestBody"));
                for media in bodies.filter_map(|body| body["content"].as_object()).flat_map(Map::values) {
                    check(path, &media["schema"], components);
                }
            }
        }
        let event = &document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"];
        assert_eq!(event["schema"]["$ref"], "#/components/schemas/Event", "an event is an object, and no plain text");
    }
}
