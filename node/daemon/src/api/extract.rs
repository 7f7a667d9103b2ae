//! Queries, paths and bodies as the handlers take them: as the library reads them, but what cannot be read is answered with
//! a problem instead of plain text.

use std::{ops::RangeInclusive, time::Duration};

use axum::{
    extract::{self, FromRequest, FromRequestParts, Request, rejection::BytesRejection},
    http::{StatusCode, request::Parts},
};
use kolo_trust::body_hash;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// How long a whole body may take to arrive; the largest comes over 1.2 Mbit/s.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What stands behind the `?`.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, Problem> {
        extract::Query::try_from_uri(&parts.uri).map(|extract::Query(query)| Query(query)).map_err(|rejection| {
            // The library's own words are in front; what is behind them begins with the key, when it is a known one.
            let text = rejection.body_text();
            let detail = text.split_once(": ").map_or(text.as_str(), |(_, detail)| detail);
            let problem = Problem::bad_request(format!("query: {detail}"));
            match key_of(detail) {
                Some(key) => problem.with_key(key),
                None => problem,
            }
        })
    }
}

/// The key that a complaint about a query is about.
fn key_of(detail: &str) -> Option<&str> {
    // "limit: invalid digit found in string", or "duplicate field `limit`".
    match detail.split_once(": ") {
        Some((key, _)) if !key.contains(' ') => Some(key),
        _ => detail.split('`').nth(1),
    }
}

/// The part of the path that the route leaves open.
pub struct Path(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Path {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path, Problem> {
        let read = extract::Path::<String>::from_request_parts(parts, state).await;
        let wrong =
            |rejection: extract::rejection::PathRejection| Problem::new(rejection.status(), rejection.body_text());
        read.map(|extract::Path(selector)| Path(selector)).map_err(wrong)
    }
}

/// The hash of the body that a token's holder has sent.
#[derive(Debug, Clone)]
pub struct BodyHash(pub String);

/// A whole body, of at most as many bytes as its call takes, within [`BODY_TIMEOUT`], and the one that was sent by who calls.
pub struct Body(pub axum::body::Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body, Problem> {
        Body::within(BODY_TIMEOUT, request, state).await
    }
}

impl Body {
    async fn within<S: Send + Sync>(limit: Duration, request: Request, state: &S) -> Result<Body, Problem> {
        let sent = request.extensions().get::<BodyHash>().cloned();
        let read = tokio::time::timeout(limit, axum::body::Bytes::from_request(request, state)).await;
        let Ok(read) = read else {
            let detail = format!("the body did not arrive within {} s", limit.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
        };
        let bytes = read.map_err(|rejection: BytesRejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has more bytes than this call takes")
            }
            status => Problem::new(status, rejection.body_text()),
        })?;
        if sent.is_some_and(|BodyHash(sent)| sent != body_hash(&bytes)) {
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "the body is not the one that the caller has sent"));
        }
        Ok(Body(bytes))
    }
}

/// `value`, when it is in `range`; else the problem that names its key.
pub fn in_range<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<T, Problem> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Problem::wrong(key, format_args!("expected {} to {}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use axum::http;

    use super::*;
    use crate::api::requests::WaitQuery;

    #[tokio::test]
    async fn a_body_that_does_not_end_is_given_up() {
        let bytes = futures::stream::pending::<Result<&[u8], std::io::Error>>();
        let request = http::Request::builder().body(axum::body::Body::from_stream(bytes)).unwrap();
        let problem = Body::within(Duration::from_millis(1), request, &()).await.err().unwrap();
        assert_eq!(serde_json::to_value(&problem.0).unwrap()["status"], 408);
    }

    #[tokio::test]
    async fn a_body_that_is_not_the_senders_is_refused() {
        for (sent, status) in [(None, None), (Some("{}"), None), (Some("{ }"), Some(401))] {
            let mut request = http::Request::builder().body(axum::body::Body::from("{}")).unwrap();
            if let Some(sent) = sent {
                request.extensions_mut().insert(BodyHash(body_hash(sent.as_bytes())));
            }
            let read = Body::from_request(request, &()).await;
            let problem = read.err().map(|problem| serde_json::to_value(&problem.0).unwrap()["status"].clone());
            assert_eq!(problem, status.map(serde_json::Value::from), "{sent:?}");
        }
    }

    #[tokio::test]
    async fn a_bad_query_names_its_key() {
        for (query, expected) in [
            ("wait_ms=soon", Some("wait_ms")),
            ("wait_ms=1&wait_ms=2", Some("wait_ms")),
            ("patience=1", Some("patience")),
            ("until=never", Some("until")),
            ("wait_ms=1&until=settled", None),
        ] {
            let request = http::Request::builder().uri(format!("/?{query}")).body(()).unwrap();
            let read = Query::<WaitQuery>::from_request_parts(&mut request.into_parts().0, &()).await;
            let problem = read.err().map(|problem| serde_json::to_value(&problem.0).unwrap());
            let key = problem.as_ref().map(|problem| problem["key"].as_str().unwrap_or_default());
            assert_eq!(key, expected, "{query}: {problem:?}");
        }
    }
}
