//! Errors of the API as RFC 9457 problem details.

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
    pub status: u16,
    pub detail: String,
    /// The key of the body or the query that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The rule that refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What is here already in place of what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub existing: Option<Box<RequestView>>,
}

impl Problem {
    /// A problem with this HTTP status, whose title is the status' own.
    pub fn new(status: u16, title: &str, detail: impl Into<String>) -> Problem {
        Problem { title: title.to_owned(), status, detail: detail.into(), ..Problem::default() }
    }
}
