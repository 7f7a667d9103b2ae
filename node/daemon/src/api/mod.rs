//! The node's HTTP API and page.
//!
//! Invariant: every route says what it needs of its caller ([`Access`]), or there is no such route; nothing about the grid leaves
//! without that. Bodies are bounded before they are read.

pub mod accounts;
pub mod authority;
pub mod batch;
pub mod batch_run;
pub mod batch_users;
pub mod bookings;
pub mod challenge;
pub mod events;
pub mod explanation;
mod extract;
pub mod grid;
mod guard;
pub mod local;
pub mod local_port;
pub mod members;
mod metrics;
pub mod operator_token;
mod page;
pub mod plan;
pub mod prices_seen;
pub mod problem;
pub mod proofs;
pub mod queue;
pub mod rates;
pub mod receipts;
pub mod requests;
pub mod run;
pub mod running;
pub mod scopes;
pub mod session;
pub mod sessions;
pub mod shown;
pub mod slots;
pub mod state;
pub mod takeover;
pub mod tls;
pub mod together;
pub mod tokens;
pub mod upkeep;
mod usage;
pub mod waiting;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::DefaultBodyLimit,
    http::StatusCode,
    middleware,
    routing::{MethodRouter, get},
};
use utoipa::{
    OpenApi,
    openapi::{
        Components, Ref, RefOr,
        content::ContentBuilder,
        path::{Operation, Paths},
        response::ResponseBuilder,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes,
};

use self::{
    authority::needing,
    problem::Problem,
    scopes::Access,
    state::{ApiState, Via},
};

/// Largest request body; a request that names 20,000 candidates fits.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Largest body of calls that anybody may make: strangers must not fill the memory.
const OPEN_BODY_BYTES_MAX: usize = 4 << 10;
/// What a submission takes of the allowance of a caller without a token; it costs signatures and a round of planning.
const SUBMISSION_COST: u32 = 4;
/// What a question to all sites takes.
const LOOK_UP_COST: u32 = 20;

/// The description of the API, beside what is derived from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Kolo",
        description = "The API of one node. Times are whole Unix seconds unless a name ends in `_ms`; amounts are base \
                       units (millicores, MiB)."
    ),
    components(schemas(kolo_api::problem::Problem, requests::Until))
)]
struct Description;

/// Routes with their description, each with what it needs.
#[derive(Default)]
struct Routes(OpenApiRouter<Arc<ApiState>>);

impl Routes {
    fn with(self, access: Access, routes: UtoipaMethodRouter<Arc<ApiState>>) -> Routes {
        Routes(self.0.routes(needing(access, routes)))
    }
}

/// The routes under `/v1`.
fn described() -> OpenApiRouter<Arc<ApiState>> {
    let open = Routes::default()
        .with(Access::Open, routes!(session::show_session))
        .with(Access::Open, routes!(session::open_session))
        .with(Access::Open, routes!(session::close_session))
        .with(Access::Open, routes!(session::prove_node))
        .with(Access::Signed(1), routes!(session::give_challenge));
    Routes(open.0.layer(DefaultBodyLimit::max(OPEN_BODY_BYTES_MAX)))
        .with(Access::ReadOwn(4), routes!(session::make_link))
        .with(Access::Operator, routes!(tokens::create_token))
        .with(Access::Operator, routes!(tokens::list_tokens))
        .with(Access::Operator, routes!(tokens::revoke_token))
        .with(Access::Operator, routes!(tokens::rotate_token))
        .with(Access::Read, routes!(grid::show_status))
        .with(Access::Operator, routes!(grid::test_reach))
        .with(Access::Operator, routes!(grid::measure_link))
        .with(Access::Read, routes!(grid::list_sites))
        .with(Access::Read, routes!(grid::list_hosts))
        .with(Access::Read, routes!(grid::show_ledger))
        .with(Access::Signed(SUBMISSION_COST), routes!(requests::submit_request))
        .with(Access::ReadOwn(4), routes!(requests::list_requests))
        .with(Access::Read, routes!(requests::read_written_request))
        .with(Access::ReadOwn(2), routes!(requests::show_request))
        .with(Access::ChangeOwn(2), routes!(requests::cancel_request))
        .with(Access::ReadOwn(2), routes!(requests::explain_request))
        .with(Access::ReadOwn(2), routes!(receipts::show_receipts))
        .with(Access::ChangeOwn(SUBMISSION_COST), routes!(requests::repair_request))
        .with(Access::ReadOwn(LOOK_UP_COST), routes!(takeover::look_up_reservation))
        .with(Access::TakeOver(LOOK_UP_COST), routes!(takeover::take_over_reservation))
        .with(Access::ChangeOwn(4), routes!(run::open_run))
        .with(Access::Read, routes!(members::show_grid))
        .with(Access::Operator, routes!(members::revoke_member))
        .with(Access::Read, routes!(plan::plan_request))
        .with(Access::Read, routes!(batch::plan_batch))
        .with(Access::Signed(SUBMISSION_COST), routes!(waiting::add_to_batch))
        .with(Access::ReadOwn(4), routes!(waiting::list_waiting))
        .with(Access::ChangeOwn(2), routes!(waiting::drop_waiting))
        .with(Access::ChangeOwn(LOOK_UP_COST), routes!(batch_run::run_batch))
        .with(Access::Operator, routes!(batch_run::run_every))
        .with(Access::Signed(LOOK_UP_COST), routes!(together::submit_together))
        .with(Access::Read, routes!(slots::find_slots))
        .with(Access::Read, routes!(bookings::list_bookings))
        .with(Access::Read, routes!(local::list_local_work))
        .with(Access::Operator, routes!(local::enter_local_work))
        .with(Access::Operator, routes!(local::remove_local_work))
        .with(Access::Operator, routes!(local::take_back_hosts))
        .with(Access::Operator, routes!(queue::queue_jobs))
        .with(Access::Operator, routes!(queue::remove_job))
        .with(Access::Operator, routes!(queue::end_job))
        .with(Access::Operator, routes!(queue::extend_job))
        .with(Access::Operator, routes!(running::list_running))
        .with(Access::Operator, routes!(running::end_running))
        .with(Access::Operator, routes!(running::stop_running))
        .with(Access::Operator, routes!(upkeep::drain_site))
        .with(Access::Operator, routes!(upkeep::reload_configuration))
        .with(Access::Operator, routes!(upkeep::confirm_clock))
        .with(Access::Read, routes!(usage::show_usage))
        .with(Access::ReadOwn(4), routes!(accounts::show_accounts))
        .with(Access::Operator, routes!(receipts::show_kept_receipts))
        .with(Access::ReadOwn(2), routes!(events::listen_to_events))
        .0
}

