//! Refuses what comes from other sites through the user's browser: pages that call this API, and names of others that
//! were made to lead to this machine.
//!
//! Invariant: a call under `/v1` that a browser makes for a page of another origin is answered 403 before anything is
//! looked at; so is one that names a host which is neither an address, nor `localhost`, nor configured.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    problem::Problem,
    state::{ApiState, Via},
};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub async fn guard(
    State(state): State<Arc<ApiState>>,
    Extension(via): Extension<Via>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let host = text(headers, &header::HOST).or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    if host.is_some_and(|host| !is_ours(host, &state.names)) {
        let detail = "this node is not called that: use its address, or add the name to remote.names";
        return Problem::new(StatusCode::FORBIDDEN, detail).with_rule("host").into_response();
    }
    let is_api = request.uri().path().starts_with("/v1");
    if is_api && is_cross_site(headers, host, via.scheme()) {
        let detail = "pages of other sites may not call this node";
        return Problem::new(StatusCode::FORBIDDEN, detail).with_rule("cross-site").into_response();
    }
    next.run(request).await
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Somebody else's name cannot be an address, so an address is always ours.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_cross_site(headers: &HeaderMap, host: Option<&str>, scheme: &str) -> bool {
    let origin = text(headers, &header::ORIGIN);
    let is_foreign = |origin: &str| host.is_none_or(|host| origin != format!("{scheme}://{host}"));
    let is_fetched_by_other = text(headers, &FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    origin.is_some_and(is_foreign) || is_fetched_by_other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_ours() {
        let names = ["kolo.example.org".to_owned()];
        for host in ["127.0.0.1:7740", "[::1]:7740", "localhost:7740", "LOCALHOST", "192.0.2.7", "Kolo.Example.org:443"]
        {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:7740", "", "127.0.0.1.evil.example", "kolo.example.org.evil"]
        {
            assert!(!is_ours(host, &names), "{host}");
        }
    }

    #[test]
    fn pages_of_others_are_told_by_origin_and_by_the_browser() {
        let case = |headers: &[(HeaderName, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
            is_cross_site(&headers, Some("127.0.0.1:7740"), "http")
        };
        assert!(!case(&[]) && !case(&[(header::ORIGIN, "http://127.0.0.1:7740"), (FETCH_SITE, "same-origin")]));
        assert!(!case(&[(FETCH_SITE, "none")]));
        for origin in ["null", "http://127.0.0.1:7741", "https://127.0.0.1:7740", "http://evil.example", ""] {
            assert!(case(&[(header::ORIGIN, origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(case(&[(FETCH_SITE, site)]), "{site}");
        }
    }
}
