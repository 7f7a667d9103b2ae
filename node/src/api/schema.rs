//! The objects of the core as the API's description shows them: the core itself knows nothing of HTTP.
//!
//! Invariant: these are only described, never made; the tests of the API hold real answers against them.

#![expect(dead_code, reason = "only described")]

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::ToSchema;

/// A request, as in the formats.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The writer's name for the request.
    #[schema(nullable = false)]
    id: Option<String>,
    /// How many hosts.
    #[schema(minimum = 1, maximum = 10_000)]
    hosts: u32,
    /// How long, in seconds.
    #[schema(minimum = 1)]
    duration: i64,
    /// Earliest start (Unix seconds).
    #[schema(nullable = false, minimum = 0)]
    earliest: Option<i64>,
    /// Latest start (Unix seconds).
    #[schema(nullable = false, minimum = 0)]
    latest: Option<i64>,
    /// What each host gives at least, in base units.
    #[schema(nullable = false)]
    per_host: Option<BTreeMap<String, u64>>,
    /// What all hosts together give at least, in base units.
    #[schema(nullable = false)]
    total: Option<BTreeMap<String, u64>>,
    /// What each host must be.
    #[schema(nullable = false)]
    attributes: Option<BTreeMap<String, String>>,
    /// Only these hosts.
    #[schema(nullable = false)]
    candidates: Option<Vec<String>>,
    /// How much work planning may be.
    #[schema(nullable = false)]
    effort: Option<Effort>,
    /// Whether the reservation may move when hosts of it are lost.
    #[schema(nullable = false)]
    move_on_loss: Option<bool>,
}

/// A request as it is handed in.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Submission {
    /// The node signs it for its operator.
    Plain(Request),
    /// Its user has signed it.
    Signed(Signed),
}

/// A request that its user has signed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// Text, author, signature and chain of credentials.
    authorization: serde_json::Value,
}

/// How much work planning may be.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Least time.
    Fast,
    /// The default.
    Balanced,
    /// Best answers.
    Thorough,
}

/// How far a site's ledger has come.
#[derive(ToSchema)]
pub struct Version {
    /// Of the node's start.
    incarnation: u64,
    /// Changes since then.
    change: u64,
}

/// From start until end (Unix seconds).
#[derive(ToSchema)]
pub struct Window {
    /// First second inside.
    start: i64,
    /// First second after.
    end: i64,
}

/// Amounts on one host.
#[derive(ToSchema)]
pub struct Grant {
    /// The host.
    host: String,
    /// In base units.
    amounts: BTreeMap<String, u64>,
}

/// Why a host is lost.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Loss {
    /// Its site does not answer.
    SiteSilent,
    /// Its site has taken it back.
    TakenBack,
}
