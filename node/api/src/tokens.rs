//! Tokens with a scope.

use kolo_trust::{ApiToken, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /v1/tokens`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    pub name: String,
    pub scope: Scope,
    /// Whose requests it makes and sees; with the scope `submit` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user: Option<String>,
}

/// Body of `POST /v1/api-token`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateToken {
    /// Always true.
    pub rotate: bool,
}

/// A token that was made.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    pub name: String,
    /// The token itself, which is shown now and never again.
    pub token: String,
}

/// Answer of `GET /v1/tokens`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// In the order in which they were made.
    pub tokens: Vec<ApiToken>,
}
