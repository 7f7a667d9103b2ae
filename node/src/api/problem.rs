//! Errors of the API as RFC 9457 problem details.

use std::fmt::Display;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use broker::trust::Denial;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request_view::RequestView;

/// What a problem is one of: none has a page that says more.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
enum Kind {
    #[default]
    #[serde(rename = "about:blank")]
    Blank,
}

/// What went wrong, for programs and for people.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: Kind,
    pub title: String,
    status: u16,
    pub detail: String,
    /// The key of the body or the query that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The rule that refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What is here already in place of what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<Box<RequestView>>,
}

impl Problem {
    /// A problem with this status; its title is the status' own.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            kind: Kind::Blank,
            title: status.canonical_reason().unwrap_or("error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            key: None,
            rule: None,
            existing: None,
        }
    }

    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// What is wrong with the value of `key`.
    pub fn wrong(key: &str, message: impl Display) -> Problem {
        Problem { key: Some(key.to_owned()), ..Problem::bad_request(format!("{key}: {message}")) }
    }

    /// Refused by a rule of the grid, of a credential, or of the owner.
    pub fn refused(denial: &Denial) -> Problem {
        let rule = Some(denial.rule.as_str().to_owned());
        Problem { rule, ..Problem::new(StatusCode::FORBIDDEN, denial.to_string()) }
    }

    pub fn with_rule(mut self, rule: &str) -> Problem {
        self.rule = Some(rule.to_owned());
        self
    }

    pub fn with_existing(mut self, existing: Option<RequestView>) -> Problem {
        self.existing = existing.map(Box::new);
        self
    }

    pub fn with_key(mut self, key: impl Into<String>) -> Problem {
        self.key = Some(key.into());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_else(|_| "{}".to_owned());
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        (status, [kind], body).into_response()
    }
}
