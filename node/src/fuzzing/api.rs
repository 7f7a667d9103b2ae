//! Bodies and queries of the local API. The first byte says which of them the rest is.

use axum::{extract::Query, http::Uri};
use broker::request::Request;
use fuzz_support::{Input, Seed, Target};

use crate::api::requests::{ListQuery, WaitQuery, read_request};

/// Bodies and queries.
pub const API: Target = Target { name: "api", run, seeds };

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let is_query = input.flag();
    if is_query {
        let Ok(query) = std::str::from_utf8(input.rest()) else { return };
        let Ok(uri) = format!("http://localhost/v1/requests?{query}").parse::<Uri>() else { return };
        let _ = Query::<ListQuery>::try_from_uri(&uri);
        let _ = Query::<WaitQuery>::try_from_uri(&uri);
    } else if let Ok(request) = read_request(input.rest()) {
        let written = serde_json::to_vec(&request).expect("a request that was read can be written");
        assert_eq!(read_request(&written).ok().as_ref(), Some(&request) as Option<&Request>);
    }
}

fn seeds() -> Vec<Seed> {
    let texts = [
        ("request", 0, r#"{"hosts":5,"duration":3600,"per_host":{"cpu":500},"attributes":{"arch":"x86_64"}}"#),
        ("wrong", 0, r#"{"hosts":-1,"duration":"1h"}"#),
        ("list", 1, "limit=20"),
        ("wait", 1, "wait_ms=1000&revision=3&until=settled"),
    ];
    texts.into_iter().map(|(name, kind, text)| (name, [&[kind], text.as_bytes()].concat())).collect()
}
