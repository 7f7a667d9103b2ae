//! Problems as handlers answer them.

use std::fmt::Display;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use broker::trust::Denial;
use kolo_api::{problem, request_view::RequestView};

/// What went wrong, as an answer of the API.
#[derive(Debug, Clone)]
pub struct Problem(pub problem::Problem);

impl Problem {
    /// A problem with this status; its title is the status' own.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("error");
        Problem(problem::Problem::new(status.as_u16(), title, detail))
    }

    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// What is wrong with the value of `key`.
    pub fn wrong(key: &str, message: impl Display) -> Problem {
        Problem::bad_request(format!("{key}: {message}")).with_key(key)
    }

    /// Refused by a rule of the grid, of a credential, or of the owner.
    pub fn refused(denial: &Denial) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, denial.to_string()).with_rule(denial.rule.as_str())
    }

    pub fn with_rule(mut self, rule: &str) -> Problem {
        self.0.rule = Some(rule.to_owned());
        self
    }

    pub fn with_existing(mut self, existing: Option<RequestView>) -> Problem {
        self.0.existing = existing.map(Box::new);
        self
    }

    pub fn with_key(mut self, key: impl Into<String>) -> Problem {
        self.0.key = Some(key.into());
        self
    }

    /// The problem of the request at this place of several.
    pub fn of(mut self, at: usize) -> Problem {
        let key = self.0.key.map_or_else(|| format!("requests[{at}]"), |key| format!("requests[{at}].{key}"));
        self.0.key = Some(key);
        self.0.detail = format!("requests[{at}]: {}", self.0.detail);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self.0).unwrap_or_else(|_| "{}".to_owned());
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        (status, [kind], body).into_response()
    }
}
