//! How a browser signs in, and what a user signs to make one call without a token.

use broker::ids::SiteId;
use kolo_trust::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of the calls for a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SessionState {
    /// Whether the browser has a session.
    pub signed_in: bool,
    /// What it may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub scope: Option<Scope>,
    /// The second half of the session's secret, which each call sends in the header `kolo-page` beside the cookie; only given when the session
    /// is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub page: Option<String>,
}

/// What opens a session: one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Opener {
    #[schema(nullable = false)]
    pub token: Option<String>,
    /// The code of a one-time link.
    #[schema(nullable = false)]
    pub link: Option<String>,
}

/// A link for a browser.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OneTimeLink {
    /// To be opened once.
    pub url: String,
    pub expires_in_s: u64,
}

/// The proof of a node that it knows a token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeProof {
    /// Nonce of the node, good for one call with the token within 30 s.
    pub nonce: String,
    /// BLAKE3 over port, the caller's nonce and the node's, keyed by the token's SHA-256; hexadecimal.
    pub proof: String,
}

/// What a user signs to make one call without a token, and for which node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Challenge {
    /// Good for one call.
    pub nonce: String,
    pub expires_in_s: u64,
    pub site: SiteId,
    pub grid: String,
    /// `open` or `closed`.
    pub grid_form: String,
    /// Whether some host that this node knows costs something: then a request had better have a budget.
    #[serde(default)]
    pub has_prices: bool,
}
