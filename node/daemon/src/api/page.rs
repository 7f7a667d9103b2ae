//! The page: files that are part of the binary, so that it works offline and needs no building.
//!
//! Invariant: none of them says anything about the grid; scripts and styles come from here and nowhere else, which the
//! policy in [`HEADERS`] makes browsers keep.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
    routing::get,
};

use super::state::ApiState;

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const DRAWING: &str = "image/svg+xml";

/// Path, kind and content of every file.
const FILES: [(&str, &str, &str); 17] = [
    ("/", HTML, include_str!("../page/index.html")),
    ("/style.css", STYLE, include_str!("../page/style.css")),
    ("/icon.svg", DRAWING, include_str!("../page/icon.svg")),
    ("/js/main.js", SCRIPT, include_str!("../page/js/main.js")),
    ("/js/api.js", SCRIPT, include_str!("../page/js/api.js")),
    ("/js/book.js", SCRIPT, include_str!("../page/js/book.js")),
    ("/js/dom.js", SCRIPT, include_str!("../page/js/dom.js")),
    ("/js/events.js", SCRIPT, include_str!("../page/js/events.js")),
    ("/js/format.js", SCRIPT, include_str!("../page/js/format.js")),
    ("/js/gantt.js", SCRIPT, include_str!("../page/js/gantt.js")),
    ("/js/gantt-draw.js", SCRIPT, include_str!("../page/js/gantt-draw.js")),
    ("/js/gantt-model.js", SCRIPT, include_str!("../page/js/gantt-model.js")),
    ("/js/overview.js", SCRIPT, include_str!("../page/js/overview.js")),
    ("/js/request-form.js", SCRIPT, include_str!("../page/js/request-form.js")),
    ("/js/requests.js", SCRIPT, include_str!("../page/js/requests.js")),
    ("/js/running.js", SCRIPT, include_str!("../page/js/running.js")),
    ("/js/slots.js", SCRIPT, include_str!("../page/js/slots.js")),
];

/// Put on every answer.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// Routes of the files.
pub fn router() -> Router<Arc<ApiState>> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        let answer = move || async move {
            // A page of another version of the node must not stay in a browser.
            ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content).into_response()
        };
        router.route(path, get(answer))
    })
}

/// Adds the headers.
pub async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_a_heading_of_level_one() {
        let content = |name: &str| FILES.iter().find(|(path, ..)| *path == name).unwrap().2;
        let views = content("/js/main.js").split("const VIEWS = {").nth(1).unwrap().split('}').next().unwrap();
        let views: Vec<&str> = views.split(',').map(str::trim).collect();
        assert!(views.contains(&"gantt"), "{views:?}");
        for view in views {
            assert!(content(&format!("/js/{view}.js")).contains("el(\"h1\""), "{view} has none");
        }
        assert!(!content("/").contains("<h1"), "the views bring theirs");
    }

    #[test]
    fn every_import_is_served_and_nothing_comes_from_elsewhere() {
        let weight: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(weight < 1 << 20, "{weight}");
        for (path, _, content) in FILES {
            for piece in content.split("from \"./").skip(1) {
                let name = piece.split('"').next().unwrap();
                assert!(FILES.iter().any(|(path, ..)| *path == format!("/js/{name}")), "{path} imports {name}");
            }
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path}");
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!content.contains(word), "{path}: {word}");
            }
        }
    }
}