/// The OpenAPI document that describes the routes under `/v1`.
fn description() -> utoipa::openapi::OpenApi {
    let described = OpenApiRouter::with_openapi(Description::openapi()).nest("/v1", described());
    let (_, mut document) = described.split_for_parts();
    describe_problems(&mut document);
    describe_schemes(&mut document);
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

/// How a caller shows who it is; each call says which of the ways it takes.
fn describe_schemes(document: &mut utoipa::openapi::OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    let token = "The token in `api.token`, or one with the scope that the call names";
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(token)).build();
    components.add_security_scheme(authority::TOKEN, SecurityScheme::Http(token));
    let proven = "`Kolo-Token token=NAME, nonce=NONCE, body=HASH, mac=MAC`: a token that is not shown, with a nonce of `/v1/proof`";
    let proven = ApiKey::Header(ApiKeyValue::with_description("Authorization", proven));
    components.add_security_scheme(authority::PROVEN_TOKEN, SecurityScheme::ApiKey(proven));
    let signature = "`Kolo-Signature key=KEY, nonce=NONCE, signature=SIGNATURE`, with a nonce of `/v1/challenge`";
    let signature = ApiKey::Header(ApiKeyValue::with_description("Authorization", signature));
    components.add_security_scheme(authority::SIGNATURE, SecurityScheme::ApiKey(signature));
}

fn operations(document: &mut utoipa::openapi::OpenApi) -> impl Iterator<Item = (&str, &mut Operation)> {
    document.paths.paths.iter_mut().flat_map(|(path, item)| {
        let operations = [&mut item.get, &mut item.post, &mut item.delete];
        operations.into_iter().flatten().map(move |operation| (path.as_str(), operation))
    })
}

/// A route that is not in the description, with what it needs.
fn needing_alone(access: Access, route: MethodRouter<Arc<ApiState>>) -> MethodRouter<Arc<ApiState>> {
    needing(access, (Vec::new(), Paths::new(), route)).2
}

/// The routes behind one door.
pub fn router(state: Arc<ApiState>, via: Via) -> Router {
    let document = Arc::new(description());
    let document = get(|| async move { Json((*document).clone()) });
    // On this machine they are for whoever watches it; other machines show a token.
    let (of_document, of_metrics) =
        if via.is_tls { (Access::ReadOwn(1), Access::Metrics) } else { (Access::Open, Access::Open) };
    Router::new()
        .nest("/v1", described().split_for_parts().0)
        .merge(page::router())
        .route("/openapi.json", needing_alone(of_document, document))
        .route("/metrics", needing_alone(of_metrics, get(metrics::metrics)))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), guard::guard))
        .layer(Extension(via))
        .layer(Extension(state.clone()))
        .layer(middleware::from_fn(page::add_headers))
        .with_state(state)
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

    #[test]
    fn every_call_says_what_it_needs() {
        let document = document();
        let mut seen = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let ways = operation["security"].as_array();
                let scopes = ways.into_iter().flatten().filter_map(|way| way["token"][0].as_str());
                let scopes: Vec<&str> = scopes.collect();
                let is_open = path == "/v1/session" || path == "/v1/proof";
                assert_eq!(scopes.is_empty(), is_open, "{method} {path}: {ways:?}");
                seen.extend(scopes.iter().map(|scope| (*scope).to_owned()));
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["operator", "read", "submit"]);
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
